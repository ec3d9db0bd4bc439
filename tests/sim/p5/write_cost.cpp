#include "tests/sim/p5/write_cost.hpp"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "actors/device/outbound.hpp"
#include "tests/sim/instant_nic.hpp"
#include "tests/sim/p5/pair.hpp"
#include "transport/packing/packed_buffer.hpp"
#include "transport/poller/poller.hpp"

namespace penstock::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kCards = 4;
constexpr Incarnation kPeer = 77;
constexpr int kRounds = 7;
constexpr std::uint64_t kSlotBytes = 256 * 1024;

double cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

template <class Work>
double best_cpu_ns(Work work) {
  double best = 1e300;
  for (int round = 0; round < kRounds; ++round) {
    const double start = cpu_ns();
    work();
    best = std::min(best, cpu_ns() - start);
  }
  return best;
}

/// Address space that nobody touches.
class NoMemory final : public RegionMemory {
 public:
  explicit NoMemory(std::uint64_t bytes)
      : bytes_(bytes), base_(mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~NoMemory() override { munmap(base_, bytes_); }
  MemoryKind kind() const override { return MemoryKind::kHost; }
  std::span<std::byte> bytes() const override { return {static_cast<std::byte*>(base_), bytes_}; }
  const std::string& shared_name() const override { return name_; }

 private:
  std::uint64_t bytes_;
  void* base_;
  std::string name_;
};

Pages random_pages(std::uint64_t page_bytes, std::uint64_t pages, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint32_t> source(pages);
  std::iota(source.begin(), source.end(), 0u);
  auto destination = source;
  std::shuffle(source.begin(), source.end(), random);
  std::shuffle(destination.begin(), destination.end(), random);
  Pages layout;
  layout.row_bytes = layout.source_stride = layout.destination_stride = page_bytes;
  layout.source_pages = BlobList<std::uint32_t>::of(source);
  layout.destination_pages = BlobList<std::uint32_t>::of(destination);
  return layout;
}

/// The device actor and its poller as one thread, with a peer that agrees to everything.
class Device {
 public:
  explicit Device(std::uint64_t region_bytes)
      : loop_(cards(), {}), outbound_(Outbound::Options{}, port()) {
    auto region = std::make_shared<Region>();
    region->name = "source";
    region->bytes = region_bytes;
    region->memory = std::make_shared<NoMemory>(region_bytes);
    auto local = std::make_shared<RegisteredMemory>();
    local->memory = region->memory;
    for (std::size_t i = 0; i < kCards; ++i) {
      local->registrations.push_back(
          std::move(loop_.nic(i).register_memory(region->memory->bytes()).value()));
      loop_.execute(
          OpenLink{i + 1, static_cast<std::uint16_t>(i), FabricAddress(1), FabricAddress(1), 1});
      links_.push_back({i + 1, static_cast<std::uint16_t>(i), static_cast<std::uint16_t>(i), 1});
      keys_.push_back({static_cast<std::uint16_t>(i), 0, 1});
    }
    region->set_registered(local, {});
    regions_.publish(region);
    outbound_.peer_up("b", kPeer, Clock::now());
  }

  void run(std::shared_ptr<const Plan> plan) {
    Admitted admitted;
    admitted.id = ++id_;
    admitted.node = "b";
    admitted.remote_region = "destination";
    admitted.plan = std::move(plan);
    admitted.local = std::make_shared<RegionUse>(std::move(regions_.use("source").value()));
    admitted.deadline = Clock::now() + 60s;
    admitted.packing = PackingMode::kNever;
    ended_ = false;
    outbound_.admit(std::move(admitted), Clock::now());
    while (!ended_) {
      answer();
      loop_.step();
      if (!loop_.has_events()) continue;
      for (auto& event : loop_.take_events()) {
        if (auto* hungry = std::get_if<QuantumDone>(&event)) outbound_.quantum_done(*hungry);
        if (auto* idle = std::get_if<TransferIdle>(&event)) outbound_.idle(*idle, Clock::now());
      }
    }
  }

 private:
  static std::vector<std::unique_ptr<Nic>> cards() {
    std::vector<std::unique_ptr<Nic>> nics;
    for (std::size_t i = 0; i < kCards; ++i) nics.push_back(std::make_unique<InstantNic>());
    return nics;
  }
  Outbound::Port port() {
    return {.command = [this](PollerCommand command) { loop_.execute(std::move(command)); },
            .ask = [this](Incarnation, std::uint64_t token, Question question,
                          TimePoint) { asked_.emplace_back(token, std::move(question)); },
            .copy = [](CopyTask) {},
            .notify = [](Notification) {},
            .ended =
                [this](TransferResult result) {
                  if (result.state != TransferResult::State::kDone)
                    throw std::runtime_error(result.error.message);
                  ended_ = true;
                }};
  }
  void answer() {
    while (!asked_.empty()) {
      const auto [token, question] = std::move(asked_.front());
      asked_.pop_front();
      if (token == 0) continue;
      if (std::holds_alternative<Open>(question))
        outbound_.answered(token, OpenOk{"gpu0", std::nullopt, 9, std::uint64_t{1} << 40, keys_},
                           links_, Clock::now());
      else
        outbound_.answered(token, FinOk{}, links_, Clock::now());
    }
  }

  RegionTable regions_;
  std::vector<Peer::PathCard> links_;
  std::vector<RegionKey> keys_;
  std::deque<std::pair<std::uint64_t, Question>> asked_;
  bool ended_ = false;
  TransferId id_ = 0;
  PollerLoop loop_;
  Outbound outbound_;
};

/// The calls to the cards that the poller makes, without the poller: full windows, batches of 64.
double bare_ns(std::uint64_t page_bytes, std::uint64_t writes) {
  std::array<std::unique_ptr<Nic>, kCards> cards;
  for (auto& card : cards) card = std::make_unique<InstantNic>();
  std::vector<OperationContext> contexts(256);
  std::array<Completion, 64> completions;
  std::array<std::uint64_t, kCards> out{};
  return best_cpu_ns([&] {
    std::uint64_t posted = 0;
    while (posted < writes) {
      for (std::size_t i = 0; i < kCards; ++i) {
        out[i] -= cards[i]->poll(completions);
        OneSided request;
        request.length = page_bytes;
        for (; out[i] < 128 && posted < writes; ++out[i]) {
          request.remote_address = posted * page_bytes;
          cards[i]->post(request, &contexts[posted++ % contexts.size()]);
        }
      }
    }
  });
}

}  // namespace

WriteCost measure_write_cost(std::uint64_t page_bytes, std::uint64_t pages, std::uint64_t seed) {
  const Pages layout = random_pages(page_bytes, pages, seed);
  const PlanLimits limits{.max_chunk_bytes = std::max<std::uint64_t>(page_bytes, 64 * 1024)};
  const double count = static_cast<double>(pages);
  WriteCost cost;
  std::shared_ptr<const Plan> plan;
  cost.scan_ns = best_cpu_ns([&] { plan = Plan::make(layout, limits).value(); }) / count;
  const double writes = static_cast<double>(plan->chunks());
  std::uint64_t sum = 0;
  cost.cursor_ns = best_cpu_ns([&] {
                     Cursor cursor(*plan);
                     for (Chunk chunk; cursor.next(chunk);) sum += chunk.destination_offset;
                   }) /
                   writes;
  if (sum == 1) throw std::logic_error("the compiler must draw them");
  Device device(plan->source_end());
  cost.all_ns = best_cpu_ns([&] { device.run(plan); }) / writes;
  cost.card_ns = bare_ns(page_bytes, plan->chunks()) / writes;
  return cost;
}

SimulatedCost measure_simulated_cost(std::uint64_t seed) {
  constexpr auto kTime = 10ms;
  SimulatedCost cost;
  {
    PairOptions options;
    options.seed = seed;
    options.page_bytes = 4096;
    options.write_cost = options.round_cost = 0ns;
    Pair pair(options);
    pair.keep_busy();
    pair.run_for(8ms);
    const std::uint64_t before = pair.writes();
    const double start = cpu_ns();
    pair.run_for(kTime);
    cost.with_ns = (cpu_ns() - start) / static_cast<double>(pair.writes() - before);
  }
  FastWire wire(seed);
  PollerCore core;
  std::vector<std::unique_ptr<FastNic>> cards;
  for (int i = 0; i < 64; ++i)
    cards.push_back(std::make_unique<FastNic>(wire, core, FastNicOptions{}));
  std::vector<std::byte> byte(4096);
  const auto registration = cards[0]->register_memory(byte).value();
  std::vector<OperationContext> contexts(32 * 128);
  std::vector<std::size_t> out(32);
  std::array<Completion, 64> completions;
  OneSided request;
  request.length = 4096;
  request.remote_key = registration->key();
  const auto run_until = [&](std::int64_t end_ps) {
    for (std::int64_t now_ps = wire.now_ps(); now_ps < end_ps;) {
      now_ps += 250'000;
      wire.run_until(now_ps);
      core.free_ps = now_ps;
      for (std::size_t i = 0; i < 32; ++i) {
        out[i] -= cards[i]->poll(completions);
        request.peer = cards[i + 32]->add_peer(cards[i + 32]->inbound_address()).value();
        for (; out[i] < 128; ++out[i])
          cards[i]->post(request, &contexts[i * 128 + wire.writes() % 128]);
      }
    }
  };
  run_until(1'000'000'000);
  const std::uint64_t before = wire.writes();
  const double start = cpu_ns();
  run_until(1'000'000'000 + std::chrono::nanoseconds(kTime).count() * 1000);
  cost.without_ns = (cpu_ns() - start) / static_cast<double>(wire.writes() - before);
  return cost;
}

PackedPageCost measure_packed_page(std::uint64_t page_bytes, std::uint64_t seed) {
  constexpr std::uint64_t kRegionBytes = 256u << 20;
  std::vector<std::byte> source(kRegionBytes, std::byte{1});
  std::vector<std::byte> destination(kRegionBytes, std::byte{2});
  std::vector<std::byte> slot(kSlotBytes);
  const std::uint64_t pages = kRegionBytes / page_bytes;
  std::vector<std::uint64_t> order(pages);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  PackedPageCost cost{1e300, 1e300};
  for (int round = 0; round < 3; ++round) {
    double gather = 0, scatter = 0;
    for (std::uint64_t i = 0; i < pages;) {
      const double start = cpu_ns();
      PackedWriter writer(slot);
      for (; i < pages && writer.fits(page_bytes); ++i)
        writer.add(order[pages - 1 - i] * page_bytes,
                   {source.data() + order[i] * page_bytes, page_bytes});
      const std::uint64_t used = writer.finish();
      const double gathered = cpu_ns();
      if (!unpack(std::span(slot).first(used), destination)) throw std::logic_error("not packed");
      gather += gathered - start;
      scatter += cpu_ns() - gathered;
    }
    cost.gather_ns = std::min(cost.gather_ns, gather / static_cast<double>(pages));
    cost.scatter_ns = std::min(cost.scatter_ns, scatter / static_cast<double>(pages));
  }
  return cost;
}

}  // namespace penstock::sim

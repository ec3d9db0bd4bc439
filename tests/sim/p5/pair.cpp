#include "tests/sim/p5/pair.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace penstock::sim {
namespace {

using namespace std::chrono_literals;

/// How far the clock goes at once: about what a round of a poller lasts.
constexpr auto kTick = 250ns;
constexpr std::int64_t kTickPs = kTick.count() * 1000;
/// Receivers whose cards have nothing to say are looked at in one tick of so many, for their
/// timers.
constexpr std::uint64_t kTicksPerLook = 16;
constexpr std::uint64_t kUrgentBytes = 4096;

}  // namespace

/// Address space: no page of it exists before it is touched.
class Pair::Memory {
 public:
  explicit Memory(std::uint64_t bytes)
      : bytes_(bytes),
        base_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (base_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Memory() { munmap(base_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(base_), bytes_}; }

 private:
  std::uint64_t bytes_;
  void* base_;
};

double Arrivals::total_gbps() const {
  double total = 0;
  for (const auto& device : gbps) total += std::accumulate(device.begin(), device.end(), 0.0);
  return total;
}

double Arrivals::spread() const {
  double least = 1e300, most = 0, total = 0;
  std::size_t cards = 0;
  for (const auto& device : gbps)
    for (const double each : device) {
      least = std::min(least, each);
      most = std::max(most, each);
      total += each;
      ++cards;
    }
  return total == 0 ? 0 : (most - least) * static_cast<double>(cards) / total;
}

Pair::Pair(PairOptions options)
    : options_(std::move(options)),
      network_(options_.seed),
      network_wire_(network_),
      wire_(options_.seed + 1),
      random_(options_.seed + 2) {
  make_side(0);
  make_side(1);
  for (std::size_t i = 0; i < options_.devices; ++i) {
    sides_[0][i].node->meet(sides_[1][i].node->record());
    sides_[1][i].node->meet(sides_[0][i].node->record());
  }
}

Pair::~Pair() = default;

void Pair::make_side(std::size_t side) {
  for (std::size_t i = 0; i < options_.devices; ++i) {
    Device& device = sides_[side].emplace_back();
    device.core = std::make_unique<PollerCore>();
    device.core->post_ps = options_.write_cost.count() * 1000;
    device.memory = std::make_shared<Memory>(options_.region_bytes);
    std::vector<FastNic*> cards;
    SimNodeOptions node;
    node.name = (side == 0 ? "a" : "b") + std::to_string(i);
    node.incarnation = 1000 * (side + 1) + i;
    node.cards = side == 0 ? options_.cards : options_.remote_cards;
    node.make_card = [this, &cards, core = device.core.get(), name = node.name](std::size_t card) {
      FastNicOptions options = options_.card;
      options.name = name + "." + std::to_string(card);
      auto nic = std::make_unique<FastNic>(wire_, *core, options);
      cards.push_back(nic.get());
      return nic;
    };
    node.actor_delay = options_.actor_delay;
    node.poller = options_.poller;
    node.slot_bytes = 0;
    node.outbound.scheduler.quantum_bytes = options_.quantum_bytes;
    node.inbound.fence = options_.card.fence;
    SimNodeObserver observer;
    observer.ended = [this](const TransferResult& result) { ended(result); };
    observer.notified = [](const Notification&) {};
    observer.broken = [this](Incarnation, TransferId id) {
      failures_.push_back(fmt::format("the owner fenced transfer {}", id));
    };
    observer.released = [](const std::string&) {};
    device.node = std::make_unique<SimNode>(network_wire_, node, observer);
    device.cards = std::move(cards);
    device.node->add_region(side == 0 ? "source" : "destination", device.memory->bytes());
  }
}

// -- load ----------------------------------------------------------------------------------------

std::shared_ptr<const Plan> Pair::random_plan(std::uint64_t bytes, std::uint64_t page_bytes) {
  std::vector<std::uint32_t> source(options_.region_bytes / page_bytes);
  std::iota(source.begin(), source.end(), 0u);
  auto destination = source;
  std::shuffle(source.begin(), source.end(), random_);
  std::shuffle(destination.begin(), destination.end(), random_);
  source.resize(bytes / page_bytes);
  destination.resize(bytes / page_bytes);
  Pages pages;
  pages.row_bytes = pages.source_stride = pages.destination_stride = page_bytes;
  pages.source_pages = BlobList<std::uint32_t>::of(source);
  pages.destination_pages = BlobList<std::uint32_t>::of(destination);
  return Plan::make(std::move(pages), {.max_chunk_bytes = page_bytes}).value();
}

void Pair::keep_busy() {
  busy_ = true;
  for (std::size_t i = 0; i < options_.devices; ++i) {
    // Of several lengths, so that they do not all end at once.
    auto& plans = sides_[0][i].plans;
    while (plans.size() < options_.open_transfers)
      plans.push_back(
          random_plan(options_.transfer_bytes * (plans.size() + 1) / options_.open_transfers,
                      options_.page_bytes));
    for (std::size_t k = 0; k < options_.open_transfers; ++k) load(i);
  }
}

void Pair::load(std::size_t index) {
  Device& device = sides_[0][index];
  admit(index, device.plans[device.next_plan++ % device.plans.size()], Lane::kBulk);
}

TransferId Pair::transfer(std::size_t device, std::uint64_t bytes) {
  admit(device, random_plan(bytes, options_.page_bytes), Lane::kBulk);
  return next_id_ - 1;
}

void Pair::be_urgent(std::size_t device, Duration every, std::size_t count) {
  const auto plan = random_plan(kUrgentBytes, kUrgentBytes);
  for (std::size_t i = 0; i < count; ++i)
    network_.after(every * (i + 1), [this, device, plan] { admit(device, plan, Lane::kUrgent); });
}

void Pair::admit(std::size_t index, std::shared_ptr<const Plan> plan, Lane lane) {
  SimNode& node = *sides_[0][index].node;
  Admitted admitted;
  admitted.id = next_id_++;
  admitted.node = "b" + std::to_string(index);
  admitted.remote_region = "destination";
  admitted.plan = plan;
  admitted.local = std::make_shared<RegionUse>(std::move(node.regions().use("source").value()));
  admitted.lane = lane;
  admitted.deadline = network_.now() + 60s;
  admitted.packing = PackingMode::kNever;
  open_.emplace(admitted.id, Open{index, plan, lane == Lane::kUrgent, network_.now()});
  node.admit(std::move(admitted));
}

void Pair::ended(const TransferResult& result) {
  const auto found = open_.find(result.id);
  const Open open = found->second;
  open_.erase(found);
  if (result.state == TransferResult::State::kDone)
    ++done_;
  else
    failures_.push_back(fmt::format("transfer {}: {}", result.id, result.error.message));
  if (open.urgent) {
    urgent_latencies_.push_back(network_.now() - open.admitted);
    return;
  }
  ended_.emplace(result.id, open);
  results_[result.id] = result;
  if (busy_ && failures_.empty()) load(open.device);
}

void Pair::fill(std::size_t device) {
  std::mt19937_64 random(options_.seed + 3);
  for (std::byte& byte : sides_[0][device].memory->bytes()) byte = static_cast<std::byte>(random());
}

bool Pair::arrived(TransferId id) const {
  const auto found = ended_.find(id);
  if (found == ended_.end()) return false;
  const Open& transfer = found->second;
  Cursor cursor(*transfer.plan);
  const auto from = sides_[0][transfer.device].memory->bytes();
  const auto to = sides_[1][transfer.device].memory->bytes();
  for (Chunk chunk; cursor.next(chunk);)
    if (std::memcmp(from.data() + chunk.source_offset, to.data() + chunk.destination_offset,
                    chunk.length) != 0)
      return false;
  return true;
}

// -- time ----------------------------------------------------------------------------------------

void Pair::step(Device& device) {
  PollerCore& core = *device.core;
  if (core.free_ps > now_ps_) return;
  // It was free since then, but its work begins no earlier than what caused it.
  core.free_ps = std::max(core.free_ps, now_ps_ - kTickPs);
  if (device.node->step() > 0) core.works(options_.round_cost.count() * 1000);
}

void Pair::tick() {
  now_ps_ += kTickPs;
  wire_.run_until(now_ps_);
  network_.advance(kTick);
  const bool look = ++ticks_ % kTicksPerLook == 0;
  for (Device& device : sides_[0]) step(device);
  for (Device& device : sides_[1]) {
    const auto ready = [](const FastNic* card) { return card->ready(); };
    if (look || std::any_of(device.cards.begin(), device.cards.end(), ready)) step(device);
  }
}

void Pair::run_for(Duration time) {
  const std::int64_t end_ps = now_ps_ + time.count() * 1000;
  while (now_ps_ < end_ps) tick();
}

bool Pair::run_to_end(Duration most) {
  const std::int64_t end_ps = now_ps_ + most.count() * 1000;
  while (!open_.empty() && now_ps_ < end_ps) tick();
  return open_.empty();
}

Arrivals Pair::measure(Duration time) {
  Arrivals arrivals;
  arrivals.seconds = static_cast<double>(time.count()) * 1e-9;
  for (Device& device : sides_[1])
    for (FastNic* card : device.cards) card->forget_landed();
  for (Device& device : sides_[0]) device.core->busy_ps = 0;
  const std::int64_t begin_ps = now_ps_ + kMeasureLead.count() * 1000;
  wire_.count(begin_ps, begin_ps + time.count() * 1000);
  run_for(kMeasureLead);
  const std::uint64_t before = wire_.writes();
  run_for(time);
  arrivals.writes = wire_.writes() - before;
  for (Device& device : sides_[1]) {
    auto& gbps = arrivals.gbps.emplace_back();
    for (FastNic* card : device.cards)
      gbps.push_back(card->landed_bytes() * 8e-9 / arrivals.seconds);
  }
  const double all_ps = static_cast<double>((time + kMeasureLead).count()) * 1000;
  for (Device& device : sides_[0])
    arrivals.busiest_core =
        std::max(arrivals.busiest_core, static_cast<double>(device.core->busy_ps) / all_ps);
  return arrivals;
}

}  // namespace penstock::sim

// What a request of 10,000 pages costs the service outside libfabric, per page: decoding, checking
// and planning it, and the poller's work for each page, over a card that does nothing.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "actors/protocol/request.hpp"
#include "tests/sim/instant_nic.hpp"
#include "transport/memory/region.hpp"
#include "transport/plan/plan.hpp"
#include "transport/poller/poller.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kPages = 10000;
constexpr std::uint64_t kPageBytes = 64 << 10;
constexpr int kRounds = 200;

double cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// Address space only: nothing is read or written.
class Bytes final : public RegionMemory {
 public:
  MemoryKind kind() const override { return MemoryKind::kHost; }
  std::span<std::byte> bytes() const override {
    return {static_cast<std::byte*>(nullptr), kPages * kPageBytes};
  }
  const std::string& shared_name() const override { return name_; }

 private:
  std::string name_;
};

std::vector<std::byte> request_bytes() {
  std::vector<std::uint32_t> pages(kPages);
  std::iota(pages.begin(), pages.end(), 0u);
  std::vector<std::uint32_t> shuffled = pages;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(1));
  const auto blob = [](const std::vector<std::uint32_t>& list) {
    std::vector<std::uint8_t> bytes(list.size() * sizeof(std::uint32_t));
    std::memcpy(bytes.data(), list.data(), bytes.size());
    return nlohmann::json::binary(std::move(bytes));
  };
  const nlohmann::json request = {{"v", 1},
                                  {"id", 1},
                                  {"op", "transfer"},
                                  {"transfers",
                                   {{{"direction", "write"},
                                     {"region", "src"},
                                     {"targets", {{{"node", "b"}, {"region", "dst"}}}},
                                     {"layout",
                                      {{"kind", "pages"},
                                       {"page_bytes", kPageBytes},
                                       {"source_pages", blob(shuffled)},
                                       {"destination_pages", blob(pages)}}}}}}};
  const auto packed = nlohmann::json::to_msgpack(request);
  std::vector<std::byte> bytes(packed.size());
  std::memcpy(bytes.data(), packed.data(), packed.size());
  return bytes;
}

struct Cost {
  double decode_ns = 0;
  double plan_ns = 0;
  double poller_ns = 0;
};

std::shared_ptr<const Plan> decode_and_plan(const std::vector<std::byte>& message, Cost& cost) {
  const double start = cpu_ns();
  auto request = decode_request(message, nullptr);
  if (!request) {
    fmt::print("the request was refused: {}\n", request.error().error.message);
    std::exit(1);
  }
  const double decoded = cpu_ns();
  const auto& spec = std::get<TransferRequest>(request->body).transfers.front();
  auto plan = Plan::make(spec.layout, PlanLimits{});
  cost.decode_ns += decoded - start;
  cost.plan_ns += cpu_ns() - decoded;
  return *plan;
}

void run(PollerLoop& loop, TransferId id, std::shared_ptr<const Plan> plan,
         const std::shared_ptr<const RegisteredMemory>& memory, Cost& cost) {
  const double start = cpu_ns();
  StartTransfer transfer;
  transfer.transfer = id;
  transfer.plan = plan;
  transfer.local = memory;
  transfer.paths = {{1, 0, 0}};
  loop.execute(std::move(transfer));
  loop.execute(Grant{id, plan->bytes()});
  for (bool done = false; !done;) {
    loop.step();
    for (const auto& event : loop.take_events())
      if (const auto* idle = std::get_if<TransferIdle>(&event)) {
        done = true;
        if (!idle->complete) {
          fmt::print("the transfer failed: {}\n", idle->error ? idle->error->message : "stopped");
          std::exit(1);
        }
      }
  }
  loop.execute(EndTransfer{id});
  cost.poller_ns += cpu_ns() - start;
}

}  // namespace
}  // namespace penstock

int main() {
  using namespace penstock;
  const auto message = request_bytes();
  std::vector<std::unique_ptr<Nic>> nics;
  nics.push_back(std::make_unique<sim::InstantNic>());
  PollerLoop loop(std::move(nics), PollerOptions{});
  loop.execute(OpenLink{1, 0, {}, {std::byte{1}}});
  auto memory = std::make_shared<RegisteredMemory>();
  memory->memory = std::make_shared<Bytes>();
  memory->registrations = {std::make_shared<sim::InstantNic::Registration>()};

  std::vector<double> totals;
  Cost sum;
  for (int round = 0; round < kRounds; ++round) {
    Cost cost;
    const auto plan = decode_and_plan(message, cost);
    run(loop, static_cast<TransferId>(round + 1), plan, memory, cost);
    totals.push_back((cost.decode_ns + cost.plan_ns + cost.poller_ns) / kPages);
    sum.decode_ns += cost.decode_ns;
    sum.plan_ns += cost.plan_ns;
    sum.poller_ns += cost.poller_ns;
  }
  std::sort(totals.begin(), totals.end());
  const double per_page = 1.0 / kPages / kRounds;
  fmt::print("{} requests of {} pages, CPU ns per page outside libfabric\n", kRounds, kPages);
  fmt::print("  decode {:.2f}, check and plan {:.2f}, poller {:.2f}\n", sum.decode_ns * per_page,
             sum.plan_ns * per_page, sum.poller_ns * per_page);
  fmt::print("  in all: median {:.1f}, min {:.1f}, max {:.1f}\n", totals[totals.size() / 2],
             totals.front(), totals.back());
  return 0;
}

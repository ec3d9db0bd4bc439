// What a small transfer costs from the call to its acceptance by the ring, step by step and without
// other threads, and then from a client to a gateway of this process, both awake. Prints only.
//
//     submit_path_bench [WORDS OF A STEP, TO PROFILE IT ALONE]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "actors/gateway/gateway.hpp"
#include "actors/gateway/turns.hpp"
#include "actors/node/acceptance.hpp"
#include "actors/node/front_desk.hpp"
#include "actors/protocol/reply.hpp"
#include "client/cpp/penstock.hpp"
#include "client/cpp/wire.hpp"
#include "transport/ring/shared_ring.hpp"

namespace penstock {
namespace {

using Steady = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kRounds = 20'000;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::size_t kRingBytes = 256u << 10;
constexpr std::size_t kUnderWay =
    32;  // transfers of the ledger, as of a client that asks on and on

/// Of this thread, so that what else runs on the machine counts little.
double cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// The best of ten parts.
double ns_each(int rounds, const std::function<void()>& work) {
  constexpr int kParts = 10;
  double best = 1e18;
  for (int part = 0; part <= kParts; ++part) {
    const double start = cpu_ns();
    for (int i = 0; i < rounds / kParts; ++i) work();
    if (part > 0) best = std::min(best, (cpu_ns() - start) / (rounds / kParts));
  }
  return best;
}

std::vector<client::TransferSpec> spec_of(const std::vector<std::uint32_t>& pages) {
  client::TransferSpec spec{.region = "kv", .targets = {{"b", "kv"}}};
  spec.layout =
      client::Pages{.page_bytes = kPageBytes, .source_pages = pages, .destination_pages = pages};
  spec.lane = client::Lane::kUrgent;
  return {spec};
}

/// What the front desk has: regions, a ledger, rules that let everything in.
class Desk {
 public:
  Desk() {
    rules_.admission.node = "a";
    rules_.admission.takes_work = [](const std::string&) -> Result<void> { return {}; };
    auto region = std::make_shared<Region>();
    region->name = "kv";
    region->bytes = 1u << 20;
    regions_.publish(std::move(region));
  }
  std::vector<TransferId> accept(const Request& request) {
    const TimePoint now = Clock::now();
    auto accepted = penstock::accept(std::get<TransferRequest>(request.body), "client",
                                     {request.who, request.role}, rules_, regions_, ledger_,
                                     request.received, now);
    if (!accepted) {
      fmt::print("refused: {}\n", accepted.error().message);
      std::exit(1);
    }
    for (const TransferId id : accepted->ids) {
      if (id < kUnderWay) continue;
      TransferResult result;
      result.id = id - kUnderWay + 1;
      ledger_.end(std::move(result), now);
    }
    return std::move(accepted->ids);
  }

 private:
  RegionTable regions_;
  Ledger ledger_{{10min, 1000}, 1};
  AcceptanceRules rules_;
};

void print(const std::string& step, double ns) { fmt::print("  {:<44} {:>7.0f}\n", step, ns); }

/// `only`: of those whose words contain it, and many rounds, for a profiler.
void steps(std::uint32_t count, const std::string& only) {
  std::vector<std::uint32_t> pages(count);
  std::iota(pages.begin(), pages.end(), 0u);
  std::uint64_t id = 1000;
  const auto message = client::encode_transfer(id, spec_of(pages));
  fmt::print("a transfer of {} pages, {} bytes as msgpack; ns each\n", count, message.size());
  double sum = 0;
  const auto step = [&](const std::string& words, const std::function<void()>& work) {
    work();  // the next step needs what it makes
    if (words.find(only) == std::string::npos) return;
    const double ns = ns_each(only.empty() ? kRounds : 50 * kRounds, work);
    print(words, ns);
    sum += ns;
  };
  step("client: encode", [&] { client::encode_transfer(++id, spec_of(pages)); });

  auto segment = RingSegment::make(kRingBytes);
  RingWriter writer(segment->first.header().requests, segment->first.requests());
  RingReader reader(segment->first.header().requests, segment->first.requests());
  std::vector<std::byte> read;
  RingRecord kind{};
  step("ring: write, look whether to ring, read", [&] {
    writer.write(RingRecord::kMessage, std::as_bytes(std::span(message)));
    if (writer.must_ring()) std::abort();
    reader.read(kind, read);
  });
  step("gateway: decode", [&] {
    auto owner = std::make_shared<std::vector<std::byte>>(read);
    if (!decode_request(*owner, owner)) std::abort();
  });
  Turns turns({});
  auto owner = std::make_shared<std::vector<std::byte>>(read);
  auto decoded = decode_request(*owner, owner);
  step("gateway: its client's turn", [&] {
    turns.add("client", std::move(*decoded), message.size());
    auto next = turns.next();
    --next->load->under_way;
    *decoded = std::move(next->request);
  });
  Desk desk;
  step("front desk: check, accept, end an earlier one", [&] { desk.accept(*decoded); });
  std::vector<std::uint8_t> reply;
  step("gateway: encode the reply", [&] { reply = accepted_reply(id, {id}); });
  TransferResult result;
  result.node = "b";
  result.region = result.remote_region = "kv";
  result.direction = "write";
  result.lane = "urgent";
  result.path = "inline";
  step("client: read the reply", [&] {
    if (client::hear(reply).ids.size() != 1) std::abort();
  });
  if (only.empty()) print("sum", sum);
  std::vector<std::uint8_t> event;
  step("later, service: encode the end", [&] { event = transfer_event(result, ++id); });
  step("later, client: read the end", [&] {
    if (!client::hear(event).ended) std::abort();
  });
}

/// A gateway that accepts at once, and a client that waits awake.
class RoundTrip {
 public:
  RoundTrip() {
    std::string pattern = std::filesystem::temp_directory_path() / "submit-path-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    descriptors_ = *DescriptorSocket::start(folder_ / "fd");
    Gateway::Setup setup;
    setup.bind = {"ipc://" + (folder_ / "requests").string()};
    setup.rings = 1;
    setup.descriptors = descriptors_;
    setup.at_once = [this](const ClientId& client, Request& request) {
      if (!std::holds_alternative<TransferRequest>(request.body)) return false;
      gateway_->send_packed(client, accepted_reply(request.id, desk_.accept(request)));
      return true;
    };
    setup.sink = [this](const ClientId& client, const Request& request) { hello(client, request); };
    gateway_ = std::move(*Gateway::start(std::move(setup)));
    started_ = true;
  }
  ~RoundTrip() {
    gateway_.reset();
    std::filesystem::remove_all(folder_);
  }
  void run(std::uint32_t count) {
    client::Client client({.endpoint = gateway_->endpoints().front(), .spin_us = 5000});
    while (!client.has_ring()) std::this_thread::sleep_for(1ms);
    std::vector<std::uint32_t> pages(count);
    std::iota(pages.begin(), pages.end(), 0u);
    std::vector<double> us;
    for (int i = 0; i < kRounds; ++i) {
      const auto start = Steady::now();
      client.transfer(spec_of(pages).front());
      us.push_back(std::chrono::duration<double, std::micro>(Steady::now() - start).count());
    }
    std::ranges::sort(us);
    fmt::print(
        "from the call to `accepted`, {} pages, gateway and client of one process, us: p10 {:.2f}, "
        "p50 {:.2f}, p99 {:.2f}\n",
        count, us[us.size() / 10], us[us.size() / 2], us[us.size() * 99 / 100]);
  }

 private:
  void hello(const ClientId& client, const Request& request) {
    while (!started_) std::this_thread::yield();
    nlohmann::json body{{"node", "a"}, {"incarnation", 1}, {"ring", {{"version", kRingVersion}}}};
    const auto* hello = std::get_if<HelloRequest>(&request.body);
    if (hello != nullptr && hello->ring_token != 0) {
      body["ring"]["socket"] = descriptors_->path().string();
      body["ring"]["token"] = hello->ring_token;
    }
    gateway_->send(client, ok_reply(request.id, std::move(body)));
  }

  std::filesystem::path folder_;
  std::shared_ptr<DescriptorSocket> descriptors_;
  Desk desk_;
  std::atomic<bool> started_{false};
  std::unique_ptr<Gateway> gateway_;
};

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  for (const std::uint32_t pages : {1u, 64u}) penstock::steps(pages, only);
  if (!only.empty()) return 0;
  penstock::RoundTrip round_trip;
  for (const std::uint32_t pages : {1u, 64u}) round_trip.run(pages);
  return 0;
}

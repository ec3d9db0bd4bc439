// The rig's load: keeps transfers of random pages in flight from each device of one service to the
// same device of another. Driven by rig.py over lines on standard input; answers in lines of JSON.
//
//   rig_load SOURCE_ENDPOINT TARGET_ENDPOINT '{"devices": [..], "region_bytes": .., "page_bytes":
//   ..,
//            "transfer_bytes": .., "in_flight": .., "verify": false}'
//     -> {} when the regions are there; then
//   go                 starts the load, or goes on with it
//   sample             -> "t_*" (monotonic seconds), both services' status, the interfaces'
//   counters
//                         (of the namespace that this runs in), and what became of the transfers
//   net                -> the interfaces' counters only
//   urgent COUNT GAP   one small urgent transfer every GAP ms -> {"count", "p50_us", "p99_us", ..}
//   stop               asks for nothing more and waits for the ends; answers as sample does
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "client/cpp/penstock.hpp"
#include "client/workload/measurement.hpp"
#include "client/workload/page_check.hpp"
#include "client/workload/statistics.hpp"

namespace penstock::rig {
namespace {

using client::Client;
using client::MapMemory;
using client::TransferResult;
using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t kDeadlineMs = 60'000;
constexpr std::chrono::seconds kConnectPatience{30};
constexpr std::uint64_t kSmallBytes = 4096;
constexpr std::uint32_t kSmallPages = 256;
constexpr std::size_t kErrorsKept = 5;
/// A load that only fails would fail as fast as it can.
constexpr std::uint64_t kFailuresAtMost = 1000;

double steady_seconds() {
  return std::chrono::duration<double>(SteadyClock::now().time_since_epoch()).count();
}

/// The far service must have answered before the load begins.
void await_connected(Client& client, const std::string& node) {
  const auto end = SteadyClock::now() + kConnectPatience;
  for (;;) {
    for (const auto& each : client.nodes())
      if (each.name == node && each.state == "connected") return;
    if (SteadyClock::now() > end)
      throw std::runtime_error(
          fmt::format("{} does not get connected to {}", client.service().node, node));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

/// Received bytes and packets by interface, as the kernel of this namespace counts them.
nlohmann::json interface_counters() {
  auto counters = nlohmann::json::object();
  std::ifstream file("/proc/net/dev");
  std::string line;
  while (std::getline(file, line)) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream words(line.substr(colon + 1));
    std::uint64_t bytes = 0, packets = 0;
    words >> bytes >> packets;
    const auto begin = line.find_first_not_of(' ');
    counters[line.substr(begin, colon - begin)] = {bytes, packets};
  }
  return counters;
}

struct Options {
  std::vector<std::string> devices;
  std::uint64_t region_bytes = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t transfer_bytes = 0;
  std::size_t in_flight = 0;
  bool verify = false;
};

/// What became of the transfers so far. Any thread.
struct Tally {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t out = 0;
  std::uint64_t done = 0;
  std::uint64_t done_bytes = 0;
  std::uint64_t failed = 0;
  std::uint64_t verified_pages = 0;
  std::uint64_t wrong_pages = 0;
  std::vector<std::string> errors;

  nlohmann::json json() {
    const std::lock_guard lock(mutex);
    return {{"out", out},
            {"done", done},
            {"done_bytes", done_bytes},
            {"failed", failed},
            {"verified_pages", verified_pages},
            {"wrong_pages", wrong_pages},
            {"errors", errors}};
  }
};

/// The pages of a device, moved again and again. Each slot has one transfer in flight, and pages of
/// the destination that no other slot writes, so that they can be verified when it ends.
class DeviceLoad {
 public:
  struct Slot {
    DeviceLoad* load = nullptr;
    std::vector<std::uint32_t> own;  // of the destination
    std::vector<std::uint32_t> from, to;
    std::mt19937_64 random;
  };

  DeviceLoad(Client& source, Client& target, const std::string& device, const Options& options,
             std::uint64_t seed)
      : source_client_(source), target_client_(target), options_(options) {
    source_ = source.allocate("rig.from." + device, options.region_bytes, device, MapMemory::kNo);
    target_ = target.allocate("rig.to." + device, options.region_bytes, device, MapMemory::kNo);
    source.fill(source_.name(), seed);
    target.fill(target_.name(), ~seed);
    if (options.verify)
      digests_ =
          workload::digest_region(source, source_.name(), options.page_bytes, options.region_bytes);
    pages_ = static_cast<std::uint32_t>(options.region_bytes / options.page_bytes);
    std::vector<std::uint32_t> pages(pages_);
    for (std::uint32_t i = 0; i < pages_; ++i) pages[i] = i;
    std::mt19937_64 random(seed);
    std::shuffle(pages.begin(), pages.end(), random);
    const auto per_slot = pages_ / options.in_flight;
    for (std::size_t i = 0; i < options.in_flight; ++i) {
      auto slot = std::make_unique<Slot>();
      slot->load = this;
      slot->own.assign(pages.begin() + static_cast<std::ptrdiff_t>(i * per_slot),
                       pages.begin() + static_cast<std::ptrdiff_t>((i + 1) * per_slot));
      slot->random.seed(seed + i);
      slots_.push_back(std::move(slot));
    }
  }

  std::vector<std::unique_ptr<Slot>>& slots() { return slots_; }

  client::Transfer submit(Slot& slot) {
    const auto count =
        std::min<std::size_t>(options_.transfer_bytes / options_.page_bytes, slot.own.size());
    std::shuffle(slot.own.begin(), slot.own.end(), slot.random);
    slot.to.assign(slot.own.begin(), slot.own.begin() + static_cast<std::ptrdiff_t>(count));
    slot.from.resize(count);
    for (auto& page : slot.from) page = static_cast<std::uint32_t>(slot.random() % pages_);
    client::TransferSpec spec;
    spec.region = source_.name();
    spec.targets = {{target_client_.service().node, target_.name(), target_.epoch()}};
    spec.layout = client::Pages{
        .page_bytes = options_.page_bytes, .source_pages = slot.from, .destination_pages = slot.to};
    spec.deadline_ms = kDeadlineMs;
    return source_client_.submit(spec);
  }

  /// How many pages of the slot's last transfer are not what they should be.
  std::size_t wrong_pages(const Slot& slot) {
    const auto found =
        workload::digest_pages(target_client_, target_.name(), options_.page_bytes, slot.to);
    return workload::compare_pages(slot.from, slot.to, digests_, found).size();
  }

 private:
  Client& source_client_;
  Client& target_client_;
  const Options& options_;
  client::Region source_, target_;
  std::uint32_t pages_ = 0;
  std::vector<std::uint64_t> digests_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

class Load {
 public:
  Load(const std::string& source, const std::string& target, const Options& options)
      : options_(options),
        source_({.endpoint = source, .client = "rig load"}),
        target_({.endpoint = target, .client = "rig load"}) {
    await_connected(source_, target_.service().node);
    for (std::size_t i = 0; i < options.devices.size(); ++i)
      devices_.push_back(
          std::make_unique<DeviceLoad>(source_, target_, options.devices[i], options_, i + 1));
    small_from_ = source_.allocate("rig.small.from", kSmallPages * kSmallBytes,
                                   options.devices.front(), MapMemory::kNo);
    small_to_ = target_.allocate("rig.small.to", kSmallPages * kSmallBytes, options.devices.front(),
                                 MapMemory::kNo);
    if (options.verify) verifier_ = std::thread([this] { verify(); });
  }
  ~Load() {
    {
      const std::lock_guard lock(tally_.mutex);
      going_ = false;
      closing_ = true;
      tally_.changed.notify_all();
    }
    if (verifier_.joinable()) verifier_.join();
  }

  void go() {
    {
      const std::lock_guard lock(tally_.mutex);
      if (std::exchange(going_, true)) return;
    }
    for (const auto& device : devices_)
      for (const auto& slot : device->slots()) start(*slot);
  }

  /// False: some transfers have not ended.
  bool stop() {
    std::unique_lock lock(tally_.mutex);
    going_ = false;
    return tally_.changed.wait_for(lock, std::chrono::milliseconds(2 * kDeadlineMs),
                                   [&] { return tally_.out == 0; });
  }

  nlohmann::json sample() {
    nlohmann::json sample;
    const auto before = steady_seconds();
    sample["source"] = nlohmann::json::parse(source_.status());
    sample["t_source"] = (before + steady_seconds()) / 2;
    sample["net"] = interface_counters();
    sample["t_net"] = steady_seconds();
    sample["target"] = nlohmann::json::parse(target_.status());
    sample["transfers"] = tally_.json();
    return sample;
  }

  nlohmann::json urgent(std::size_t count, std::chrono::milliseconds gap) {
    std::vector<double> us;
    std::size_t failed = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<std::uint32_t> page{static_cast<std::uint32_t>(i % kSmallPages)};
      client::TransferSpec spec;
      spec.region = small_from_.name();
      spec.targets = {{target_.service().node, small_to_.name(), small_to_.epoch()}};
      spec.layout =
          client::Pages{.page_bytes = kSmallBytes, .source_pages = page, .destination_pages = page};
      spec.deadline_ms = kDeadlineMs;
      spec.lane = client::Lane::kUrgent;
      const auto begin = SteadyClock::now();
      const auto result = source_.submit(spec).wait();
      us.push_back(std::chrono::duration<double, std::micro>(SteadyClock::now() - begin).count());
      if (!result.done()) ++failed;
      std::this_thread::sleep_for(gap);
    }
    auto json = workload::to_json_us(workload::latency_of(std::move(us)));
    json["failed"] = failed;
    return json;
  }

 private:
  void start(DeviceLoad::Slot& slot) {
    {
      const std::lock_guard lock(tally_.mutex);
      ++tally_.out;
    }
    slot.load->submit(slot).on_done(
        [this, &slot](const TransferResult& result) { ended(slot, result); });
  }

  /// On a client's thread.
  void ended(DeviceLoad::Slot& slot, const TransferResult& result) {
    std::unique_lock lock(tally_.mutex);
    if (result.done()) {
      ++tally_.done;
      tally_.done_bytes += result.bytes;
      if (options_.verify) {
        to_verify_.push_back(&slot);  // still out
        tally_.changed.notify_all();
        return;
      }
    } else {
      ++tally_.failed;
      if (tally_.errors.size() < kErrorsKept)
        tally_.errors.push_back(fmt::format("{} {} {}", client::name_of(result.state),
                                            result.error_code, result.error_message));
    }
    next(slot, lock);
  }

  void next(DeviceLoad::Slot& slot, std::unique_lock<std::mutex>& lock) {
    --tally_.out;
    const bool more = going_ && tally_.failed < kFailuresAtMost;
    tally_.changed.notify_all();
    lock.unlock();
    if (more) start(slot);
  }

  void verify() {
    for (;;) {
      std::unique_lock lock(tally_.mutex);
      tally_.changed.wait(lock, [&] { return closing_ || !to_verify_.empty(); });
      if (to_verify_.empty()) return;
      DeviceLoad::Slot& slot = *to_verify_.front();
      to_verify_.pop_front();
      lock.unlock();
      std::size_t wrong = slot.to.size();
      std::string error;
      try {
        wrong = slot.load->wrong_pages(slot);
      } catch (const client::Error& problem) {
        error = problem.what();
      }
      lock.lock();
      tally_.verified_pages += slot.to.size();
      tally_.wrong_pages += wrong;
      if (!error.empty() && tally_.errors.size() < kErrorsKept) tally_.errors.push_back(error);
      next(slot, lock);
    }
  }

  const Options options_;
  Tally tally_;
  std::deque<DeviceLoad::Slot*> to_verify_;  // under the tally's mutex, as the two flags are
  bool going_ = false;
  bool closing_ = false;
  Client source_, target_;
  std::vector<std::unique_ptr<DeviceLoad>> devices_;
  client::Region small_from_, small_to_;
  std::thread verifier_;
};

void answer(const nlohmann::json& json) { std::cout << json.dump() << std::endl; }

int serve(const std::string& source, const std::string& target, const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Options options;
  options.devices = json.at("devices").get<std::vector<std::string>>();
  options.region_bytes = json.at("region_bytes");
  options.page_bytes = json.at("page_bytes");
  options.transfer_bytes = json.at("transfer_bytes");
  options.in_flight = json.at("in_flight");
  options.verify = json.at("verify");
  Load load(source, target, options);
  answer(nlohmann::json::object());
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "go") {
      load.go();
      answer(nlohmann::json::object());
    } else if (command == "sample") {
      answer(load.sample());
    } else if (command == "net") {
      const auto counters = interface_counters();
      answer({{"net", counters}, {"t_net", steady_seconds()}});
    } else if (command == "urgent") {
      std::size_t count = 0;
      std::int64_t gap = 0;
      words >> count >> gap;
      answer(load.urgent(count, std::chrono::milliseconds(gap)));
    } else if (command == "stop") {
      const bool all = load.stop();
      auto sample = load.sample();
      sample["all_ended"] = all;
      answer(sample);
    } else {
      answer({{"error", "unknown command " + command}});
    }
  }
  return 0;
}

}  // namespace
}  // namespace penstock::rig

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "rig_load is started by ./dev rig\n");
    return 2;
  }
  try {
    return penstock::rig::serve(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "rig_load: {}\n", error.what());
    return 1;
  }
}

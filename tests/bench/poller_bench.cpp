// How much of a bare libfabric loop the poller reaches: the same provider, window and pages, in
// turns, two processes on this machine. Prints a line per turn, then ratio and spread.
//
//   poller_bench [provider] [page bytes] [turns] [region MiB] [MiB per turn]
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>

#include "transport/bench/raw_loop.hpp"
#include "transport/bench/raw_memory.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/poller/poller.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

struct Settings {
  std::string provider = "tcp";
  std::uint64_t page_bytes = 64 * 1024;
  int turns = 7;
  std::uint64_t region_bytes = 1u << 30;
  std::uint64_t turn_bytes = 1u << 30;
};

template <class T>
T check(Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "{}\n", result.error().message);
  std::exit(1);
}

void check(Result<void> result) {
  if (result) return;
  fmt::print(stderr, "{}\n", result.error().message);
  std::exit(1);
}

/// The same kind on both sides.
RawMemory memory_of(const Settings& settings) {
  return check(RawMemory::allocate(settings.region_bytes, HugePages::kAuto));
}

CardRequest card_of(const Settings& settings) {
  CardRequest request;
  request.provider = settings.provider;
  if (settings.provider == "tcp") request.domain = "lo";
  return request;
}

RawOptions raw_of(const Settings& settings) {
  RawOptions options;
  options.provider = settings.provider;
  if (settings.provider == "tcp") options.domain = "lo";
  return options;
}

Poller::Setup setup_of(const Settings& settings, const char* name, std::function<void()> doorbell) {
  Poller::Setup setup;
  setup.name = name;
  setup.doorbell = std::move(doorbell);
  setup.open_cards = [request = card_of(settings)]() -> Result<std::vector<std::unique_ptr<Nic>>> {
    auto nic = open_card(request);
    if (!nic) return tl::unexpected(nic.error());
    std::vector<std::unique_ptr<Nic>> nics;
    nics.push_back(std::move(*nic));
    return nics;
  };
  return setup;
}

struct TargetWords {
  std::uint64_t control_size, inbound_size, key, base;
  std::byte control[256], inbound[256];
};

/// A child that runs `life` on the child's ends of two pipes; returns the parent's ends.
struct Child {
  pid_t pid;
  int commands;
  int replies;
};
template <class Life>
Child start_child(Life life) {
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) std::exit(1);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(down[1]);
    close(up[0]);
    _exit(life(down[0], up[1]));
  }
  close(down[0]);
  close(up[1]);
  return {pid, down[1], up[0]};
}

int serve_poller(const Settings& settings, int commands, int replies) {
  const auto memory = memory_of(settings);
  auto poller = check(Poller::start(setup_of(settings, "bench-target", {})));
  auto& nic = poller->nic(0);
  const auto registration = check(nic.register_memory(memory.bytes()));
  TargetWords words{};
  const auto control = nic.control_address();
  const auto inbound = nic.inbound_address();
  words.control_size = control.size();
  words.inbound_size = inbound.size();
  std::memcpy(words.control, control.data(), control.size());
  std::memcpy(words.inbound, inbound.data(), inbound.size());
  words.key = registration->key();
  words.base = registration->remote_base();
  if (write(replies, &words, sizeof words) != sizeof words) return 1;
  char byte = 0;
  while (read(commands, &byte, 1) > 0) {
    const auto cpu = poller->cpu_time().count();
    if (write(replies, &cpu, sizeof cpu) != sizeof cpu) return 1;
  }
  return 0;
}

/// One transfer at a time, granted as a device actor would: quanta, two ahead.
class PollerRun {
 public:
  static constexpr std::uint64_t kQuantum = 8u << 20;

  PollerRun(const Settings& settings, const TargetWords& target)
      : memory_(memory_of(settings)),
        poller_(check(Poller::start(setup_of(settings, "bench-poller", [this] {
          const std::lock_guard lock(mutex_);
          rung_ = true;
          condition_.notify_one();
        })))) {
    region_ = std::make_shared<RegisteredMemory>();
    region_->memory = memory_.memory();
    region_->registrations.push_back(
        check(poller_->nic(0).register_memory(region_->memory->bytes())));
    poller_->push(OpenLink{1,
                           0,
                           {target.control, target.control + target.control_size},
                           {target.inbound, target.inbound + target.inbound_size}});
    path_ = {1, target.base, target.key};
  }

  RawRun run(std::shared_ptr<const Plan> plan) {
    RawRun run;
    run.bytes = plan->bytes();
    run.operations = plan->chunks();
    const auto cpu = poller_->cpu_time();
    const auto start = std::chrono::steady_clock::now();
    StartTransfer command;
    command.transfer = ++transfer_;
    command.plan = std::move(plan);
    command.local = region_;
    command.paths = {path_};
    poller_->push(std::move(command));
    poller_->push(Grant{transfer_, kQuantum});
    poller_->push(Grant{transfer_, kQuantum});
    for (bool done = false; !done;) {
      wait();
      for (const auto& event : poller_->take_events()) {
        if (std::holds_alternative<QuantumDone>(event)) poller_->push(Grant{transfer_, kQuantum});
        if (const auto* idle = std::get_if<TransferIdle>(&event)) {
          if (!idle->complete) {
            fmt::print(stderr, "failed: {}\n", idle->error ? idle->error->message : "stopped");
            std::exit(1);
          }
          done = true;
        }
      }
    }
    run.elapsed = std::chrono::steady_clock::now() - start;
    run.cpu = poller_->cpu_time() - cpu;
    poller_->push(EndTransfer{transfer_});
    return run;
  }

  std::chrono::nanoseconds cpu_time() const { return poller_->cpu_time(); }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    if (!condition_.wait_for(lock, 30s, [&] { return rung_; })) {
      fmt::print(stderr, "nothing happened for 30 s\n");
      std::exit(1);
    }
    rung_ = false;
  }

  std::mutex mutex_;
  std::condition_variable condition_;
  bool rung_ = false;
  TransferId transfer_ = 0;
  RawMemory memory_;
  std::shared_ptr<RegisteredMemory> region_;
  RemotePath path_;
  std::unique_ptr<Poller> poller_;
};

std::vector<std::uint32_t> random_pages(const Settings& settings, std::mt19937_64& random) {
  std::vector<std::uint32_t> pages(settings.region_bytes / settings.page_bytes);
  std::iota(pages.begin(), pages.end(), 0u);
  std::shuffle(pages.begin(), pages.end(), random);
  pages.resize(std::min<std::size_t>(pages.size(), settings.turn_bytes / settings.page_bytes));
  return pages;
}

double gbps(const RawRun& run) {
  return 8.0 * static_cast<double>(run.bytes) / static_cast<double>(run.elapsed.count());
}

double cpu_per_write_ns(const RawRun& run) {
  return static_cast<double>(run.cpu.count()) / static_cast<double>(run.operations);
}

int bench(const Settings& settings) {
  const Child raw_child = start_child([&](int commands, int replies) {
    return serve_raw_target(raw_of(settings), settings.region_bytes, commands, replies);
  });
  const Child poller_child = start_child(
      [&](int commands, int replies) { return serve_poller(settings, commands, replies); });
  std::optional<RawTargetControl> raw_target(std::in_place, raw_child.commands, raw_child.replies);
  const auto description = check(raw_target->description(60s));
  TargetWords words{};
  if (read(poller_child.replies, &words, sizeof words) != sizeof words) return 1;

  const auto raw_memory = memory_of(settings);
  auto raw = check(RawInitiator::open(raw_of(settings), raw_memory.bytes(), description));
  PollerRun poller(settings, words);

  std::mt19937_64 random(1);
  std::vector<double> ratios;
  for (int turn = 0; turn < settings.turns; ++turn) {
    const auto source = random_pages(settings, random);
    const auto destination = random_pages(settings, random);
    std::vector<RawOperation> operations;
    for (std::size_t i = 0; i < source.size(); ++i)
      operations.push_back({source[i] * settings.page_bytes, destination[i] * settings.page_bytes,
                            settings.page_bytes});
    Pages pages;
    pages.row_bytes = pages.source_stride = pages.destination_stride = settings.page_bytes;
    pages.source_pages = BlobList<std::uint32_t>::of(source);
    pages.destination_pages = BlobList<std::uint32_t>::of(destination);
    PlanLimits limits;
    limits.max_chunk_bytes = settings.page_bytes;
    limits.merge = false;
    const auto plan = check(Plan::make(std::move(pages), limits));

    RawRun raw_run, poller_run;
    const auto do_raw = [&] {
      check(raw_target->start(10s));
      raw_run = check(raw->run(operations, Direction::kWrite));
      check(raw_target->stop(10s));
    };
    // In turns, each first every other time: what warms up or throttles hits both.
    if (turn % 2 == 0) do_raw();
    poller_run = poller.run(plan);
    if (turn % 2 == 1) do_raw();
    const double ratio = gbps(poller_run) / gbps(raw_run);
    fmt::print(
        "turn {}: raw {:6.2f} Gbps {:7.0f} ns/write | poller {:6.2f} Gbps {:7.0f} ns/write "
        "| ratio {:.3f}\n",
        turn, gbps(raw_run), cpu_per_write_ns(raw_run), gbps(poller_run),
        cpu_per_write_ns(poller_run), ratio);
    if (turn > 0) ratios.push_back(ratio);  // the first one connects and touches
  }
  std::sort(ratios.begin(), ratios.end());
  if (!ratios.empty())
    fmt::print("{} {} B pages: ratio median {:.3f}, from {:.3f} to {:.3f}\n", settings.provider,
               settings.page_bytes, ratios[ratios.size() / 2], ratios.front(), ratios.back());

  const auto before = poller.cpu_time();
  char byte = 0;
  std::int64_t target_before = 0, target_after = 0;
  const auto target_cpu = [&](std::int64_t& into) {
    return write(poller_child.commands, &byte, 1) == 1 &&
           read(poller_child.replies, &into, sizeof into) == sizeof into;
  };
  if (!target_cpu(target_before)) return 1;
  std::this_thread::sleep_for(3s);
  if (!target_cpu(target_after)) return 1;
  fmt::print("idle for 3 s: initiator {:.3f} %, target {:.3f} % of a core\n",
             static_cast<double>((poller.cpu_time() - before).count()) / 3e7,
             static_cast<double>(target_after - target_before) / 3e7);
  // At the end of its pipe a child takes its memory back; the later one holds the earlier one's.
  close(poller_child.commands);
  waitpid(poller_child.pid, nullptr, 0);
  raw_target.reset();
  waitpid(raw_child.pid, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  penstock::Settings settings;
  if (argc > 1) settings.provider = argv[1];
  if (argc > 2) settings.page_bytes = std::stoull(argv[2]);
  if (argc > 3) settings.turns = std::stoi(argv[3]);
  if (argc > 4) settings.region_bytes = std::stoull(argv[4]) << 20;
  if (argc > 5) settings.turn_bytes = std::stoull(argv[5]) << 20;
  if (settings.page_bytes == 0 || settings.page_bytes > settings.region_bytes) return 2;
  return penstock::bench(settings);
}

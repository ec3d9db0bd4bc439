// penstock traffic: verified transfers from one node to all the others, for as long as it runs,
// while members come and go. One such process beside each service makes the load of a cluster
// scenario.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "apps/penstock/commands.hpp"
#include "client/cli/quantity.hpp"
#include "client/cli/usage_error.hpp"
#include "client/workload/member_view.hpp"
#include "client/workload/traffic_tally.hpp"

namespace penstock::app {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using SteadyClock = std::chrono::steady_clock;
using State = client::TransferResult::State;
using workload::MemberView;
using workload::TrafficTally;

constexpr auto kLookEvery = 100ms;
constexpr auto kTallyEvery = 500ms;
constexpr auto kProbeEvery = 50ms;
/// A member's restart is known here after so long at the latest.
constexpr auto kNewsTravels = 4s;
constexpr std::uint32_t kProbeDeadlineMs = 2000;
constexpr std::uint32_t kAwayAfterMs = 1000;
/// Longer than any pause of a service: what it was asked before it may still do after it, and pages
/// must not be written to again before that.
constexpr std::uint32_t kSilenceMs = 180000;
constexpr const char* kInbox = "traffic.in";

struct TrafficArguments {
  std::string page_text = "64KiB";
  std::uint32_t pages = 8;
  std::uint32_t workers = 2;
  std::uint32_t slots = 16;
  std::uint32_t slot = 0;
  std::string pause = "50ms";
  std::string deadline = "10s";
  double seconds = 0;
  std::uint64_t seed = 1;
  bool until_eof = false;
  bool mixed = false;

  std::uint64_t page_bytes() const { return cli::parse_bytes(page_text); }
  /// Pages of the inbox that one worker of one node writes to.
  std::uint32_t share() const { return 2 * pages; }
  /// Pages of the outbox that one worker sends.
  std::uint32_t source_pages() const { return 16 * pages; }
  std::uint64_t inbox_pages() const { return std::uint64_t{slots} * workers * share(); }
  /// What is read back, a share for each worker; the last page is for probes.
  std::uint64_t back_pages() const { return std::uint64_t{workers} * pages + 1; }
  std::uint64_t outbox_pages() const { return std::uint64_t{workers} * source_pages(); }
};

std::int64_t unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::atomic<bool> work_over{false};

/// A JSON line on standard output; whole lines, whoever says them.
void say(const char* event, json body) {
  static std::mutex mutex;
  body["event"] = event;
  body["unix_ms"] = unix_ms();
  std::lock_guard lock(mutex);
  std::cout << body.dump() << std::endl;
}

/// Memory of our own, which outlives the service.
class Outbox {
 public:
  Outbox(std::uint64_t bytes, std::uint64_t seed)
      : name_(fmt::format("/penstock-traffic-{}", ::getpid())), bytes_(bytes) {
    const int fd = ::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0)
      throw Exit(ExitCode::kFailed, fmt::format("no shared memory: {}", std::strerror(errno)));
    memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (memory_ == MAP_FAILED)
      throw Exit(ExitCode::kFailed, fmt::format("mmap: {}", std::strerror(errno)));
    std::mt19937_64 random(seed);
    auto* words = static_cast<std::uint64_t*>(memory_);
    for (std::uint64_t i = 0; i < bytes / sizeof *words; ++i) words[i] = random();
  }
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;
  ~Outbox() {
    ::munmap(memory_, bytes_);
    ::shm_unlink(name_.c_str());
  }
  const std::string& name() const { return name_; }
  std::uint64_t bytes() const { return bytes_; }
  const std::byte* data() const { return static_cast<const std::byte*>(memory_); }

 private:
  std::string name_;
  std::uint64_t bytes_;
  void* memory_ = nullptr;
};

class Traffic {
 public:
  Traffic(client::Client& client, const TrafficArguments& arguments)
      : client_(client),
        arguments_(arguments),
        page_bytes_(arguments.page_bytes()),
        deadline_ms_(static_cast<std::uint32_t>(cli::parse_duration_ms(arguments.deadline))),
        pause_(cli::parse_duration_ms(arguments.pause)),
        outbox_(arguments.outbox_pages() * page_bytes_, arguments.seed * 1000 + arguments.slot) {
    out_ = client.register_region("traffic.out", outbox_.name(), 0, outbox_.bytes());
    back_ = client.allocate("traffic.back", arguments.back_pages() * page_bytes_);
    in_ =
        client.allocate(kInbox, arguments.inbox_pages() * page_bytes_, "", client::MapMemory::kNo);
  }

  void run();
  std::uint64_t wrong_pages_in_all() const { return tally_.wrong_pages(); }

 private:
  void work(std::uint32_t worker);
  void probe();
  void look();
  client::TransferResult move(client::TransferSpec spec);
  void write_and_check(std::uint32_t worker, std::mt19937_64& random);
  std::uint32_t mixed_pages(std::mt19937_64& random) const;
  std::uint64_t wrong_pages(std::uint32_t worker, const std::vector<std::uint32_t>& sent) const;
  bool over() const { return interrupted() || work_over || SteadyClock::now() >= end_; }

  client::Client& client_;
  const TrafficArguments arguments_;
  const std::uint64_t page_bytes_;
  const std::uint32_t deadline_ms_;
  const std::chrono::milliseconds pause_;
  Outbox outbox_;
  client::Region out_, back_, in_;
  SteadyClock::time_point end_ = SteadyClock::time_point::max();
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> moves_{0};
  TrafficTally tally_;
  MemberView view_;
};

client::TransferResult Traffic::move(client::TransferSpec spec) {
  spec.deadline_ms = deadline_ms_;
  // A service that stood still may lose the connection, and the answer with it: asked again by key.
  spec.key = fmt::format("{}-{}", ::getpid(), ++moves_);
  tally_.submitted();
  const auto node = spec.targets.front().node;
  const bool write = spec.direction == client::Direction::kWrite;
  auto result = client_.submit(spec).wait();
  tally_.ended(result);
  if (!result.done())
    say("not_done",
        {{"to", node},
         {"direction", write ? "write" : "read"},
         {"id", result.id},
         {"state", client::name_of(result.state)},
         {"remote",
          result.remote == client::TransferResult::Remote::kQuiet ? "quiet" : "unreachable"},
         {"code", result.error_code},
         {"message", result.error_message}});
  return result;
}

/// Pages of `back` that are not what was sent.
std::uint64_t Traffic::wrong_pages(std::uint32_t worker,
                                   const std::vector<std::uint32_t>& sent) const {
  const auto* back = back_.data().data() + std::uint64_t{worker} * arguments_.pages * page_bytes_;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < sent.size(); ++i)
    if (std::memcmp(back + i * page_bytes_, outbox_.data() + sent[i] * page_bytes_, page_bytes_) !=
        0)
      ++wrong;
  return wrong;
}

/// Most transfers of a cluster are small, and a few are all pages.
std::uint32_t Traffic::mixed_pages(std::mt19937_64& random) const {
  const auto kind = random() % 100;
  const std::uint32_t most = kind < 70 ? 4 : kind < 98 ? 64 : arguments_.pages;
  return kind == 99 ? arguments_.pages
                    : 1 + static_cast<std::uint32_t>(random() % std::min(most, arguments_.pages));
}

/// Some are urgent, some tell their owner, some are compared by the services too.
void mix(client::TransferSpec& spec, std::mt19937_64& random) {
  if (random() % 4 == 0) spec.lane = client::Lane::kUrgent;
  if (random() % 4 == 0) spec.notify = "traffic";
  spec.verify = random() % 8 == 0;
  spec.weight = 1 + static_cast<std::uint32_t>(random() % 3);
}

/// `count` different ones of the `size` pages from `first` on, in random order.
std::vector<std::uint32_t> some_of(std::uint32_t size, std::uint32_t first, std::uint32_t count,
                                   std::mt19937_64& random) {
  std::vector<std::uint32_t> pages(size);
  std::iota(pages.begin(), pages.end(), first);
  for (std::uint32_t i = 0; i < count; ++i) std::swap(pages[i], pages[i + random() % (size - i)]);
  pages.resize(count);
  return pages;
}

void Traffic::write_and_check(std::uint32_t worker, std::mt19937_64& random) {
  const auto target = view_.pick(random);
  if (!target) return;
  const auto& [node, incarnation] = *target;
  const auto pages = arguments_.mixed ? mixed_pages(random) : arguments_.pages;
  // Random pages of ours to random places of our share of the other's inbox.
  const auto from =
      some_of(arguments_.source_pages(), worker * arguments_.source_pages(), pages, random);
  const auto there =
      some_of(arguments_.share(),
              (arguments_.slot * arguments_.workers + worker) * arguments_.share(), pages, random);
  std::vector<std::uint32_t> back(pages);
  std::iota(back.begin(), back.end(), worker * arguments_.pages);

  client::TransferSpec write;
  write.region = out_.name();
  write.targets = {{node, kInbox}};
  write.layout =
      client::Pages{.page_bytes = page_bytes_, .source_pages = from, .destination_pages = there};
  if (arguments_.mixed) mix(write, random);
  if (const auto result = move(write); !result.done()) return view_.doubt(node);

  auto* mine = back_.data().data() + std::uint64_t{worker} * arguments_.pages * page_bytes_;
  std::memset(mine, 0x5a, pages * page_bytes_);
  client::TransferSpec read;
  read.direction = client::Direction::kRead;
  read.region = back_.name();
  read.targets = {{node, kInbox}};
  read.layout =
      client::Pages{.page_bytes = page_bytes_, .source_pages = there, .destination_pages = back};
  if (arguments_.mixed) mix(read, random);
  if (const auto result = move(read); !result.done()) {
    view_.doubt(node);
    return tally_.checked(pages, TrafficTally::Check::kNotPossible);
  }
  const auto wrong = wrong_pages(worker, from);
  if (wrong == 0) {
    tally_.checked(pages, TrafficTally::Check::kRight);
    if (view_.first(node, incarnation)) say("first", {{"to", node}, {"incarnation", incarnation}});
    return;
  }
  // Memory of another life of the other node, or of our service, is no wrong page.
  const auto ours = client_.service().incarnation;
  std::this_thread::sleep_for(kNewsTravels);
  if (!view_.has(node, incarnation) || client_.service().incarnation != ours || interrupted())
    return tally_.checked(pages, TrafficTally::Check::kNotPossible);
  tally_.checked(pages, TrafficTally::Check::kWrong, wrong);
  say("wrong", {{"to", node}, {"incarnation", incarnation}, {"pages", wrong}});
}

void Traffic::work(std::uint32_t worker) {
  std::mt19937_64 random(arguments_.seed * 1'000'003 + arguments_.slot * 1009 + worker);
  while (!stopping_) {
    write_and_check(worker, random);
    std::this_thread::sleep_for(pause_);
  }
}

/// One byte is read from each member that has not shown its inbox yet.
void Traffic::probe() {
  while (!stopping_) {
    std::vector<client::TransferSpec> specs;
    const auto names = view_.unproven();
    for (const auto& name : names) {
      client::TransferSpec spec;
      spec.direction = client::Direction::kRead;
      spec.region = back_.name();
      spec.targets = {{name, kInbox}};
      spec.layout = client::Ranges{.ranges = {{0, (arguments_.back_pages() - 1) * page_bytes_, 1}}};
      spec.deadline_ms = kProbeDeadlineMs;
      specs.push_back(std::move(spec));
    }
    std::vector<client::Transfer> transfers;
    for (const auto& spec : specs) transfers.push_back(client_.submit(spec));
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      tally_.probed();
      if (transfers[i].wait().done()) view_.proven(names[i]);
    }
    std::this_thread::sleep_for(kProbeEvery);
  }
}

void Traffic::look() {
  try {
    const auto reply = json::parse(client_.call("nodes", "{}", kAwayAfterMs));
    if (view_.update(reply.value("nodes", json::array()))) say("view", {{"nodes", view_.shown()}});
  } catch (const client::Error&) {
    // Our service is away: nothing is sent until it is back.
    if (view_.update(json::array())) say("view", {{"nodes", json::array()}});
  }
}

void Traffic::run() {
  if (arguments_.seconds > 0)
    end_ = SteadyClock::now() +
           std::chrono::milliseconds(static_cast<long long>(arguments_.seconds * 1000));
  const auto subscription = client_.subscribe({"members"}, [](const client::Event& event) {
    say("member", {{"member", json::parse(event.json, nullptr, false)}});
  });
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < arguments_.workers; ++i)
    threads.emplace_back([this, i] { work(i); });
  threads.emplace_back([this] { probe(); });
  auto next_tally = SteadyClock::now();
  while (!over()) {
    look();
    if (SteadyClock::now() >= next_tally) {
      say("tally", tally_.to_json());
      next_tally += kTallyEvery;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
  // Each worker ends with its transfer, which has a deadline.
  stopping_ = true;
  for (auto& thread : threads) thread.join();
  auto last = tally_.to_json();
  last["final"] = true;
  say("tally", std::move(last));
  // Others may still write to our inbox.
  while (work_over && !interrupted()) std::this_thread::sleep_for(kLookEvery);
}

/// Whoever started us holds the other end of standard input: a line ends the work, its end ends us.
void follow_input() {
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) work_over = true;
  ::kill(::getpid(), SIGTERM);
}

/// The service may come up after us.
std::unique_ptr<client::Client> connect(const Globals& globals) {
  while (!interrupted()) {
    try {
      return std::make_unique<client::Client>(
          client::Options{.endpoint = globals.endpoint,
                          .client = "penstock traffic",
                          .timeout_ms = kSilenceMs,
                          .lost_after_ms = kSilenceMs,
                          .restarted =
                              [](const client::Restart& restart) {
                                json lost = json::array();
                                for (const auto& error : restart.lost) lost.push_back(error.what());
                                say("start", {{"node", restart.service.node},
                                              {"incarnation", restart.service.incarnation},
                                              {"regions", restart.regions},
                                              {"lost", std::move(lost)}});
                              },
                          .key_file = globals.key_file,
                          .server_key = globals.server_key});
    } catch (const client::Error& error) {
      if (error.code() != "DEADLINE_EXCEEDED") throw;
    }
  }
  throw Exit(ExitCode::kFailed, "interrupted");
}

void run(const Globals& globals, const TrafficArguments& arguments) {
  if (arguments.slot >= arguments.slots)
    throw cli::UsageError(
        fmt::format("--slot {} is not one of {} slots", arguments.slot, arguments.slots));
  watch_interrupts();
  if (arguments.until_eof) std::thread(follow_input).detach();
  const auto client = connect(globals);
  std::uint64_t wrong = 0;
  {
    Traffic traffic(*client, arguments);
    const auto service = client->service();
    say("start", {{"node", service.node}, {"incarnation", service.incarnation}});
    traffic.run();
    wrong = traffic.wrong_pages_in_all();
  }
  if (wrong > 0) throw Exit(ExitCode::kFailed, fmt::format("{} wrong pages", wrong));
}

}  // namespace

void add_traffic(CLI::App& app, Globals& globals) {
  auto arguments = std::make_shared<TrafficArguments>();
  auto* command = app.add_subcommand(
      "traffic", "Verified transfers from this node to all others, while members come and go");
  command->add_option("--page-bytes", arguments->page_text, "Size of a page")
      ->capture_default_str();
  command->add_option("--pages", arguments->pages, "Pages of a transfer")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_flag("--mixed", arguments->mixed,
                    "Most transfers of a few pages and some of all; some urgent, some with a "
                    "notification, some verified");
  command->add_option("--workers", arguments->workers, "Transfers at once")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      ->add_option("--slot", arguments->slot,
                   "Which share of the others' inboxes is ours: another on every node")
      ->capture_default_str();
  command->add_option("--slots", arguments->slots, "Shares of an inbox: the same on every node")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--pause", arguments->pause, "Between two transfers of a worker")
      ->capture_default_str();
  command->add_option("--deadline", arguments->deadline, "Of each transfer")->capture_default_str();
  command->add_option("--for", arguments->seconds,
                      "End after so many seconds; 0: when interrupted");
  command->add_flag("--until-eof", arguments->until_eof,
                    "A line on standard input ends the work, its end the command");
  command->add_option("--seed", arguments->seed, "Of pages and places")->capture_default_str();
  command->footer(
      "Prints a JSON line per event: start, view (the members as this node sees them), member "
      "(the\n"
      "service's events), first (the first verified transfer to a member), not_done, wrong, "
      "tally.\n"
      "Example, on each of three nodes: penstock traffic --slot 0 (1, 2) --for 60");
  command->callback([&globals, arguments] { run(globals, *arguments); });
}

}  // namespace penstock::app

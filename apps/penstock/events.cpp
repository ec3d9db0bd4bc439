// penstock events
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <iostream>
#include <memory>
#include <mutex>

#include "apps/penstock/commands.hpp"
#include "client/cli/quantity.hpp"

namespace penstock::app {
namespace {

using namespace std::chrono_literals;

struct EventsArguments {
  std::vector<std::string> topics{"transfers", "notify", "members"};
  std::optional<std::uint64_t> since;
  std::uint64_t count = 0;
  double seconds = 0;
};

struct Words {
  std::string operator()(const client::TransferResult& result) const {
    auto text = fmt::format("transfer {} {}: {} {} -> {}:{}, {} in {}", result.id,
                            client::name_of(result.state), result.direction, result.region,
                            result.node, result.remote_region, cli::format_bytes(result.bytes),
                            cli::format_time_us(result.elapsed_us));
    if (result.done()) return text;
    return fmt::format("{}; {}: {}", text, result.error_code, result.error_message);
  }
  std::string operator()(const client::Notification& notification) const {
    return fmt::format("notify from {}, transfer {}, {} in {}: {}", notification.from,
                       notification.transfer, cli::format_bytes(notification.bytes),
                       notification.region, notification.data);
  }
  std::string operator()(const client::MemberChange& change) const {
    constexpr std::array<const char*, 4> kVerbs{"joined", "drains", "left", "died"};
    return fmt::format("node {} {}, incarnation {}", change.node,
                       kVerbs.at(static_cast<std::size_t>(change.kind)), change.incarnation);
  }
  std::string operator()(std::monostate) const { return "an event of another version"; }
};

/// Counts what was printed and wakes the command when that is enough.
class Printer {
 public:
  Printer(bool json, std::uint64_t limit) : json_(json), limit_(limit) {}

  void print(const client::Event& event) {
    std::lock_guard lock(mutex_);
    if (limit_ != 0 && printed_ == limit_) return;
    std::cout << (json_ ? event.json
                        : fmt::format("{} {}", event.sequence, std::visit(Words{}, event.body)))
              << std::endl;
    ++printed_;
    enough_.notify_all();
  }
  /// Whether the limit is reached; waits at most `timeout` for it.
  bool enough(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return enough_.wait_for(lock, timeout, [this] { return limit_ != 0 && printed_ == limit_; });
  }

 private:
  const bool json_;
  const std::uint64_t limit_;
  std::mutex mutex_;
  std::condition_variable enough_;
  std::uint64_t printed_ = 0;
};

void follow(const Globals& globals, const EventsArguments& arguments) {
  auto client = globals.connect();
  watch_interrupts();
  Printer printer(globals.json, arguments.count);
  auto subscription = client.subscribe(
      arguments.topics, [&](const client::Event& event) { printer.print(event); }, arguments.since);
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(arguments.seconds);
  while (!printer.enough(100ms) && !interrupted()) {
    if (arguments.seconds == 0 || std::chrono::steady_clock::now() < end) continue;
    if (arguments.count == 0) return;
    throw Exit(ExitCode::kTimedOut, fmt::format("DEADLINE_EXCEEDED: fewer than {} events in {} s",
                                                arguments.count, arguments.seconds));
  }
}

}  // namespace

void add_events(CLI::App& app, Globals& globals) {
  auto arguments = std::make_shared<EventsArguments>();
  auto* events = app.add_subcommand("events", "Follows the service's events, a line each");
  events->add_option("--topics", arguments->topics, "transfers, notify, members; default: all")
      ->delimiter(',')
      ->check(CLI::IsMember({"transfers", "notify", "members"}));
  events->add_option("--since", arguments->since,
                     "First those after this sequence that are still kept; 0: all");
  events->add_option("--count", arguments->count, "End after so many; 0: go on");
  events->add_option("--for", arguments->seconds,
                     "End after so many seconds (exit code 5 when --count was not reached)");
  events->footer("Example: penstock events --since 0 --topics transfers,notify --json");
  events->callback([&globals, arguments] { follow(globals, *arguments); });
}

}  // namespace penstock::app

// penstock nodes, penstock drain, penstock remove
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/penstock/commands.hpp"
#include "apps/penstock/table.hpp"
#include "client/cli/quantity.hpp"

namespace penstock::app {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;
using nlohmann::json;

/// Members change while nobody tells (a handshake completes): looked at so often.
constexpr auto kLookEvery = 200ms;
/// The process of a drained node is gone so long after its deadline at the latest.
constexpr auto kEndAfterDeadline = 10s;

struct NodesArguments {
  bool watch = false;
  std::string node;
  std::string deadline = "60s";
  bool no_wait = false;
  bool force = false;
};

// -- nodes
// -----------------------------------------------------------------------------------------

void print_table(const std::vector<client::NodeInfo>& nodes) {
  Table table({"NODE", "STATE", "ADDRESS", "INCARNATION"});
  for (const auto& node : nodes) {
    table.add({node.name, node.state, node.address.empty() ? "-" : node.address,
               std::to_string(node.incarnation)});
  }
  table.print();
}

/// Woken by member events, so that a change shows at once.
class Changes {
 public:
  void came() {
    std::lock_guard lock(mutex_);
    came_ = true;
    wake_.notify_all();
  }
  void wait(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, patience, [this] { return came_; });
    came_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool came_ = false;
};

void print_change(const Globals& globals, const client::NodeInfo& node, const std::string& before) {
  const auto now = std::chrono::system_clock::now();
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(now.time_since_epoch()).count();
  if (globals.json) {
    std::cout << json{{"unix_ms", ms},
                      {"node", node.name},
                      {"state", node.state},
                      {"before", before},
                      {"incarnation", node.incarnation}}
                     .dump()
              << std::endl;
    return;
  }
  std::cout << fmt::format("{:%H:%M:%S}.{:03} {} {}{}, incarnation {}\n",
                           fmt::localtime(std::chrono::system_clock::to_time_t(now)), ms % 1000,
                           node.name, before.empty() ? "" : before + " -> ", node.state,
                           node.incarnation)
            << std::flush;
}

/// A line for each change, until interrupted; a service that is away is waited for.
void watch(const Globals& globals, client::Client& client) {
  watch_interrupts();
  Changes changes;
  auto subscription = client.subscribe({"members"}, [&](const client::Event&) { changes.came(); });
  std::map<std::string, std::pair<std::string, std::uint64_t>> shown;  // state, incarnation
  bool first = !globals.json;
  while (!interrupted()) {
    try {
      auto nodes = client.nodes();
      if (first) print_table(nodes);
      for (const auto& node : nodes) {
        auto& known = shown[node.name];
        const std::pair now{node.state, node.incarnation};
        if (known == now) continue;
        if (!first) print_change(globals, node, known.first);
        known = now;
      }
      first = false;
    } catch (const client::Error& error) {
      if (error.code() != "DEADLINE_EXCEEDED") throw;
    }
    changes.wait(kLookEvery);
  }
}

void run_nodes(const Globals& globals, const NodesArguments& arguments) {
  auto client = globals.connect();
  if (arguments.watch) return watch(globals, client);
  if (globals.json) return print_json(client.call("nodes", "{}"));
  print_table(client.nodes());
}

// -- drain, remove
// ---------------------------------------------------------------------------------

/// Whether the service at the other end still is the one that was asked.
bool still_there(client::Client& client, std::uint64_t incarnation) {
  try {
    client.call("hello", "{}", 2000);
  } catch (const client::Error&) {
    return false;
  }
  return client.service().incarnation == incarnation;
}

/// Whether the other node still takes part.
bool still_member(client::Client& client, const std::string& name, std::uint64_t incarnation) {
  const auto nodes = client.nodes();
  const auto found = std::ranges::find(nodes, name, &client::NodeInfo::name);
  if (found == nodes.end() || found->incarnation != incarnation) return false;
  if (found->state == "dead")
    throw Exit(ExitCode::kFailed,
               fmt::format("PEER_DEAD: node {} died before it had drained", name));
  return found->state != "left";
}

void drain(const Globals& globals, const NodesArguments& arguments) {
  const std::chrono::milliseconds deadline(cli::parse_duration_ms(arguments.deadline));
  auto client = globals.connect();
  const auto service = client.service();
  const std::string name = arguments.node.empty() ? service.node : arguments.node;
  std::uint64_t incarnation = 0;
  for (const auto& node : client.nodes())
    if (node.name == name) incarnation = node.incarnation;
  const auto begin = SteadyClock::now();
  client.call("drain", json{{"node", name}, {"deadline_ms", deadline.count()}}.dump());
  while (!arguments.no_wait) {
    const bool there = name == service.node ? still_there(client, incarnation)
                                            : still_member(client, name, incarnation);
    if (!there) break;
    if (SteadyClock::now() - begin > deadline + kEndAfterDeadline)
      throw Exit(
          ExitCode::kTimedOut,
          fmt::format("DEADLINE_EXCEEDED: node {} has not left {} after its deadline", name,
                      cli::format_time_us(std::chrono::microseconds(kEndAfterDeadline).count())));
    std::this_thread::sleep_for(kLookEvery / 2);
  }
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - begin).count();
  if (globals.json)
    return print_json(json{{"node", name}, {"left", !arguments.no_wait}, {"ms", ms}}.dump());
  if (arguments.no_wait)
    std::cout << fmt::format("{} drains\n", name);
  else
    std::cout << fmt::format("{} has left after {}\n", name,
                             cli::format_time_us(static_cast<std::uint64_t>(ms) * 1000));
}

void remove(const Globals& globals, const NodesArguments& arguments) {
  auto client = globals.connect();
  client.call("remove", json{{"node", arguments.node}, {"force", arguments.force}}.dump());
  if (globals.json) print_json("{}");
}

}  // namespace

void add_nodes(CLI::App& app, Globals& globals) {
  auto arguments = std::make_shared<NodesArguments>();
  auto* nodes = app.add_subcommand("nodes", "The nodes that the service knows");
  nodes->add_flag("-w,--watch", arguments->watch, "Then a line for each change, until interrupted");
  nodes->footer("Example: penstock nodes --watch");
  nodes->callback([&globals, arguments] { run_nodes(globals, *arguments); });

  auto* drain_command = app.add_subcommand(
      "drain", "A node takes no new work, finishes what is in flight, leaves and ends");
  drain_command->add_option("node", arguments->node,
                            "By name; default: that of the service itself");
  drain_command
      ->add_option(
          "--deadline", arguments->deadline,
          "What is in flight then is cancelled: 30s, 2m; 0: the node's own timeouts.drain_ms")
      ->capture_default_str();
  drain_command->add_flag("--no-wait", arguments->no_wait, "Do not wait until it has left");
  drain_command->footer("Example: penstock drain node-b --deadline 2m");
  drain_command->callback([&globals, arguments] { drain(globals, *arguments); });

  auto* remove_command =
      app.add_subcommand("remove", "Strikes a node off that died and will not come back");
  remove_command->add_option("node", arguments->node, "By name")->required();
  remove_command->add_flag("--force", arguments->force, "Even when it seems to be alive");
  remove_command->footer("Example: penstock remove node-b --force");
  remove_command->callback([&globals, arguments] { remove(globals, *arguments); });
}

}  // namespace penstock::app

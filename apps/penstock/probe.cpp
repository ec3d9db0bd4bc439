// penstock probe: whether a service does its work, for whoever restarts those that do not.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/penstock/commands.hpp"

namespace penstock::app {
namespace {

using nlohmann::json;

constexpr std::uint64_t kBytes = 4096;
constexpr const char* kRegion = "probe";
constexpr const char* kCopy = "probe.copy";
constexpr std::uint32_t kMostPeers = 3;

struct ProbeArguments {
  bool ready = false;
};

/// These stay at the service: other nodes' probes read from the first.
void make_region(client::Client& client, const char* name) {
  try {
    client.allocate(name, kBytes, "", client::MapMemory::kNo).detach();
  } catch (const client::Error& error) {
    if (error.code() != "ALREADY_EXISTS") throw;
  }
}

client::TransferSpec read_from(const std::string& node, std::uint32_t deadline_ms) {
  client::TransferSpec spec;
  spec.direction = client::Direction::kRead;
  spec.region = kCopy;
  spec.targets = {{node, kRegion}};
  spec.layout = client::Ranges{.ranges = {{0, 0, kBytes}}};
  spec.deadline_ms = deadline_ms;
  return spec;
}

void check_cards(const json& status) {
  bool any = false;
  for (const auto& device : status.value("devices", json::array()))
    for (const auto& card : device.value("cards", json::array()))
      any = any || card.value("up", false);
  if (!any) throw Exit(ExitCode::kFailed, "no card is up");
}

/// The other node's word over the fabric, whatever it says: one that is not probed itself has no
/// such region, and a draining one takes no work.
bool answered(const client::TransferResult& result) {
  return result.done() || result.error_code == "NOT_FOUND" || result.error_code == "DRAINING" ||
         result.error_code == "STALE_REGION";
}

/// Reads from a few others over the fabric. All that are connected must fail before it is this node
/// that is to blame.
std::string check_peers(client::Client& client, std::uint32_t deadline_ms) {
  std::vector<std::string> connected;
  for (const auto& node : client.nodes())
    if (node.state == "connected" && connected.size() < kMostPeers) connected.push_back(node.name);
  if (connected.empty()) return "no other node is connected";
  std::vector<client::Transfer> reads;
  for (const auto& node : connected) reads.push_back(client.submit(read_from(node, deadline_ms)));
  std::string failed;
  std::size_t good = 0;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const auto result = reads[i].wait();
    if (answered(result))
      ++good;
    else
      failed += fmt::format("; {}: {} {}", connected[i], result.error_code, result.error_message);
  }
  if (good == 0) throw Exit(ExitCode::kFailed, "no connected node answers" + failed);
  return fmt::format("{} of {} nodes answer over the fabric{}", good, reads.size(), failed);
}

void run(const Globals& globals, const ProbeArguments& arguments) {
  auto client = globals.connect();
  const auto status = json::parse(client.status());
  if (status.value("draining", false)) {
    if (arguments.ready) throw Exit(ExitCode::kFailed, "DRAINING: it takes no new work");
    std::cout << "draining\n";  // and alive
    return;
  }
  check_cards(status);
  make_region(client, kRegion);
  make_region(client, kCopy);
  if (const auto copy = client.transfer(read_from("", globals.timeout_ms())).wait(); !copy.done())
    throw Exit(ExitCode::kFailed,
               fmt::format("a copy {}: {}", client::name_of(copy.state), copy.error_message));
  std::cout << fmt::format("{}: cards up, {}\n", client.service().node,
                           check_peers(client, globals.timeout_ms() / 2));
}

}  // namespace

void add_probe(CLI::App& app, Globals& globals) {
  auto arguments = std::make_shared<ProbeArguments>();
  auto* probe = app.add_subcommand(
      "probe", "Moves a little through the service and to it from others; 0: it works");
  probe->add_flag("--ready", arguments->ready, "Fail, too, while it drains");
  probe->footer("Example, as a health check: penstock probe --timeout 4");
  probe->callback([&globals, arguments] { run(globals, *arguments); });
}

}  // namespace penstock::app

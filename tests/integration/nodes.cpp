#include "tests/integration/nodes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "tests/free_port.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = 30s;  // generous: the machine may be busy
constexpr auto kPatienceAtTheEnd = 4s;

/// A service that a sanitizer is built into says on its log what was found, which is this test's
/// failure. Only of a process that has ended, since a report has many lines.
void expect_no_sanitizer_report(const std::string& name, const app::ChildProcess& process) {
  std::ifstream file(process.log());
  std::string report;
  for (std::string line; std::getline(file, line);)
    if (!report.empty() || line.find("Sanitizer: ") != std::string::npos ||
        line.find(": runtime error: ") != std::string::npos)
      report += line + '\n';
  EXPECT_TRUE(report.empty()) << "the service " << name << ":\n" << report;
}

}  // namespace

Nodes::Nodes(std::vector<std::string> names, std::vector<std::string> settings)
    : settings_(std::move(settings)) {
  std::vector<std::string> members;
  for (const auto& name : names) {
    nodes_[name].gossip_port = free_port();
    members.push_back(fmt::format("\"{}\"", gossip_endpoint(name)));
  }
  for (const auto& name : names) {
    std::ofstream file(folder() / (name + ".yaml"));
    file << fmt::format(
        "node: {{name: {}}}\n"
        "request: {{bind: [\"{}\"]}}\n"
        "gossip: {{bind: \"{}\", members: [{}]}}\n"
        "fabric: {{provider: tcp, cards: [{{domain: lo, address: 127.0.0.1}}]}}\n"
        "devices: {{pin: false, gpus: none}}\n",
        name, endpoint(name), gossip_endpoint(name), fmt::join(members, ", "));
  }
  for (const auto& name : names) start(name);
  for (const auto& from : names)
    for (const auto& to : names)
      if (from != to) await_connected(from, to);
}

Nodes::~Nodes() {
  for (auto& [name, node] : nodes_) {
    node.client.reset();
    if (!node.process) continue;
    node.process->stop(kPatienceAtTheEnd);
    expect_no_sanitizer_report(name, *node.process);
  }
}

std::string Nodes::endpoint(const std::string& name) const {
  return fmt::format("ipc://{}", (folder() / (name + ".ipc")).string());
}

std::string Nodes::gossip_endpoint(const std::string& name) const {
  return fmt::format("tcp://127.0.0.1:{}", nodes_.at(name).gossip_port);
}

void Nodes::kill(const std::string& name) {
  ::kill(process(name).pid(), SIGKILL);
  process(name).wait(5s);
}

void Nodes::signal(const std::string& name, int number) { ::kill(process(name).pid(), number); }

void Nodes::start(const std::string& name, const std::vector<std::string>& more) {
  run(name, more);
  connect(name);
}

void Nodes::restart_process(const std::string& name) { run(name, {}); }

void Nodes::run(const std::string& name, const std::vector<std::string>& more) {
  std::vector<std::string> argv{std::string(PENSTOCK_BIN_DIR) + "/penstockd", "--config",
                                folder() / (name + ".yaml")};
  auto settings = settings_;
  settings.insert(settings.end(), more.begin(), more.end());
  for (const auto& setting : settings) {
    argv.emplace_back("--set");
    argv.push_back(setting);
  }
  Node& node = nodes_.at(name);
  // Its log begins anew.
  if (node.process && !node.process->running()) expect_no_sanitizer_report(name, *node.process);
  node.process = std::make_unique<app::ChildProcess>(argv, folder() / (name + ".log"));
}

void Nodes::connect(const std::string& name) {
  Node& node = nodes_.at(name);
  for (const auto end = Clock::now() + kPatience; Clock::now() < end;) {
    if (!node.process->running())
      throw std::runtime_error(name + " ended: " + node.process->log_tail(20));
    try {
      node.client = std::make_unique<client::Client>(client::Options{
          .endpoint = endpoint(name), .client = "integration", .timeout_ms = 10000});
      return;
    } catch (const client::Error&) {
    }
  }
  throw std::runtime_error(name + " does not answer: " + node.process->log_tail(20));
}

void Nodes::await_connected(const std::string& from, const std::string& to,
                            std::uint64_t not_incarnation) {
  for (const auto end = Clock::now() + kPatience; Clock::now() < end;) {
    for (const auto& node : (*this)[from].nodes())
      if (node.name == to && node.state == "connected" && node.incarnation != not_incarnation)
        return;
    std::this_thread::sleep_for(10ms);
  }
  throw std::runtime_error(fmt::format("{} is not connected to {}:\n{}\n{}", from, to,
                                       process(from).log_tail(20), process(to).log_tail(20)));
}

Shuffle::Shuffle(std::uint64_t region_bytes, std::uint64_t page, std::uint64_t seed)
    : page_bytes(page), source(region_bytes / page), destination(region_bytes / page) {
  std::mt19937_64 random(seed);
  std::iota(source.begin(), source.end(), 0);
  std::iota(destination.begin(), destination.end(), 0);
  std::shuffle(source.begin(), source.end(), random);
  std::shuffle(destination.begin(), destination.end(), random);
}

client::TransferSpec Shuffle::write(const std::string& region, const std::string& node,
                                    const std::string& remote) const {
  client::TransferSpec spec;
  spec.region = region;
  spec.targets = {{node, remote}};
  spec.layout = client::Pages{
      .page_bytes = page_bytes, .source_pages = source, .destination_pages = destination};
  return spec;
}

client::TransferSpec Shuffle::read(const std::string& region, const std::string& node,
                                   const std::string& remote) const {
  auto spec = write(region, node, remote);
  spec.direction = client::Direction::kRead;
  return spec;
}

bool Shuffle::verify(client::Client& from, const std::string& source_region, client::Client& to,
                     const std::string& destination_region) const {
  return from.digest(source_region, page_bytes, source) ==
         to.digest(destination_region, page_bytes, destination);
}

}  // namespace penstock::integration

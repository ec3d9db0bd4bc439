#include "apps/penstock/local_cluster.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <thread>

#include "apps/penstock/globals.hpp"

namespace penstock::app {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLookEvery(20);
constexpr std::uint32_t kFirstAnswerMs = 500;
constexpr milliseconds kStopPatience(4000);
constexpr int kStartAttempts = 3;
constexpr std::size_t kLogLines = 15;

/// Free at the moment; somebody else may take it before the service does, so starting is retried.
std::uint16_t free_port() {
  int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  bool bound = ::bind(socket, generic, size) == 0 && ::getsockname(socket, generic, &size) == 0;
  ::close(socket);
  if (!bound) throw Exit(ExitCode::kFailed, "no free TCP port on 127.0.0.1");
  return ntohs(address.sin_port);
}

bool is_connected(client::Client& client, const std::vector<std::string>& nodes) {
  std::size_t found = 0;
  for (const auto& node : client.nodes()) {
    bool wanted = std::ranges::find(nodes, node.name) != nodes.end();
    if (wanted && (node.state == "self" || node.state == "connected")) ++found;
  }
  return found == nodes.size();
}

}  // namespace

LocalCluster::LocalCluster(ClusterOptions options) : options_(std::move(options)) {
  for (int attempt = 1; !start(); ++attempt) {
    if (attempt == kStartAttempts) give_up("a service does not start");
    services_.clear();
  }
  for (std::size_t i = 0; i < options_.nodes.size(); ++i) connect(i);
  for (std::size_t i = 0; i < options_.nodes.size(); ++i) await_connected(i);
}

LocalCluster::~LocalCluster() {
  clients_.clear();
  // All are asked before any is waited for.
  for (auto& service : services_) {
    if (service.running()) ::kill(service.pid(), SIGTERM);
  }
  for (auto& service : services_) service.stop(kStopPatience);
}

std::string LocalCluster::endpoint(std::size_t node) const {
  return fmt::format("ipc://{}", (folder() / (options_.nodes[node] + ".ipc")).string());
}

void LocalCluster::write_config(std::size_t node, const std::vector<std::uint16_t>& ports) const {
  std::vector<std::string> members;
  for (auto port : ports) members.push_back(fmt::format("tcp://127.0.0.1:{}", port));
  auto path = folder() / (options_.nodes[node] + ".yaml");
  std::ofstream file(path);
  file << fmt::format(
      "node: {{name: {}}}\n"
      "request: {{bind: [\"{}\"]}}\n"
      "gossip: {{bind: \"{}\", members: [\"{}\"]}}\n"
      "fabric: {{provider: {}{}}}\n"
      "devices: {{pin: false, gpus: {}}}\n"
      // Other cards than lo are seen from outside; these services live for the command alone.
      "security: {{insecure: {}}}\n"
      "timeouts: {{drain_ms: 2000}}\n",
      options_.nodes[node], endpoint(node), members[node], fmt::join(members, "\", \""),
      options_.provider,
      options_.provider == "tcp" ? ", cards: [{domain: lo, address: 127.0.0.1}]" : "",
      options_.gpus ? "auto" : "none", options_.provider != "tcp");
  if (!file.flush()) throw Exit(ExitCode::kFailed, path.string() + " cannot be written");
}

bool LocalCluster::start() {
  std::vector<std::uint16_t> ports;
  for (std::size_t i = 0; i < options_.nodes.size(); ++i) ports.push_back(free_port());
  for (std::size_t i = 0; i < options_.nodes.size(); ++i) {
    write_config(i, ports);
    const auto& name = options_.nodes[i];
    std::filesystem::remove(folder() / (name + ".ipc"));  // of an earlier attempt
    std::vector<std::string> argv{own_folder() / "penstockd", "--config",
                                  folder() / (name + ".yaml")};
    auto settings = options_.settings;
    if (i < options_.node_settings.size()) {
      settings.insert(settings.end(), options_.node_settings[i].begin(),
                      options_.node_settings[i].end());
    }
    for (auto& setting : settings) {
      argv.emplace_back("--set");
      argv.push_back(std::move(setting));
    }
    services_.emplace_back(argv, folder() / (name + ".log"));
  }
  // A service that cannot bind ends at once; one that listens for requests has bound everything.
  auto end = Clock::now() + milliseconds(options_.start_timeout_ms);
  for (std::size_t i = 0; i < services_.size(); ++i) {
    auto socket = folder() / (options_.nodes[i] + ".ipc");
    while (!std::filesystem::exists(socket)) {
      if (!services_[i].running()) return false;
      if (interrupted()) throw Exit(ExitCode::kFailed, "interrupted");
      if (Clock::now() > end) give_up("a service does not listen for requests");
      std::this_thread::sleep_for(kLookEvery);
    }
  }
  return true;
}

void LocalCluster::connect(std::size_t node) {
  auto end = Clock::now() + milliseconds(options_.start_timeout_ms);
  for (;;) {
    try {
      // The first contact is tried with little patience so that a dead service is seen soon; the
      // client that stays has the ordinary one.
      client::Client probe({.endpoint = endpoint(node), .timeout_ms = kFirstAnswerMs});
      break;
    } catch (const client::Error& error) {
      check();
      if (Clock::now() > end || interrupted()) give_up(error.what());
    }
  }
  clients_.push_back(std::make_unique<client::Client>(
      client::Options{.endpoint = endpoint(node), .client = "penstock local cluster"}));
}

void LocalCluster::await_connected(std::size_t node) {
  auto end = Clock::now() + milliseconds(options_.start_timeout_ms);
  while (!is_connected(client(node), options_.nodes)) {
    check();
    if (Clock::now() > end || interrupted()) {
      give_up(fmt::format("node {} is not connected to the others after {} ms", name(node),
                          options_.start_timeout_ms));
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

double LocalCluster::cpu_seconds() const {
  double sum = 0;
  for (const auto& service : services_) sum += service.cpu_seconds();
  return sum;
}

void LocalCluster::check() {
  for (std::size_t i = 0; i < services_.size(); ++i) {
    if (services_[i].running()) continue;
    give_up(fmt::format("the service of node {} {}", name(i), services_[i].how_it_ended()));
  }
}

void LocalCluster::show_logs() const {
  for (std::size_t i = 0; i < services_.size(); ++i) {
    fmt::print(stderr, "--- node {} ---\n{}", name(i), services_[i].log_tail(kLogLines));
  }
}

void LocalCluster::give_up(const std::string& why) const {
  show_logs();
  throw Exit(ExitCode::kFailed, why);
}

}  // namespace penstock::app

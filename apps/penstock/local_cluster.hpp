// Services on this machine that live as long as this object: what demo, bench and replay run on
// when no others are named.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/penstock/child_process.hpp"
#include "client/cpp/penstock.hpp"

namespace penstock::app {

struct ClusterOptions {
  std::vector<std::string> nodes{"a", "b"};
  std::string provider = "tcp";  // "tcp" uses the loopback interface; or "shm"
  /// Further settings of every service, as for penstockd --set: "section.key=value".
  std::vector<std::string> settings{};
  /// And of one of them, after those: by node, may be shorter than `nodes`.
  std::vector<std::vector<std::string>> node_settings{};
  std::uint32_t start_timeout_ms = 15000;
  bool gpus = false;  // they use those of this machine
};

/// Throws Exit kFailed, with the end of the service's log on standard error, when a service does
/// not start or does not connect to the others in time.
class LocalCluster {
 public:
  explicit LocalCluster(ClusterOptions options);
  /// Stops the services.
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  const std::string& name(std::size_t node) const { return options_.nodes[node]; }
  client::Client& client(std::size_t node) { return *clients_[node]; }
  /// CPU time of all services so far, in seconds.
  double cpu_seconds() const;
  /// Where files may be put that go with the cluster.
  const std::filesystem::path& folder() const { return folder_.path(); }
  /// Throws Exit kFailed, as above, when a service has ended.
  void check();
  /// The end of each service's log, on standard error.
  void show_logs() const;

 private:
  bool start();
  void write_config(std::size_t node, const std::vector<std::uint16_t>& ports) const;
  std::string endpoint(std::size_t node) const;
  void connect(std::size_t node);
  void await_connected(std::size_t node);
  [[noreturn]] void give_up(const std::string& why) const;

  const ClusterOptions options_;
  TemporaryFolder folder_;
  std::vector<ChildProcess> services_;
  std::vector<std::unique_ptr<client::Client>> clients_;
};

}  // namespace penstock::app

// Real services on this machine for the tests of the promises: each can be killed, stopped,
// continued and started again at the same address.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/penstock/child_process.hpp"
#include "client/cpp/penstock.hpp"

namespace penstock::integration {

/// Services built with a sanitizer keep freed memory, or a shadow of what they touch: how much they
/// have says nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PENSTOCK_SANITIZED true
#elif defined(__has_feature)  // clang
#define PENSTOCK_SANITIZED __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#else
#define PENSTOCK_SANITIZED false
#endif
inline constexpr bool kSanitized = PENSTOCK_SANITIZED;
#undef PENSTOCK_SANITIZED

class Nodes {
 public:
  /// Starts them all and waits until each is connected to each. `settings` as for --set.
  explicit Nodes(std::vector<std::string> names, std::vector<std::string> settings = {});
  /// Stops them. What a sanitizer reported in one of them is a failure of the test.
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  client::Client& operator[](const std::string& name) { return *nodes_.at(name).client; }
  app::ChildProcess& process(const std::string& name) { return *nodes_.at(name).process; }
  std::string endpoint(const std::string& name) const;
  std::string gossip_endpoint(const std::string& name) const;
  const std::filesystem::path& folder() const { return folder_.path(); }

  /// SIGKILL, and gone when it returns.
  void kill(const std::string& name);
  /// Starts a node that ended, at the same address. Does not wait for it to be connected. `more`
  /// settings are for this start only.
  void start(const std::string& name, const std::vector<std::string>& more = {});
  /// As start(), but leaves the clients of the node as they are.
  void restart_process(const std::string& name);
  void signal(const std::string& name, int number);
  /// Waits until `from` calls `to` connected under an incarnation other than `not_incarnation`.
  void await_connected(const std::string& from, const std::string& to,
                       std::uint64_t not_incarnation = 0);
  std::uint64_t incarnation(const std::string& name) { return (*this)[name].service().incarnation; }

 private:
  struct Node {
    std::uint16_t gossip_port = 0;
    std::unique_ptr<app::ChildProcess> process;
    std::unique_ptr<client::Client> client;
  };
  void connect(const std::string& name);
  void run(const std::string& name, const std::vector<std::string>& more);

  app::TemporaryFolder folder_;
  std::vector<std::string> settings_;
  std::map<std::string, Node> nodes_;
};

/// Page lists of one shuffled move of every page of a region.
struct Shuffle {
  Shuffle(std::uint64_t region_bytes, std::uint64_t page_bytes, std::uint64_t seed);
  client::TransferSpec write(const std::string& region, const std::string& node,
                             const std::string& remote) const;
  client::TransferSpec read(const std::string& region, const std::string& node,
                            const std::string& remote) const;
  /// Whether each source page equals its destination page, by the services' digests.
  bool verify(client::Client& source, const std::string& source_region, client::Client& destination,
              const std::string& destination_region) const;

  std::uint64_t page_bytes;
  std::vector<std::uint32_t> source;
  std::vector<std::uint32_t> destination;
};

}  // namespace penstock::integration

// The connections of a router, as its monitor tells of them: how many there are, and the means to
// end one. ZeroMQ has neither a bound on them nor a way to close a single one. One thread.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <set>
#include <string>
#include <zmq.hpp>

#include "actors/security/audit.hpp"

namespace penstock {

class Connections {
 public:
  /// Those above `most` are cut as they come. `audit` outlives this.
  Connections(zmq::context_t& context, zmq::socket_t& router, std::size_t most, Audit& audit);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  /// The router was bound here, as its last endpoint says it.
  void listens(const std::string& endpoint);
  void* handle() { return monitor_.handle(); }
  void serve();
  /// Ends the connection of this descriptor, if it is one of the router's; its client sees that and
  /// may come again.
  void cut(int fd);
  std::size_t count() const { return open_.size(); }

 private:
  /// Whether a socket of this address was accepted at one of the router's endpoints.
  bool is_ours(const sockaddr_storage& own) const;

  zmq::socket_t& router_;
  zmq::socket_t monitor_;
  const std::size_t most_;
  Audit& audit_;
  std::set<int> open_;
  std::set<std::string> places_;  // ports and paths
};

}  // namespace penstock

// Whose request is next. Each client has a few under way and the rest of its requests wait here, in
// its own order; clients take turns. So a flood makes its sender wait, and nobody else. One thread,
// but for the counts.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "actors/protocol/request.hpp"

namespace penstock {

class Turns {
 public:
  struct Limits {
    std::size_t client_requests = 4096;  // of one client, those under way included
    std::size_t client_bytes = 256u << 20;
    std::size_t client_under_way = 16;
  };
  struct Load {
    explicit Load(std::string of) : client(std::move(of)) {}
    const std::string client;
    std::atomic<std::size_t> under_way{0};
    std::deque<std::pair<Request, std::size_t>> waiting{};  // with its bytes
    std::size_t waiting_bytes = 0;
  };
  struct Next {
    Request request;
    std::shared_ptr<Load> load;  // under_way counts this one: whoever ends it counts it down
    const std::string& client = load->client;
  };

  explicit Turns(Limits limits) : limits_(limits) {}

  /// False: the client has as many as it may; the request is dropped. A single one always fits.
  bool add(const std::string& client, Request&& request, std::size_t bytes);
  /// Waiting or under way.
  bool has_any(const std::string& client) const;
  /// None: nobody waits that may have one more under way.
  std::optional<Next> next();
  std::size_t waiting() const { return waiting_; }
  std::size_t waiting_bytes() const { return waiting_bytes_; }
  std::size_t known() const { return loads_.size(); }  // clients
  const Limits& limits() const { return limits_; }

 private:
  const Limits limits_;
  std::unordered_map<std::string, std::shared_ptr<Load>> loads_;
  std::deque<std::shared_ptr<Load>> turns_;  // those that have something waiting, each once
  std::size_t waiting_ = 0;
  std::size_t waiting_bytes_ = 0;
  std::size_t sweep_at_ = 64;
};

}  // namespace penstock

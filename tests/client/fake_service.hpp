// A ROUTER socket that answers as a test tells it, can go away and come back at the same endpoint.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/penstock.hpp"

namespace penstock::client {

class FakeService {
 public:
  using Json = nlohmann::json;
  /// The body of the reply; {"error":{...}} refuses; nullopt: no answer. Runs on the service's
  /// thread, which may send() from there.
  using Handler = std::function<std::optional<Json>(const Json& request)>;

  FakeService();
  ~FakeService();

  const std::string& endpoint() const { return endpoint_; }
  /// Answers `operation` from now on; hello and subscribe are answered unless handled.
  void on(const std::string& operation, Handler handler);
  void set_incarnation(std::uint64_t incarnation) { incarnation_ = incarnation; }

  void start();
  /// Closes the socket; what was under way is lost.
  void stop();

  /// An event to whoever said hello last. "v" is added.
  void send(Json event);

  /// All requests of that operation so far.
  std::vector<Json> requests(const std::string& operation) const;
  /// Waits until so many came; false after ten seconds.
  bool wait_for(const std::string& operation, std::size_t count) const;

 private:
  void run();
  Json answer(const Json& request, bool& silent);

  std::string folder_;
  std::string endpoint_;
  std::atomic<std::uint64_t> incarnation_{1};
  std::atomic<bool> stopping_{false};
  std::thread thread_;

  mutable std::mutex mutex_;
  mutable std::condition_variable came_;
  std::map<std::string, Handler> handlers_;
  std::vector<Json> requests_;
  std::vector<Json> outgoing_;
  std::string client_;
};

inline Options options_for(const FakeService& service) {
  return {.endpoint = service.endpoint(), .timeout_ms = 15000, .lease_ms = 0};
}

/// The code of the error that `call` throws.
template <class Call>
std::string code_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return "nothing";
}

/// A terminal event.
inline nlohmann::json transfer_event(std::uint64_t sequence, std::uint64_t id,
                                     const std::string& state) {
  nlohmann::json event{{"event", "transfer"}, {"seq", sequence}, {"id", id},
                       {"state", state},      {"bytes", 4096},   {"writes", 1}};
  if (state != "done") event["error"] = {{"code", "PEER_LEFT"}, {"message", "gone"}};
  return event;
}

}  // namespace penstock::client

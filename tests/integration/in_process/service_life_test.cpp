// Starting and stopping a whole service inside this process, where a sanitizer sees every thread.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "actors/node/service.hpp"
#include "actors/settings/settings.hpp"
#include "tests/free_port.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

constexpr std::uint64_t kPage = 64 << 10;
constexpr std::uint64_t kPages = 128;

/// Where two services meet; goes with the test.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "penstock-life-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string request(const std::string& node) const { return "ipc://" + path + "/" + node; }
  std::string gossip(const std::string& node) const {
    return fmt::format("tcp://127.0.0.1:{}", node == "a" ? port_a : port_b);
  }
  std::string path;
  std::uint16_t port_a = free_port();
  std::uint16_t port_b = free_port();
};

std::unique_ptr<Service> start(const Folder& folder, const std::string& node) {
  const auto settings = load_settings(
      "", {"node.name=" + node, "request.bind=" + folder.request(node),
           "gossip.bind=" + folder.gossip(node),
           fmt::format("gossip.members=[\"{}\", \"{}\"]", folder.gossip("a"), folder.gossip("b")),
           "fabric.provider=tcp", "fabric.cards=[{domain: lo, address: 127.0.0.1}]",
           "devices.pin=false", "devices.gpus=none"});
  if (!settings) throw std::runtime_error(settings.error().message);
  auto service = Service::start(*settings);
  if (!service) throw std::runtime_error(service.error().message);
  return std::move(*service);
}

std::size_t threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

/// A thread that was joined may be listed for a moment longer.
std::size_t threads_after(std::size_t wanted) {
  const auto end = std::chrono::steady_clock::now() + 5s;
  while (threads() != wanted && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(1ms);
  return threads();
}

/// Speaks the protocol without waiting for anybody: nothing here blocks while a service is down.
class Requester {
 public:
  explicit Requester(const std::string& endpoint) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::immediate, true);
    socket_.set(zmq::sockopt::sndhwm, 100);
    socket_.set(zmq::sockopt::reconnect_ivl, 1);
    socket_.set(zmq::sockopt::reconnect_ivl_max, 10);
    socket_.connect(endpoint);
  }
  bool send(Json body) {
    body["v"] = 1;
    body["id"] = ++id_;
    const auto bytes = Json::to_msgpack(body);
    return socket_.send(zmq::buffer(bytes), zmq::send_flags::dontwait).has_value();
  }
  /// Sends when it can, then waits for the answer; null when none came in time.
  Json ask(const Json& body, std::chrono::milliseconds patience = 20s) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!send(body))
      if (std::chrono::steady_clock::now() > end)
        return {};
      else
        std::this_thread::sleep_for(1ms);
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(patience.count()));
    for (zmq::message_t message; socket_.recv(message);) {
      auto answer = Json::from_msgpack(message.data<std::uint8_t>(),
                                       message.data<std::uint8_t>() + message.size());
      if (answer.value("id", std::uint64_t{0}) == id_) return answer;
    }
    return {};
  }
  void drop_answers() {
    for (zmq::message_t message; socket_.recv(message, zmq::recv_flags::dontwait);) {
    }
  }

 private:
  zmq::context_t context_{1};
  zmq::socket_t socket_{context_, zmq::socket_type::dealer};
  std::uint64_t id_ = 0;
};

Json::binary_t packed(const std::vector<std::uint32_t>& values) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
  return Json::binary_t(
      std::vector<std::uint8_t>(bytes, bytes + values.size() * sizeof(values[0])));
}

Json transfer(const std::string& direction, const std::string& to) {
  std::vector<std::uint32_t> pages(kPages);
  for (std::uint32_t i = 0; i < kPages; ++i) pages[i] = kPages - 1 - i;
  Json layout{{"kind", "pages"},
              {"page_bytes", kPage},
              {"source_pages", packed(pages)},
              {"destination_pages", packed(pages)}};
  return {{"op", "transfer"},
          {"transfers", Json::array({{{"direction", direction},
                                      {"region", "r"},
                                      {"targets", Json::array({{{"node", to}, {"region", "r"}}})},
                                      {"layout", layout},
                                      {"deadline_ms", 2000}}})}};
}

/// Every kind of work, in an order of its own, until told to stop.
void pour(const std::string& endpoint, const std::string& self, const std::string& other,
          unsigned seed, const std::atomic<bool>& stop) {
  Requester requester(endpoint);
  std::mt19937 random(seed);
  const std::vector<Json> requests{{{"op", "allocate"}, {"name", "r"}, {"bytes", kPages * kPage}},
                                   {{"op", "fill"}, {"region", "r"}, {"seed", seed}},
                                   {{"op", "digest"}, {"region", "r"}, {"page_bytes", kPage}},
                                   transfer("write", other),
                                   transfer("read", other),
                                   transfer("write", self),
                                   {{"op", "status"}},
                                   {{"op", "nodes"}},
                                   {{"op", "transfers"}},
                                   {{"op", "regions"}},
                                   {{"op", "subscribe"}, {"topics", {"transfers", "notify"}}},
                                   {{"op", "release"}, {"name", "r"}, {"force", true}}};
  while (!stop) {
    requester.send({{"op", "allocate"}, {"name", "r"}, {"bytes", kPages * kPage}});
    for (int i = 0; i < 30 && !stop; ++i)
      if (!requester.send(requests[random() % requests.size()])) std::this_thread::sleep_for(1ms);
    requester.drop_answers();
    std::this_thread::sleep_for(1ms);
  }
}

TEST(ServiceLife, AStoppedServiceLeavesNoThreadBehind) {
  Folder folder;
  start(folder, "a").reset();  // libraries start what they keep
  const auto before = threads();
  for (int round = 0; round < 3; ++round) {
    auto a = start(folder, "a");
    auto b = start(folder, "b");
    Requester requester(folder.request("a"));
    // Peers know their devices, devices their peers: the interesting case is that they have met.
    for (const auto end = std::chrono::steady_clock::now() + 20s;;) {
      const auto nodes = requester.ask({{"op", "nodes"}});
      if (nodes.is_object() && nodes.dump().find("\"connected\"") != std::string::npos) break;
      ASSERT_LT(std::chrono::steady_clock::now(), end) << nodes.dump();
      std::this_thread::sleep_for(5ms);
    }
  }
  EXPECT_EQ(threads_after(before), before);
}

TEST(ServiceLife, AStopDoesNotWaitForAFillOrDigestInHandNorTripOverIt) {
  Folder folder;
  const std::vector<Json> works{{{"op", "fill"}, {"region", "r"}, {"seed", 1}},
                                {{"op", "digest"}, {"region", "r"}, {"page_bytes", kPage}},
                                transfer("write", "a")};
  start(folder, "a").reset();  // libraries start what they keep
  for (const Json& work : works) {
    Requester requester(folder.request("a"));
    const auto before = threads();
    auto a = start(folder, "a");
    const auto made = requester.ask({{"op", "allocate"}, {"name", "r"}, {"bytes", 512u << 20}});
    ASSERT_TRUE(made.value("ok", false)) << made.dump();
    for (int i = 0; i < 20; ++i) requester.send(work);
    requester.send({{"op", "release"}, {"name", "r"}});  // waits for them
    // Answered in order: the work above was given out before this.
    EXPECT_TRUE(requester.ask({{"op", "hello"}, {"client", "t"}}).value("ok", false));
    a.reset();
    EXPECT_EQ(threads_after(before), before);
  }
}

TEST(ServiceLife, RequestsMayPourInWhileItStartsAndStops) {
  Folder folder;
  const char* wanted = std::getenv("PENSTOCK_LIFE_ROUNDS");
  const int rounds = wanted != nullptr ? std::atoi(wanted) : 10;
  std::atomic<bool> stop{false};
  auto a = start(folder, "a");
  auto b = start(folder, "b");
  std::vector<std::thread> clients;
  for (unsigned i = 0; i < 2; ++i) {
    clients.emplace_back([&, i] { pour(folder.request("a"), "a", "b", i, stop); });
    clients.emplace_back([&, i] { pour(folder.request("b"), "b", "a", 10 + i, stop); });
  }
  std::mt19937 random(1);
  for (int round = 0; round < rounds; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
    auto& one = round % 2 == 0 ? a : b;
    if (round % 5 == 4) one->drain(std::chrono::milliseconds(random() % 50));
    one.reset();
    one = start(folder, round % 2 == 0 ? "a" : "b");
  }
  a.reset();
  b.reset();
  stop = true;
  for (auto& client : clients) client.join();
}

}  // namespace
}  // namespace penstock

#include "tests/client/fake_service.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <zmq.hpp>

namespace penstock::client {
namespace {

using namespace std::chrono_literals;

std::string make_folder() {
  std::string pattern = std::filesystem::temp_directory_path() / "fake-service-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) std::abort();
  return pattern;
}

}  // namespace

FakeService::FakeService() : folder_(make_folder()), endpoint_("ipc://" + folder_ + "/socket") {
  start();
}

FakeService::~FakeService() {
  stop();
  std::filesystem::remove_all(folder_);
}

void FakeService::on(const std::string& operation, Handler handler) {
  std::lock_guard lock(mutex_);
  handlers_[operation] = std::move(handler);
}

void FakeService::start() {
  stopping_ = false;
  thread_ = std::thread([this] { run(); });
}

void FakeService::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void FakeService::send(Json event) {
  event["v"] = 1;
  std::lock_guard lock(mutex_);
  outgoing_.push_back(std::move(event));
}

std::vector<FakeService::Json> FakeService::requests(const std::string& operation) const {
  std::lock_guard lock(mutex_);
  std::vector<Json> found;
  std::ranges::copy_if(requests_, std::back_inserter(found),
                       [&](const Json& request) { return request["op"] == operation; });
  return found;
}

bool FakeService::wait_for(const std::string& operation, std::size_t count) const {
  std::unique_lock lock(mutex_);
  return came_.wait_for(lock, 10s, [&] {
    auto seen = std::ranges::count_if(
        requests_, [&](const Json& request) { return request["op"] == operation; });
    return static_cast<std::size_t>(seen) >= count;
  });
}

FakeService::Json FakeService::answer(const Json& request, bool& silent) {
  auto operation = request["op"].get<std::string>();
  Handler handler;
  {
    std::lock_guard lock(mutex_);
    if (auto found = handlers_.find(operation); found != handlers_.end()) handler = found->second;
  }
  std::optional<Json> body = Json::object();
  if (handler) {
    body = handler(request);
  } else if (operation == "hello") {
    body = Json{{"node", "fake"},
                {"incarnation", incarnation_.load()},
                {"version", 1},
                {"service_version", "test"}};
  }
  silent = !body.has_value();
  Json reply = body.value_or(Json::object());
  reply["v"] = 1;
  reply["id"] = request["id"];
  reply["ok"] = !reply.contains("error");
  return reply;
}

void FakeService::run() {
  zmq::context_t context{1};
  zmq::socket_t router{context, zmq::socket_type::router};
  router.set(zmq::sockopt::linger, 0);
  router.set(zmq::sockopt::router_handover, true);
  router.bind(endpoint_);
  auto send_message = [&](const std::string& client, const Json& message) {
    auto packed = Json::to_msgpack(message);
    router.send(zmq::buffer(client), zmq::send_flags::sndmore);
    router.send(zmq::buffer(packed.data(), packed.size()), zmq::send_flags::none);
  };
  while (!stopping_) {
    zmq::pollitem_t item{router.handle(), 0, ZMQ_POLLIN, 0};
    zmq::poll(&item, 1, 2ms);
    zmq::message_t identity;
    while (router.recv(identity, zmq::recv_flags::dontwait)) {
      zmq::message_t message;
      if (!router.recv(message, zmq::recv_flags::none)) break;
      std::vector<std::uint8_t> bytes(message.data<std::uint8_t>(),
                                      message.data<std::uint8_t>() + message.size());
      auto request = Json::from_msgpack(bytes);
      {
        // Known before it is answered: a test looks when it has the answer.
        std::lock_guard lock(mutex_);
        client_ = identity.to_string();
        requests_.push_back(request);
        came_.notify_all();
      }
      bool silent = false;
      auto reply = answer(request, silent);
      if (!silent) send_message(identity.to_string(), reply);
    }
    std::vector<Json> outgoing;
    std::string client;
    {
      std::lock_guard lock(mutex_);
      if (!client_.empty()) outgoing.swap(outgoing_);
      client = client_;
    }
    for (const auto& event : outgoing) send_message(client, event);
  }
}

}  // namespace penstock::client

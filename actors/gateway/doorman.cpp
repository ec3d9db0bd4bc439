#include "actors/gateway/doorman.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace penstock {
namespace {

constexpr const char* kZapEndpoint = "inproc://zeromq.zap.01";
constexpr const char* kDomain = "penstock";
constexpr const char* kLocalDomain = "penstock.local";  // ipc: whoever comes is let in
constexpr int kMostAtOnce = 256;
/// ZMQ_ZAP_ENFORCE_DOMAIN, which zmq.h names among the drafts alone, and the library knows.
constexpr zmq::sockopt::integral_option<93, int, true> kEnforceDomain;
// The frames of a request of ZAP, in order.
enum Frame : std::size_t { kVersion, kRequestId, kZone, kAddress, kIdentity, kMechanism, kKey };

Key key_of_bytes(const std::string& bytes) {
  Key key{};
  std::memcpy(key.data(), bytes.data(), std::min(bytes.size(), key.size()));
  return key;
}

}  // namespace

std::string property_of(zmq::message_t& message, const char* name) {
  const char* value = zmq_msg_gets(message.handle(), name);
  return value == nullptr ? "" : value;
}

Doorman::Doorman(zmq::context_t& context, std::optional<KeyPair> keys, AllowList clients,
                 Audit& audit)
    : keys_(std::move(keys)),
      audit_(audit),
      clients_(std::make_shared<const AllowList>(std::move(clients))) {
  if (!keys_) return;
  zap_ = zmq::socket_t(context, zmq::socket_type::rep);
  zap_.set(zmq::sockopt::linger, 0);
  zap_.bind(kZapEndpoint);
}

void Doorman::allow(AllowList clients) {
  clients_ = std::make_shared<const AllowList>(std::move(clients));
}

void Doorman::prepare(zmq::socket_t& router, const std::string& endpoint) const {
  if (!keys_) return;
  const bool guarded = !endpoint.starts_with("ipc://");
  router.set(zmq::sockopt::zap_domain, guarded ? kDomain : kLocalDomain);
  // Where nobody answers, nobody is let in: libzmq would take any key then.
  router.set(kEnforceDomain, 1);
  if (guarded) {
    const Key& secret = keys_->secret_key;
    router.set(zmq::sockopt::curve_secretkey, zmq::buffer(secret.data(), secret.size()));
  }
  router.set(zmq::sockopt::curve_server, guarded);
}

bool Doorman::receive(Frames& frames) {
  zmq::message_t part;
  do {
    if (!zap_.recv(part, zmq::recv_flags::dontwait)) return false;
    frames.push_back(part.to_string());
  } while (part.more());
  return true;
}

bool Doorman::is_known(const Frames& request) const {
  return request.size() == kKey + 1 && request[kMechanism] == "CURVE" &&
         request[kKey].size() == Key().size() &&
         clients_.load()->find(key_of_bytes(request[kKey])) != nullptr;
}

void Doorman::serve() {
  if (!keys_) return;
  for (int i = 0; i < kMostAtOnce; ++i) {
    Frames request;
    if (!receive(request)) return;
    request.resize(std::max<std::size_t>(request.size(), kKey + 1));
    const bool local = request[kZone] == kLocalDomain && request[kMechanism] == "NULL";
    const bool known = local || is_known(request);
    const std::string user = known && !local ? z85_of(key_of_bytes(request[kKey])) : "";
    if (!known)
      audit_.refused(request[kAddress], request[kMechanism] == "CURVE"
                                            ? "its key " + z85_of(key_of_bytes(request[kKey])) +
                                                  " is not on the allow-list"
                                            : "it shows no key");
    const Frames reply{"1.0",
                       request[kRequestId],
                       known ? "200" : "400",
                       known ? "" : "not on the allow-list",
                       user,
                       ""};
    for (std::size_t part = 0; part < reply.size(); ++part)
      zap_.send(zmq::buffer(reply[part]),
                part + 1 < reply.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
}

std::optional<Principal> Doorman::asker(zmq::message_t& message) const {
  if (!keys_) return Principal{"", Role::kAdmin};
  const std::string user = property_of(message, "User-Id");
  if (user.empty()) return Principal{"", Role::kAdmin};  // ipc
  const auto key = key_of_z85(user);
  const auto clients = clients_.load();
  const Principal* found = key ? clients->find(*key) : nullptr;
  if (found == nullptr) return std::nullopt;
  return *found;
}

}  // namespace penstock

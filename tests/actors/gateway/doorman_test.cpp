#include "actors/gateway/doorman.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace penstock {
namespace {

// When a service ends, its doorman may go a moment before the socket that he guards.
TEST(ADoorman, WhoIsGoneLetsNobodyIn) {
  zmq::context_t context;
  Audit audit(0);
  const KeyPair service = make_key_pair();
  const KeyPair stranger = make_key_pair();
  zmq::socket_t router(context, zmq::socket_type::router);
  router.set(zmq::sockopt::linger, 0);
  router.set(zmq::sockopt::rcvtimeo, 300);
  std::optional<Doorman> doorman;
  doorman.emplace(context, service, AllowList(), audit);
  doorman->prepare(router, "tcp://127.0.0.1:*");
  router.bind("tcp://127.0.0.1:*");
  doorman.reset();

  zmq::socket_t dealer(context, zmq::socket_type::dealer);
  dealer.set(zmq::sockopt::linger, 0);
  const auto bytes = [](const Key& key) { return zmq::buffer(key.data(), key.size()); };
  dealer.set(zmq::sockopt::curve_secretkey, bytes(stranger.secret_key));
  dealer.set(zmq::sockopt::curve_publickey, bytes(stranger.public_key));
  dealer.set(zmq::sockopt::curve_serverkey, bytes(service.public_key));
  dealer.connect(router.get(zmq::sockopt::last_endpoint));
  dealer.send(zmq::str_buffer("let me in"), zmq::send_flags::none);
  zmq::message_t message;
  EXPECT_FALSE(router.recv(message));
}

}  // namespace
}  // namespace penstock

// Somebody at the fabric port of a real service: without the seal it gets no answer, and so no key.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <optional>
#include <thread>

#include "actors/device/warm_up.hpp"
#include "actors/membership/gossip_socket.hpp"
#include "actors/node/service.hpp"
#include "actors/peer/peer.hpp"
#include "actors/settings/settings.hpp"
#include "transport/fabric/provider.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr Incarnation kOurs = 4242;

/// A card on loopback that sends what it likes and keeps what comes.
class Card {
 public:
  Card() {
    auto opened = open_card({"tcp", "lo", "127.0.0.1", -1, "", false});
    if (!opened) throw std::runtime_error(opened.error().message);
    nic_ = std::move(*opened);
  }
  FabricAddress address() const { return nic_->control_address(); }
  void send(const FabricAddress& to, std::span<const std::byte> bytes) {
    if (!peer_) peer_ = nic_->add_peer(to).value();
    contexts_.emplace_back();
    const auto end = Clock::now() + 10s;
    while (nic_->send(*peer_, bytes, &contexts_.back()).status == PostStatus::kAgain &&
           Clock::now() < end)
      poll();
  }
  void poll() {
    std::array<Completion, 16> completions;
    const std::size_t count = nic_->poll(completions);
    for (std::size_t i = 0; i < count; ++i)
      if (completions[i].kind == Completion::Kind::kMessage)
        came.emplace_back(completions[i].payload.begin(), completions[i].payload.end());
    if (count == 0) std::this_thread::sleep_for(1ms);
  }

  std::deque<std::vector<std::byte>> came;

 private:
  std::unique_ptr<Nic> nic_;
  std::optional<PeerHandle> peer_;
  std::deque<OperationContext> contexts_;
};

class AStrangerAtTheFabricPort : public testing::Test {
 protected:
  AStrangerAtTheFabricPort() {
    std::string name = (std::filesystem::temp_directory_path() / "penstock-stranger-XXXXXX");
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
    cluster_ = write_key_files(folder_ / "cluster.key").value();
    const auto settings = load_settings(
        "", {"node.name=a", "request.bind=ipc://" + (folder_ / "a.ipc").string(),
             "gossip.bind=tcp://127.0.0.1:*", "fabric.cards=[{domain: lo, address: 127.0.0.1}]",
             "devices.pin=false", "devices.gpus=none", "metrics.endpoint=off",
             "security.cluster_key_file=" + (folder_ / "cluster.key").string()});
    if (!settings) throw std::runtime_error(settings.error().message);
    auto started = Service::start(*settings);
    if (!started) throw std::runtime_error(started.error().message);
    service_ = std::move(*started);
    join();
  }
  ~AStrangerAtTheFabricPort() override {
    gossip_.reset();
    service_.reset();
    std::filesystem::remove_all(folder_);
  }

  /// By gossip, as a member: that is how everything but the secrets is known here.
  void join() {
    const std::string banner = service_->banner();
    const std::size_t at = banner.find("tcp://", banner.find("gossip"));
    GossipSocket::Setup setup;
    setup.bind = "tcp://127.0.0.1:*";
    setup.keys = cluster_;
    setup.options.seeds = {banner.substr(at, banner.find('\n', at) - at)};
    setup.self.node = "x";
    setup.self.incarnation = kOurs;
    setup.self.provider = "tcp";
    setup.self.cards = {{"host0", 0, "lo", card_.address()}};
    for (const std::uint8_t byte : session_.public_key)
      setup.self.fabric_key.push_back(static_cast<std::byte>(byte));
    gossip_ = GossipSocket::start(std::move(setup)).value();
    const auto end = Clock::now() + 20s;
    // That it is there may be known before its record has come.
    do {
      std::this_thread::sleep_for(5ms);
      if (const auto members = gossip_->members(); !members.empty()) theirs_ = members[0].record;
    } while (theirs_.cards.empty() && Clock::now() < end);
  }

  Message question() const {
    Message message;
    message.source = kOurs;
    message.destination = theirs_.incarnation;
    message.sequence = 7;
    Open open;
    open.transfer = 1;
    open.region = scratch_of(theirs_.cards.at(0).device);
    open.end = open.bytes = 8;
    open.lease_ms = 1000;
    message.body = Question(open);
    return message;
  }
  /// Peers greet each other; anything else would be an answer.
  bool was_answered(std::chrono::milliseconds patience) {
    const auto end = Clock::now() + patience;
    while (Clock::now() < end) card_.poll();
    bool answered = false;
    for (const auto& bytes : std::exchange(card_.came, {})) {
      const auto message = decode_sealed_message(bytes);
      const auto* asked = message ? std::get_if<Question>(&message->body) : nullptr;
      answered = answered || asked == nullptr || !std::holds_alternative<Hello>(*asked);
    }
    return answered;
  }

  std::filesystem::path folder_;
  KeyPair cluster_;
  KeyPair session_ = make_key_pair();
  std::unique_ptr<Service> service_;
  std::unique_ptr<GossipSocket> gossip_;
  Card card_;
  MemberRecord theirs_;
};

TEST_F(AStrangerAtTheFabricPort, IsNeverAnswered) {
  const auto bytes = *encode(question());
  const FabricAddress port = theirs_.cards.at(0).control;
  card_.send(port, bytes);  // not sealed
  auto sealed = bytes;
  Key peer{};
  std::memcpy(peer.data(), theirs_.fabric_key.data(), peer.size());
  // The cluster's key without the session's, and the other way round.
  for (const Seal::Secrets& secrets :
       {Seal::Secrets{make_key_pair().secret_key, cluster_.secret_key},
        Seal::Secrets{session_.secret_key, make_key_pair().secret_key}}) {
    sealed = bytes;
    Seal(secrets, peer).close(sealed, Seal::Challenge{});
    card_.send(port, sealed);
  }
  card_.send(port, std::vector<std::byte>(100, std::byte{0xff}));
  EXPECT_FALSE(was_answered(500ms));
}

// The same card with both secrets: so it is the seal that matters above.
TEST_F(AStrangerAtTheFabricPort, IsAnsweredOnceItIsAMember) {
  Peer::Options options;
  options.node = "x";
  options.incarnation = kOurs;
  options.devices = {{"host0", 1}};
  options.secrets = {session_.secret_key, cluster_.secret_key};
  LinkId links = 0;
  std::optional<Result<Answer>> answer;
  Peer::Port port;
  port.command = [&](std::size_t, PollerCommand command) {
    if (const auto* send = std::get_if<SendMessage>(&command))
      card_.send(theirs_.cards.at(0).control, send->payload);
  };
  port.new_link = [&] { return ++links; };
  port.answered = [&](std::uint64_t, Result<Answer> came) { answer = std::move(came); };
  port.asked = [](std::uint64_t, const Question&, std::optional<TimePoint>) {};
  port.up = [] {};
  port.inbound_cards = [] { return std::vector<DeviceCards>{}; };
  Peer peer(theirs_, options, port);
  peer.start(Clock::now());
  peer.ask(1, std::get<Question>(question().body), Clock::now() + 10s, Clock::now());
  const auto end = Clock::now() + 20s;
  while (!answer && Clock::now() < end) {
    card_.poll();
    for (const auto& bytes : std::exchange(card_.came, {})) {
      auto message = decode_sealed_message(bytes);
      EXPECT_TRUE(message && peer.receive(std::move(*message), Clock::now()));
    }
    peer.tick(Clock::now());
  }
  ASSERT_TRUE(answer.has_value());
  ASSERT_TRUE(*answer) << answer->error().message;
  EXPECT_TRUE(std::holds_alternative<OpenOk>(**answer));
}

}  // namespace
}  // namespace penstock

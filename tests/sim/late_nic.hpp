// A simulated card behind a worse wire: messages get lost, and a write that its initiator saw fail
// or cut off may still land later, for as long as the inbound endpoint that it went to is open.
// That is what a TCP stack does with what it had already taken.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "tests/sim/sim_nic.hpp"

namespace penstock::sim {

class LateNic;

/// What the cards of one simulation share.
struct Wire {
  explicit Wire(SimNetwork& on) : network(on) {}
  SimNetwork& network;
  double message_loss = 0;
  /// In its place where it depends on the hosts. May be left out.
  std::function<double(std::uint32_t, std::uint32_t)> loss_between{};
  /// Of the messages that are lost some arrive after all, within `held_most`: a line held them up
  /// while those that were sent later took another.
  double held_chance = 0;
  std::chrono::nanoseconds held_most = std::chrono::seconds(3);
  /// Of the messages that arrive some arrive once more, within `duplicate_most`.
  double duplicate_chance = 0;
  std::chrono::nanoseconds duplicate_most = std::chrono::milliseconds(300);
  /// A write that failed or was cut off lands all the same, within `late_most`.
  double late_chance = 0;
  std::chrono::nanoseconds late_most = std::chrono::milliseconds(50);
  /// Late bytes need a key that is still valid (efa, verbs), not an endpoint that is still open.
  bool key_guards = false;
  std::uint64_t landed_late = 0;
  std::map<std::uint64_t, LateNic*> inbound;           // open endpoints, by handle
  std::map<std::uint64_t, LateNic*> control;           // likewise
  std::set<const LateNic*> cards;                      // that exist
  std::map<std::uint64_t, std::span<std::byte>> keys;  // registered memory
};

class LateNic final : public Nic {
 public:
  LateNic(Wire& wire, SimNicOptions options);
  ~LateNic() override;

  SimNic& card() { return card_; }
  const SimNic& card() const { return card_; }
  /// The card is dead at once; what its machine had taken may still land elsewhere.
  void die();
  /// It works again, as if it had only been unplugged.
  void revive();
  /// Its machine is gone: no revive() brings it back.
  void bury();
  /// A message arrives, from wherever.
  void arrive(std::vector<std::byte> message);
  /// Times that the outbound endpoint was reopened.
  std::uint64_t reopens() const { return reopens_; }

  const NicInfo& info() const override { return card_.info(); }
  FabricAddress control_address() const override { return card_.control_address(); }
  FabricAddress inbound_address() const override { return card_.inbound_address(); }
  std::uint32_t inbound_generation() const override { return card_.inbound_generation(); }
  Result<PeerHandle> add_peer(const FabricAddress& address) override {
    return card_.add_peer(address);
  }
  void remove_peer(PeerHandle peer) override { card_.remove_peer(peer); }
  Post post(const OneSided& operation, OperationContext* context) override;
  Post send(PeerHandle peer, std::span<const std::byte> payload,
            OperationContext* context) override;
  std::size_t poll(std::span<Completion> completions) override;
  bool may_wait() override { return ready_.empty() && card_.may_wait(); }
  Result<void> reopen_outbound() override;
  Result<void> reopen_inbound() override;
  Result<std::unique_ptr<MemoryRegistration>> register_memory(std::span<std::byte> memory) override;

 private:
  struct Ready {
    Completion completion;
    std::vector<std::byte> payload;
  };
  class Registration;

  bool loses(PeerHandle peer) const;
  void arrive_later(PeerHandle peer, std::span<const std::byte> payload,
                    std::chrono::nanoseconds most);
  /// In the order of their posting: the same on every run.
  std::vector<OneSided> operations_out() const;
  /// Takes note of a completion of the card below.
  void ended(const Completion& completion);
  void land_late(const OneSided& operation);
  static void arrive_late(Wire& wire, LateNic* from, LateNic* to, const OneSided& operation,
                          std::byte* remote, std::vector<std::byte> bytes);

  Wire& wire_;
  SimNic card_;
  bool dead_ = false;
  bool buried_ = false;
  std::uint64_t inbound_ = 0;
  std::uint64_t reopens_ = 0;
  struct Out {
    std::uint64_t number;
    OneSided operation;
  };
  std::map<OperationContext*, Out> out_;
  std::uint64_t next_number_ = 0;
  std::deque<Ready> ready_;
  std::vector<Ready> lent_;
};

}  // namespace penstock::sim

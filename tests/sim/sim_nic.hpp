// A simulated card: depth and EAGAIN per peer, latency, bandwidth, any order of delivery, failing
// operations, death, stalls. Bytes really move between the registered memories, at their delivery.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/sim/sim_network.hpp"

namespace penstock::sim {

struct SimNicOptions {
  std::string name = "sim0";
  /// Operations that one peer takes before the card says EAGAIN.
  std::size_t depth_per_peer = 64;
  /// Says EAGAIN for this share of the posts besides.
  double again_chance = 0;
  /// How long the first post to a peer says EAGAIN.
  std::chrono::nanoseconds connect{0};
  std::chrono::nanoseconds latency = std::chrono::microseconds(10);
  /// Added at random to each operation: deliveries overtake one another.
  std::chrono::nanoseconds jitter{0};
  double bytes_per_second = 10e9;
  /// Operations that end as errors; a failed write may still have landed.
  double failure_chance = 0;
  /// Completions given out by one poll, at most.
  std::size_t poll_batch = 16;
  std::uint64_t max_chunk_bytes = 1u << 20;
  std::size_t local_pieces = 1;
  bool immediate_data = true;
  /// The machine that it is in (SimNetwork::apart).
  std::uint32_t host = 0;
  /// The addresses that it opens with, as a process that starts again at the same ports does. 0:
  /// new ones.
  std::uint64_t control_address = 0;
  std::uint64_t inbound_address = 0;
};

class SimNic final : public Nic {
 public:
  SimNic(SimNetwork& network, SimNicOptions options);
  ~SimNic() override;

  // -- faults ------------------------------------------------------------------------------------
  /// Everything under way to it ends as an error at its initiator; nothing arrives any more.
  void die();
  /// As die(), and nobody is left who would want to hear of what was under way.
  void vanish() {
    die();
    outstanding_.clear();
  }
  /// After die(): it works again, with the endpoints that it has.
  void revive() { dead_ = false; }
  /// While stalled, nothing that goes to or from this card is delivered, well or badly; messages
  /// neither.
  void stall(bool stalled);
  bool stalled() const { return stalled_; }
  /// The next `count` operations posted here end as errors, without landing.
  void fail_next(std::size_t count) { fail_next_ = count; }
  /// Every post is refused for good.
  void refuse_posts(bool refuse) { refuse_posts_ = refuse; }
  void fail_reopen(bool fail) { fail_reopen_ = fail; }
  SimNicOptions& options() { return options_; }
  const SimNicOptions& options() const { return options_; }

  // -- what a test asks --------------------------------------------------------------------------
  std::uint64_t posts() const { return posts_; }
  std::uint64_t posts_to(PeerHandle peer) const;
  std::uint64_t bytes_to(PeerHandle peer) const;
  std::size_t out() const { return outstanding_.size(); }
  std::size_t peers() const { return peer_uses_.size(); }
  /// Handles that were added and not removed.
  std::vector<PeerHandle> peer_handles() const;
  const std::vector<OneSided>& history() const { return history_; }
  void keep_history() { keep_history_ = true; }

  // -- Nic ---------------------------------------------------------------------------------------
  const NicInfo& info() const override { return info_; }
  FabricAddress control_address() const override;
  FabricAddress inbound_address() const override;
  std::uint32_t inbound_generation() const override { return generation_; }
  Result<PeerHandle> add_peer(const FabricAddress& address) override;
  void remove_peer(PeerHandle peer) override;
  Post post(const OneSided& operation, OperationContext* context) override;
  Post send(PeerHandle peer, std::span<const std::byte> payload,
            OperationContext* context) override;
  std::size_t poll(std::span<Completion> completions) override;
  bool may_wait() override { return ready_.empty(); }
  Result<void> reopen_outbound() override;
  Result<void> reopen_inbound() override;
  Result<std::unique_ptr<MemoryRegistration>> register_memory(std::span<std::byte> memory) override;

 private:
  struct Ready {
    Completion completion;
    std::vector<std::byte> payload;
    bool one_sided = false;
  };
  class Registration;

  /// Nothing happens when the card is gone by then.
  void after(std::chrono::nanoseconds time, std::function<void()> action);
  void deliver(std::uint64_t number);
  void deliver_message(PeerHandle peer, std::vector<std::byte> payload, OperationContext* context);
  bool land(const OneSided& operation, SimNic* target);
  void complete(OperationContext* context, bool ok, bool one_sided);
  SimNic* target_of(PeerHandle peer, SimNetwork::Role role);
  bool connected(PeerHandle peer);
  std::chrono::nanoseconds delay_of(std::uint64_t bytes);

  struct Outstanding {
    OneSided operation;
    OperationContext* context;
    bool fails;
  };

  SimNetwork& network_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  SimNicOptions options_;
  NicInfo info_;
  std::uint64_t control_ = 0;
  std::uint64_t inbound_ = 0;
  std::uint32_t generation_ = 1;
  bool dead_ = false;
  bool stalled_ = false;
  std::size_t fail_next_ = 0;
  bool refuse_posts_ = false;
  bool fail_reopen_ = false;
  bool keep_history_ = false;

  SimNetwork::Time line_free_;
  std::map<std::uint64_t, Outstanding> outstanding_;  // one-sided, by number
  std::map<PeerHandle, std::size_t> out_per_peer_;
  std::map<PeerHandle, SimNetwork::Time> connected_at_;
  std::map<PeerHandle, std::size_t> peer_uses_;
  std::map<PeerHandle, std::pair<std::uint64_t, std::uint64_t>> sent_per_peer_;  // posts, bytes
  std::deque<Ready> ready_;
  std::vector<Ready> lent_;  // payloads that the last poll gave out
  std::uint64_t posts_ = 0;
  std::vector<OneSided> history_;
};

}  // namespace penstock::sim

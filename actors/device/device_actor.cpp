#include "actors/device/device_actor.hpp"

#include <spdlog/spdlog.h>

#include <unordered_map>
#include <utility>

#include "actors/messages.hpp"
#include "actors/node/gpu_device.hpp"
#include "actors/wire/message.hpp"
#include "transport/memory/copy.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kCopySliceBytes = 4u << 20;

/// On the copier's thread. The kernel's end is told from another.
void run_kernel(LocalDevice& on, const CopyTask& task, const caf::actor& device) {
  start_kernel_copy(on, task,
                    [id = task.transfer, plan = task.plan, device](Result<std::uint64_t> bytes) {
                      CopyEnded ended;
                      ended.transfer = id;
                      if (bytes && *bytes == plan->bytes()) ended.chunks = plan->chunks();
                      if (bytes) ended.bytes = *bytes;
                      if (!bytes) ended.error = bytes.error();
                      tell(device, std::move(ended));
                    });
}

/// On the copier's thread: slices, so that a cancel is seen soon.
void run_copy(const CopyTask& task, const caf::actor& device) {
  const auto source = (*task.source)->memory->bytes();
  const auto destination = (*task.destination)->memory->bytes();
  Cursor cursor(*task.plan);
  CopyEnded ended;
  ended.transfer = task.transfer;
  while (!cursor.done() && !task.stop->load(std::memory_order_relaxed)) {
    const CopyProgress slice = copy_slice(cursor, source, destination, kCopySliceBytes, *task.stop);
    ended.bytes += slice.bytes;
    ended.chunks += slice.chunks;
  }
  tell(device, ended);
}

class DeviceActor : public caf::event_based_actor {
 public:
  DeviceActor(caf::actor_config& config, DeviceActorSetup setup)
      : caf::event_based_actor(config),
        setup_(std::move(setup)),
        outbound_(setup_.outbound, outbound_port()),
        inbound_(setup_.inbound, setup_.device->inbound->cards(), *setup_.regions,
                 setup_.device->staging, inbound_port()) {}

  caf::behavior make_behavior() override {
    return {
        // Those of small transfers first: CAF tries them in turn.
        [this](const Admit& admit) {
          outbound_.admit(std::move(*admit.admitted), Clock::now());
          schedule();
        },
        [this](const PollerRang&) {
          take_events();
          schedule();
        },
        [this](const PeerAnswered& answered) {
          outbound_.answered(answered.token, std::move(*answered.answer),
                             std::move(*answered.links), Clock::now());
          schedule();
        },
        [this](const PeerAsked& asked) {
          answer(asked);
          schedule();
        },
        [this](const CancelTransfer& cancel) {
          outbound_.cancel(cancel.transfer, Clock::now());
          schedule();
        },
        [this](const EvictRegion& evict) {
          outbound_.cancel_region(evict.region, Clock::now());
          inbound_.revoke(evict.region, Clock::now());
          schedule();
        },
        [this](const PeerKnown& known) { peers_[known.peer] = known.actor; },
        [this](const PeerUp& up) {
          peers_[up.peer] = up.actor;
          outbound_.peer_up(up.node, up.peer, Clock::now());
          warm_up(up);
          schedule();
        },
        [this](const PeerDown& down) {
          outbound_.peer_down(down.node, down.peer, down.error, down.gone, Clock::now());
          inbound_.peer_down(down.peer, down.error, Clock::now());
          peers_.erase(down.peer);
          schedule();
        },
        [this](const ForgetTransfer& forget) {
          const auto found = peers_.find(forget.peer);
          if (found == peers_.end()) return;  // it crossed the peer's end
          inbound_.forget(forget.peer, forget.transfer, Clock::now());
          tell(found->second, Forgotten{forget.sequence});
          schedule();
        },
        [this](const GiveUpInbound& given_up) {
          inbound_.give_up(given_up.peer, given_up.shadow, given_up.error, Clock::now());
          schedule();
        },
        [this](const CopyEnded& ended) {
          outbound_.copied(ended.transfer, ended.bytes, ended.chunks, Clock::now(), ended.error);
          schedule();
        },
        [this](const RegionRekeyed& rekeyed) {
          inbound_.rekeyed(rekeyed.region, rekeyed.nic, Clock::now());
          schedule();
        },
        [this](const LinksBack& back) {
          outbound_.links_back(back.peer, back.remote_device, *back.links);
          schedule();
        },
        [this](const AskSnapshot&) {
          const auto& staging = setup_.device->staging;
          return DeviceSnapshot{outbound_.snapshot(), inbound_.open_count(), outbound_.counters(),
                                staging ? staging->lent() : 0};
        },
        [this](const AskOpenFor& ask) {
          return OpenFor{inbound_.is_open_for(ask.peer, ask.shadow)};
        },
        [this](const AskUnfinished& ask) {
          return UnfinishedTransfer{std::make_shared<std::optional<Outbound::Unfinished>>(
              outbound_.unfinished(ask.transfer, Clock::now()))};
        },
        [this](const DrainDevice&) { inbound_.drain(); },
        [this](const Tick&) {
          ticking_ = TimePoint::max();
          outbound_.tick(Clock::now());
          inbound_.tick(Clock::now());
          schedule();
        },
    };
  }

  /// Node, peers and devices hold one another.
  void on_exit() override {
    peers_.clear();
    setup_.node = nullptr;
    setup_.nics.clear();
  }

 private:
  /// Where the node accepted the transfer when that thread is still awake: it has the node's state
  /// in its cache, and nobody else touches it meanwhile.
  template <class Message>
  void tell_node(Message message) {
    const auto& desk = setup_.desk_thread;
    if (desk && desk->willing())
      desk->tell(setup_.node, std::move(message));
    else
      tell_next(setup_.node, std::move(message));
  }

  Outbound::Port outbound_port() {
    return {
        .command = [this](PollerCommand command) { push(std::move(command)); },
        .ask =
            [this](Incarnation peer, std::uint64_t token, Question question, TimePoint deadline) {
              if (auto found = peers_.find(peer); found != peers_.end())
                return tell_next(found->second, PeerAsk{setup_.device->index, token,
                                                        std::move(question), deadline});
              if (token != 0) no_peer(token);
            },
        .copy =
            [this](CopyTask task) {
              if (is_on_gpus(task)) return run_kernel(*setup_.device, task, caf::actor(this));
              setup_.device->copier->post(
                  [task = std::move(task), device = setup_.device, self = caf::actor(this)] {
                    if (needs_kernel(task)) return run_kernel(*device, task, self);
                    run_copy(task, self);
                  });
            },
        .make_visible = [](const Region& region) { make_visible(region); },
        .notify =
            [this](Notification notification) { tell_node(Notified{std::move(notification)}); },
        .ended =
            [this](TransferResult result) {
              tell_node(TransferEnded{std::make_shared<TransferResult>(std::move(result))});
            },
    };
  }

  Inbound::Port inbound_port() {
    return {
        .command = [this](PollerCommand command) { push(std::move(command)); },
        .answer =
            [this](Incarnation peer, std::uint64_t sequence, Answer answer) {
              if (auto found = peers_.find(peer); found != peers_.end())
                tell_next(found->second, PeerAnswer{sequence, std::move(answer)});
            },
        .revoke =
            [this](Incarnation peer, Revoke revoke) {
              if (auto found = peers_.find(peer); found != peers_.end())
                tell(found->second, PeerAsk{setup_.device->index, 0, std::move(revoke),
                                            Clock::now() + setup_.inbound.grace_max});
            },
        .notify =
            [this](Notification notification) { tell_node(Notified{std::move(notification)}); },
        .rekey = [this](std::shared_ptr<Region> region,
                        std::uint16_t nic) { rekey(std::move(region), nic); },
        .make_visible = [](const Region& region) { make_visible(region); },
        .waits_for = [this](TransferId shadow) { return setup_.shadows->contains(shadow); },
        .broken =
            [this](Incarnation, TransferId transfer, const Error& error) {
              spdlog::warn("{}: inbound transfer {} was fenced by us: {}", setup_.device->name,
                           transfer, error.message);
            },
    };
  }

  void warm_up(const PeerUp& up) {
    if (!setup_.warm_up) return;
    auto use = setup_.regions->use(scratch_of(setup_.device->name));
    if (!use) return;
    const auto scratch = std::make_shared<RegionUse>(std::move(*use));
    for (const std::string& device : up.devices)
      outbound_.warm_up(up.peer, up.node, device, scratch, Clock::now());
  }

  void push(PollerCommand command) { setup_.device->poller->push(std::move(command)); }

  /// The peer is gone already; the answer must not come from within the question.
  void no_peer(std::uint64_t token) {
    const Error error{ErrorCode::kPeerLeft, "the peer is gone"};
    tell(
        caf::actor(this),
        PeerAnswered{token, std::make_shared<Result<Answer>>(tl::unexpected(error)),
                     std::make_shared<Result<std::vector<Peer::PathCard>>>(tl::unexpected(error))});
  }

  void answer(const PeerAsked& asked) {
    if (!peers_.contains(asked.peer)) return;  // it crossed the peer's end: nobody waits
    const TimePoint now = Clock::now();
    if (auto* open = std::get_if<Open>(&asked.question))
      return inbound_.open(asked.peer, asked.node, asked.sequence, *open, asked.links,
                           asked.asked_at, now);
    if (auto* fin = std::get_if<Fin>(&asked.question))
      return inbound_.fin(asked.peer, asked.sequence, *fin, now);
    if (auto* fence = std::get_if<Fence>(&asked.question))
      return inbound_.fence(asked.peer, asked.sequence, *fence, now);
    if (auto* revoke = std::get_if<Revoke>(&asked.question))
      return outbound_.revoked(asked.peer, revoke->region, revoke->epoch, now);
  }

  void rekey(std::shared_ptr<Region> region, std::uint16_t nic) {
    setup_.device->registrar->post(
        [device = setup_.device, region = std::move(region), nic, self = caf::actor(this)] {
          region->void_key(nic);
          auto fresh = register_with(device->poller->nic(nic), *region->memory);
          if (fresh)
            region->set_key(nic, std::move(*fresh));
          else
            spdlog::error("{}: region '{}' is without card {} from now on: {}", device->name,
                          region->name, device->card_names[nic], fresh.error().message);
          tell(self, RegionRekeyed{region->name, nic});
        });
  }

  void take_events() {
    for (auto& event : setup_.device->poller->take_events())
      std::visit([this](auto& one) { happened(one); }, event);
  }

  void happened(QuantumDone& event) { outbound_.quantum_done(event); }
  void happened(TransferIdle& event) { outbound_.idle(event, Clock::now()); }
  void happened(PackedDisarmed& event) { inbound_.disarmed(event.tag, Clock::now()); }
  void happened(ImmediateComplete& event) { inbound_.counted(event.immediate, Clock::now()); }
  void happened(LinkFailed& event) {
    for (auto& [incarnation, peer] : peers_) tell(peer, LinkTrouble{event.link, event.error});
  }
  void happened(InboundReopened& event) {
    inbound_.reopened(event, Clock::now());
    setup_.device->inbound->update(inbound_.cards());
    for (auto& [incarnation, peer] : peers_) tell(peer, InboundMoved{});
  }
  void happened(NicState& event) {
    if (event.nic < setup_.nics.size()) tell(setup_.nics[event.nic], NicChanged{event});
    for (auto& [incarnation, peer] : peers_)
      tell(peer, OurCardChanged{setup_.device->index, event.nic, event.up});
  }
  void happened(LinkStill& event) {
    for (auto& [incarnation, peer] : peers_) tell(peer, LinkStandsStill{event.link});
  }
  void happened(MessageReceived& event) {
    auto message =
        setup_.sealed ? decode_sealed_message(event.payload) : decode_message(event.payload);
    if (!message) {
      ++malformed_;
      return;
    }
    if (message->destination != setup_.incarnation) {
      ++stale_;  // meant for the service that ran here before
      return;
    }
    if (auto found = peers_.find(message->source); found != peers_.end())
      return tell_next(found->second, PeerReceive{std::move(*message)});
    tell(setup_.node, StrangerSpoke{std::move(*message)});
  }

  /// One tick is under way at most, unless an earlier one became due.
  void schedule() {
    const TimePoint next = std::min(outbound_.next_tick(), inbound_.next_tick());
    if (next >= ticking_) return;
    ticking_ = next;
    tell_at(this, next, Tick{});
  }

  DeviceActorSetup setup_;
  std::unordered_map<Incarnation, caf::actor> peers_;
  Outbound outbound_;
  Inbound inbound_;
  TimePoint ticking_ = TimePoint::max();
  std::uint64_t malformed_ = 0;
  std::uint64_t stale_ = 0;
};

}  // namespace

caf::actor spawn_device(caf::actor_system& system, DeviceActorSetup setup) {
  return system.spawn<DeviceActor>(std::move(setup));
}

}  // namespace penstock

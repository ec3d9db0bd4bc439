#include "actors/peer/peer_actor.hpp"

#include <spdlog/spdlog.h>

#include <atomic>
#include <map>
#include <unordered_map>
#include <utility>

#include "actors/messages.hpp"
#include "actors/node/page_digests.hpp"

namespace penstock {
namespace {

constexpr Milliseconds kDrainAnswer{3000};

/// Third-party transfers are the node's.
bool is_for_node(const Question& question) {
  return std::holds_alternative<Delegate>(question) ||
         std::holds_alternative<StopDelegated>(question) ||
         std::holds_alternative<LookAtDelegated>(question) ||
         std::holds_alternative<DelegatedEnded>(question);
}

LinkId new_link() {
  static std::atomic<LinkId> next{1};
  return next.fetch_add(1);
}

class PeerActor : public caf::event_based_actor {
 public:
  PeerActor(caf::actor_config& config, PeerActorSetup setup)
      : caf::event_based_actor(config),
        setup_(std::move(setup)),
        peer_(setup_.record, setup_.options, port()) {}

  caf::behavior make_behavior() override {
    peer_.start(Clock::now());
    settle();
    return {
        [this](PeerReceive& received) {
          if (!peer_.receive(std::move(received.message), Clock::now()) && setup_.audit)
            setup_.audit->refused(
                "a message over the fabric",
                "it says it is from node '" + setup_.record.node + "' and its seal does not fit");
          settle();
        },
        [this](PeerAsk& ask) {
          const std::uint64_t token = next_token_++;
          if (ask.token != 0) {
            const auto* fence = std::get_if<Fence>(&ask.question);
            askers_.emplace(token, Asker{ask.device, ask.token, fence ? fence->device : ""});
          }
          peer_.ask(token, std::move(ask.question), ask.deadline, Clock::now());
          settle();
        },
        [this](PeerAnswer& answer) {
          peer_.answer(answer.sequence, std::move(answer.answer), Clock::now());
          settle();
        },
        [this](const Forgotten& forgotten) {
          const auto waiting = forgetting_.find(forgotten.sequence);
          if (waiting == forgetting_.end() || --waiting->second > 0) return;
          forgetting_.erase(waiting);
          peer_.answer(forgotten.sequence, Fenced{}, Clock::now());
          settle();
        },
        [this](const LinkTrouble& trouble) {
          if (peer_.link_failed(trouble.link, trouble.error, Clock::now()) && peer_.is_up())
            tell(setup_.node, PeerTrouble{setup_.record.node});
          settle();
        },
        [this](const LinkStandsStill& still) {
          peer_.link_still(still.link, Clock::now());
          settle();
        },
        [this](const OurCardChanged& card) {
          peer_.card_is_up(card.device, card.nic, card.up, Clock::now());
          settle();
        },
        [this](const InboundMoved&) {
          peer_.inbound_moved(Clock::now());
          settle();
        },
        [this](const AskDrain& ask) {
          const std::uint64_t token = next_token_++;
          drain_askers_.emplace(token, ask);
          peer_.ask(token, DrainNode{ask.deadline_ms}, Clock::now() + kDrainAnswer, Clock::now());
          settle();
        },
        [this](AskForNode& ask) {
          const std::uint64_t token = next_token_++;
          node_askers_.emplace(token, ask.token);
          peer_.ask(token, std::move(ask.question), ask.deadline, Clock::now());
          settle();
        },
        [this](const AskVerify& ask) {
          const std::uint64_t token = next_token_++;
          verify_askers_.emplace(token, ask);
          peer_.ask(token, *ask.question, ask.deadline, Clock::now());
          settle();
        },
        [this](const PeerClose& close) {
          peer_.close(close.error);
          settle();
          quit();
        },
        [this](const Tick&) {
          ticking_ = TimePoint::max();
          peer_.tick(Clock::now());
          settle();
        },
    };
  }

  /// Node, peers and devices hold one another.
  void on_exit() override {
    setup_.device_actors.clear();
    setup_.nics.clear();
    setup_.node = nullptr;
  }

 private:
  struct Asker {
    std::size_t device;  // ours
    std::uint64_t token;
    std::string remote_device;  // whose links the answer is about; from the answer to an Open
  };

  struct Asked {
    std::size_t device;  // ours, that is to answer
    std::uint64_t sequence;
    Question question;
    std::optional<TimePoint> at;
  };

  Peer::Port port() {
    return {
        .command =
            [this](std::size_t device, PollerCommand command) {
              setup_.devices[device]->poller->push(std::move(command));
            },
        .new_link = [] { return new_link(); },
        .answered = [this](std::uint64_t token,
                           Result<Answer> answer) { answered(token, std::move(answer)); },
        .asked = [this](std::uint64_t sequence, Question question,
                        std::optional<TimePoint> at) { asked(sequence, std::move(question), at); },
        .up =
            [this] {
              tell(setup_.node, PeerReady{setup_.record.node, setup_.record.incarnation});
            },
        .inbound_cards =
            [this] {
              std::vector<DeviceCards> all;
              for (const auto& device : setup_.devices)
                all.push_back({device->name, device->inbound->cards()});
              return all;
            },
        .links_back =
            [this](std::size_t device, const std::string& remote_device) {
              returns_.emplace_back(device, remote_device);
            },
        .card_seen =
            [this](std::size_t device, std::uint16_t nic, CardView view, const std::string& why) {
              if (device < setup_.nics.size() && nic < setup_.nics[device].size())
                tell(setup_.nics[device][nic], CardSeen{setup_.record.incarnation, view, why});
            },
    };
  }

  /// Kept as answers are: links() may be asked only once the Peer's function has returned.
  void tell_returns() {
    for (const auto& [device, remote_device] : std::exchange(returns_, {})) {
      auto links = peer_.links(device, remote_device, Clock::now());
      if (links)
        tell(setup_.device_actors[device],
             LinksBack{setup_.record.incarnation, remote_device,
                       std::make_shared<std::vector<Peer::PathCard>>(std::move(*links))});
    }
  }

  /// Kept until the Peer's function has returned: links() may be asked only then.
  void answered(std::uint64_t token, Result<Answer> answer) {
    if (const auto asker = drain_askers_.find(token); asker != drain_askers_.end()) {
      tell(setup_.node, ReplyReady{asker->second.client,
                                   answer ? ok_reply(asker->second.request)
                                          : error_reply(asker->second.request, answer.error())});
      drain_askers_.erase(asker);
      return;
    }
    if (const auto asker = verify_askers_.find(token); asker != verify_askers_.end()) {
      auto differing = std::make_shared<Result<std::uint64_t>>();
      if (answer)
        *differing = std::get<Verified>(*answer).differing;
      else
        *differing = tl::unexpected(answer.error());
      tell(setup_.node, BatchCompared{asker->second.transfer, asker->second.first, differing});
      verify_askers_.erase(asker);
      return;
    }
    if (const auto asker = node_askers_.find(token); asker != node_askers_.end()) {
      tell(setup_.node,
           NodeAnswered{asker->second, std::make_shared<Result<Answer>>(std::move(answer))});
      node_askers_.erase(asker);
      return;
    }
    auto found = askers_.find(token);
    if (found == askers_.end()) return;
    answers_.emplace_back(std::move(found->second), std::move(answer));
    askers_.erase(found);
  }

  void deliver(Asker& asker, Result<Answer>& answer) {
    if (answer) {
      if (auto* ok = std::get_if<OpenOk>(&*answer)) asker.remote_device = ok->device;
      if (auto* fenced = std::get_if<Fenced>(&*answer))
        peer_.moved(asker.remote_device, fenced->cards, Clock::now());
    }
    auto links = std::make_shared<Result<std::vector<Peer::PathCard>>>();
    // Nobody looks at them with another answer.
    if (answer &&
        (std::holds_alternative<OpenOk>(*answer) || std::holds_alternative<Fenced>(*answer)))
      *links = peer_.links(asker.device, asker.remote_device, Clock::now());
    tell_next(setup_.device_actors[asker.device],
              PeerAnswered{asker.token, std::make_shared<Result<Answer>>(std::move(answer)),
                           std::move(links)});
  }

  /// On the copier's thread of the device that has the region.
  void verify(std::uint64_t sequence, const Verify& question) {
    auto use = setup_.regions->use(question.region, question.epoch);
    if (!use) return tell(caf::actor(this), PeerAnswer{sequence, Refused{use.error()}});
    if (!(*use)->allows(setup_.record.node, setup_.record.labels))
      return tell(caf::actor(this), PeerAnswer{sequence, Refused{not_allowed(question.region)}});
    auto kept = std::make_shared<RegionUse>(std::move(*use));
    setup_.devices[(*kept)->device_index]->copier->post(
        [self = caf::actor(this), sequence, question, kept] {
          const auto verified = compare_pages(**kept, question);
          kept->reset();
          tell(self, verified ? PeerAnswer{sequence, *verified}
                              : PeerAnswer{sequence, Refused{verified.error()}});
        });
  }

  /// To the device that owns what is asked for.
  void asked(std::uint64_t sequence, Question question, std::optional<TimePoint> at) {
    if (std::holds_alternative<Revoke>(question)) {
      for (const auto& device : setup_.device_actors)
        tell(device,
             PeerAsked{setup_.record.node, setup_.record.incarnation, sequence, question, at});
      return tell(caf::actor(this), PeerAnswer{sequence, Revoked{}});
    }
    if (const auto* drain = std::get_if<DrainNode>(&question)) {
      tell(setup_.node, DrainAsked{setup_.record.node, Milliseconds(drain->deadline_ms)});
      return tell(caf::actor(this), PeerAnswer{sequence, DrainBegun{}});
    }
    if (const auto* asked = std::get_if<Verify>(&question)) return verify(sequence, *asked);
    if (is_for_node(question)) {
      tell(setup_.node, NodeAsked{setup_.record.node, setup_.record.incarnation, sequence,
                                  std::make_shared<const Question>(std::move(question))});
      return;
    }
    std::string name;
    if (auto* open = std::get_if<Open>(&question)) {
      auto use = setup_.regions->use(open->region, open->epoch);
      if (!use) return tell(caf::actor(this), PeerAnswer{sequence, Refused{use.error()}});
      if (!(*use)->allows(setup_.record.node, setup_.record.labels))
        return tell(caf::actor(this), PeerAnswer{sequence, Refused{not_allowed(open->region)}});
      name = (*use)->device;
    } else if (auto* fin = std::get_if<Fin>(&question)) {
      name = fin->device;
    } else if (auto* fence = std::get_if<Fence>(&question)) {
      name = fence->device;
      if (name.empty()) return forget(sequence, fence->transfer);
    }
    for (std::size_t i = 0; i < setup_.devices.size(); ++i)
      if (setup_.devices[i]->name == name) {
        questions_.push_back({i, sequence, std::move(question), at});
        return;
      }
    tell(caf::actor(this), PeerAnswer{sequence, Refused{{ErrorCode::kNotFound,
                                                         fmt::format("no device '{}' on node '{}'",
                                                                     name, setup_.options.node)}}});
  }

  Error not_allowed(const std::string& region) {
    std::string why =
        fmt::format("region '{}' is not for node '{}' (allow)", region, setup_.record.node);
    if (setup_.audit) setup_.audit->refused("node '" + setup_.record.node + "'", why);
    return {ErrorCode::kDenied, std::move(why)};
  }

  /// Kept until the Peer's function has returned, as answers are.
  void pass_on(Asked& asked) {
    PeerAsked message{setup_.record.node, setup_.record.incarnation,
                      asked.sequence,     std::move(asked.question),
                      asked.at,           {}};
    if (const auto* open = std::get_if<Open>(&message.question); open && takes_slots(*open))
      if (const auto links = peer_.links(asked.device, open->initiator_device, Clock::now()))
        for (const Peer::PathCard& card : *links) message.links.push_back(card.link);
    tell_next(setup_.device_actors[asked.device], std::move(message));
  }

  /// Its Open may still wait in a device's mailbox, with data: answered when every device has
  /// looked.
  void forget(std::uint64_t sequence, TransferId transfer) {
    forgetting_[sequence] = setup_.device_actors.size();
    for (const auto& device : setup_.device_actors)
      tell(device, ForgetTransfer{setup_.record.incarnation, transfer, sequence});
  }

  /// After each of the Peer's functions: what it left to be done.
  void settle() {
    for (auto& [asker, answer] : std::exchange(answers_, {})) deliver(asker, answer);
    for (auto& asked : std::exchange(questions_, {})) pass_on(asked);
    tell_returns();
    const TimePoint next = peer_.next_tick();
    if (next >= ticking_) return;
    ticking_ = next;
    tell_at(this, next, Tick{});
  }

  PeerActorSetup setup_;
  Peer peer_;
  std::unordered_map<std::uint64_t, Asker> askers_;
  std::unordered_map<std::uint64_t, AskDrain> drain_askers_;
  std::unordered_map<std::uint64_t, AskVerify> verify_askers_;
  std::unordered_map<std::uint64_t, std::uint64_t> node_askers_;  // the node's tokens
  std::vector<std::pair<Asker, Result<Answer>>> answers_;
  std::vector<Asked> questions_;
  std::map<std::uint64_t, std::size_t> forgetting_;  // devices that have not looked, by question
  std::vector<std::pair<std::size_t, std::string>> returns_;
  std::uint64_t next_token_ = 1;
  TimePoint ticking_ = TimePoint::max();
};

}  // namespace

caf::actor spawn_peer(caf::actor_system& system, PeerActorSetup setup) {
  return system.spawn<PeerActor>(std::move(setup));
}

}  // namespace penstock

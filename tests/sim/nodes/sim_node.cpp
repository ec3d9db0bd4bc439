#include "tests/sim/nodes/sim_node.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace penstock::sim {
namespace {

constexpr const char* kDevice = "numa0";
constexpr int kGpu = 0;
constexpr Milliseconds kDrainAnswer{3000};

class LentMemory final : public RegionMemory {
 public:
  LentMemory(std::span<std::byte> bytes, bool on_gpu) : bytes_(bytes), on_gpu_(on_gpu) {}
  MemoryKind kind() const override { return on_gpu_ ? MemoryKind::kCuda : MemoryKind::kHost; }
  int gpu() const override { return on_gpu_ ? kGpu : -1; }
  std::span<std::byte> bytes() const override { return bytes_; }
  const std::string& shared_name() const override { return name_; }

 private:
  std::span<std::byte> bytes_;
  bool on_gpu_;
  std::string name_;
};

}  // namespace

struct SimNode::PeerActor {
  struct Asker {
    std::uint64_t token;
    std::string remote_device;
  };
  MemberRecord record;
  std::unique_ptr<Peer> peer;
  Mailbox mail;
  bool quit = false;
  std::map<std::uint64_t, Asker> askers;
  std::map<std::uint64_t, std::uint64_t> node_askers;  // tokens of the node actor's
  std::vector<std::pair<Asker, Result<Answer>>> answers;
  std::vector<std::string> returns;
  struct Asked {
    std::uint64_t sequence;
    Question question;
    std::optional<TimePoint> at;
  };
  std::vector<Asked> questions;  // for the device
  std::uint64_t next_token = 1;
  TimePoint ticking = TimePoint::max();
};

SimNode::SimNode(Wire& wire, SimNodeOptions options, SimNodeObserver observer)
    : wire_(wire),
      options_(std::move(options)),
      observer_(std::move(observer)),
      regions_(options_.incarnation << 16) {
  std::vector<std::unique_ptr<Nic>> nics;
  for (std::size_t i = 0; i < options_.cards; ++i) {
    nics.push_back(make_card(i));
    nics_.push_back(nics.back().get());
    shared_cards_.push_back({static_cast<std::uint16_t>(i), nics_[i]->inbound_generation(),
                             nics_[i]->inbound_address()});
  }
  health_.resize(options_.cards);
  poller_ =
      std::make_unique<PollerLoop>(std::move(nics), options_.poller, [this] { return now(); });
  options_.outbound.node = options_.name;
  options_.outbound.device = kDevice;
  options_.inbound.device = kDevice;
  if (options_.slot_bytes > 0) open_staging();
  if (options_.scratch_bytes > 0) {
    scratch_memory_.resize(options_.scratch_bytes);
    auto scratch = make_region(scratch_of(kDevice), scratch_memory_, false);
    scratch->internal = true;
    regions_.publish(std::move(scratch));
  }
  if (options_.on_gpu) {
    auto mover = std::make_shared<LateMover>(wire_.network, options_.mover);
    mover_ = mover.get();
    commands_.push_back(UseMover{kGpu, std::move(mover)});
  }
  outbound_ = std::make_unique<Outbound>(options_.outbound, outbound_port());
  inbound_ = std::make_unique<Inbound>(options_.inbound, shared_cards_, regions_, staging_,
                                       inbound_port());
}

std::unique_ptr<Nic> SimNode::make_card(std::size_t i) {
  if (options_.make_card) return options_.make_card(i);
  SimNicOptions nic = options_.nic;
  nic.name = options_.name + std::to_string(i);
  if (i < options_.addresses.size())
    std::tie(nic.control_address, nic.inbound_address) = options_.addresses[i];
  auto card = std::make_unique<LateNic>(wire_, nic);
  late_nics_.push_back(card.get());
  return card;
}

SimNode::~SimNode() {
  for (const auto& actor : actors_) {
    actor->quit = true;
    actor->mail.clear();
  }
}

// -- clients and members -------------------------------------------------------------------------

std::shared_ptr<Region> SimNode::make_region(const std::string& name, std::span<std::byte> memory,
                                             bool on_gpu) {
  auto region = std::make_shared<Region>();
  region->name = name;
  region->device = kDevice;
  region->bytes = memory.size();
  region->memory = std::make_shared<LentMemory>(memory, on_gpu);
  auto local = std::make_shared<RegisteredMemory>();
  local->memory = region->memory;
  std::vector<std::shared_ptr<MemoryRegistration>> exported;
  for (Nic* nic : nics_) {
    if (on_gpu) {
      local->registrations.push_back(nullptr);
      exported.push_back(nullptr);
      continue;
    }
    local->registrations.push_back(std::move(*nic->register_memory(memory)));
    exported.push_back(std::move(*nic->register_memory(memory)));
  }
  region->set_registered(local, std::move(exported));
  return region;
}

void SimNode::add_region(const std::string& name, std::span<std::byte> memory) {
  regions_.publish(make_region(name, memory, options_.on_gpu));
}

void SimNode::warm_up(const MemberRecord& record) {
  if (options_.scratch_bytes == 0) return;
  if (auto use = regions_.use(scratch_of(kDevice)))
    outbound_->warm_up(record.incarnation, record.node, kDevice,
                       std::make_shared<RegionUse>(std::move(*use)), now());
}

void SimNode::open_staging() {
  const std::uint64_t bytes = options_.slot_bytes;
  staging_memory_.resize((options_.send_slots + options_.lent_slots) * bytes);
  auto region = make_region(".staging", staging_memory_, false);
  commands_.push_back(UseStaging{region->local(), bytes, options_.send_slots});
  staging_ = std::make_shared<StagingPool>(std::move(region), bytes, options_.send_slots * bytes,
                                           options_.lent_slots);
  options_.outbound.staging_bytes = bytes;
}

void SimNode::admit(Admitted admitted) {
  admitted.deadline += options_.clock;
  auto shared = std::make_shared<Admitted>(std::move(admitted));
  to_device([this, shared] { outbound_->admit(std::move(*shared), now()); });
}

void SimNode::cancel(TransferId transfer) {
  to_device([this, transfer] { outbound_->cancel(transfer, now()); });
}

void SimNode::give_up(Incarnation peer, TransferId shadow, const Error& error) {
  to_device([this, peer, shadow, error] { inbound_->give_up(peer, shadow, error, now()); });
}

void SimNode::release_by_force(const std::string& name) {
  auto region = regions_.close(name, true);
  if (!region) return;
  to_device([this, name] {
    outbound_->cancel_region(name, now());
    inbound_->revoke(name, now());
  });
  releases_.push_back({*region});
  look_at_releases();
}

void SimNode::look_at_releases() {
  if (crashed_) return;
  std::erase_if(releases_, [&](const Release& release) {
    if (!regions_.remove(release.region->name)) return false;
    release.region->set_registered(nullptr, {});
    observer_.released(release.region->name);
    return true;
  });
  if (!releases_.empty())
    wire_.network.after(options_.release_look, [this] { look_at_releases(); });
}

MemberRecord SimNode::record() const {
  MemberRecord record;
  record.node = options_.name;
  record.incarnation = options_.incarnation;
  for (std::size_t i = 0; i < nics_.size(); ++i)
    record.cards.push_back({kDevice, static_cast<std::uint16_t>(i), nics_[i]->info().name,
                            nics_[i]->control_address()});
  return record;
}

void SimNode::meet(const MemberRecord& record) {
  auto actor = std::make_shared<PeerActor>();
  actor->record = record;
  Peer::Options options;
  options.node = options_.name;
  options.incarnation = options_.incarnation;
  options.devices = {{kDevice, nics_.size()}};
  options.answers_kept = options_.answers_kept;
  actor->peer = std::make_unique<Peer>(record, options, peer_port(actor));
  peers_[record.incarnation] = actor;
  actors_.push_back(actor);
  to_peer(actor, [this](Peer& peer) { peer.start(now()); });
  to_device([this, actor, peer = record.incarnation] { device_peers_[peer] = actor; });
}

void SimNode::part(Incarnation peer, const Error& error, bool gone) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  const MemberRecord record = found->second->record;
  part(record, error, gone);
}

void SimNode::part(const MemberRecord& record, const Error& error, bool gone) {
  const Incarnation peer = record.incarnation;
  const auto found = peers_.find(peer);
  if (found == peers_.end() && !gone) return;
  to_device([this, error, gone, peer, node = record.node] {
    outbound_->peer_down(node, peer, error, gone, now());
    inbound_->peer_down(peer, error, now());
    device_peers_.erase(peer);
  });
  if (found == peers_.end()) return;
  const auto actor = found->second;
  peers_.erase(found);
  to_peer(actor, [actor, error](Peer& p) {
    p.close(error);
    actor->quit = true;
  });
}

void SimNode::ask_to_drain(Incarnation peer) {
  ask_for_node(peer, 0, DrainNode{}, wire_.network.now() + kDrainAnswer);
}

bool SimNode::ask_for_node(Incarnation peer, std::uint64_t token, const Question& question,
                           TimePoint deadline) {
  const auto actor = peer_of(peer);
  if (!actor) return false;
  to_peer(actor, [this, actor = actor.get(), token, question, deadline](Peer& p) {
    const std::uint64_t own = actor->next_token++;
    if (token != 0) actor->node_askers.emplace(own, token);
    p.ask(own, question, deadline + options_.clock, now());
  });
  return true;
}

void SimNode::answer_for_node(Incarnation peer, std::uint64_t sequence, Answer answer) {
  if (const auto actor = peer_of(peer))
    to_peer(actor, [this, sequence, answer = std::move(answer)](Peer& p) {
      p.answer(sequence, answer, now());
    });
}

// -- the device actor ----------------------------------------------------------------------------

void SimNode::ask(Incarnation peer, std::uint64_t token, Question question, TimePoint deadline) {
  const auto found = device_peers_.find(peer);
  if (found != device_peers_.end()) {
    const auto actor = found->second;
    return to_peer(actor, [this, actor, token, question = std::move(question), deadline](Peer& p) {
      const std::uint64_t own = actor->next_token++;
      if (token != 0) {
        const auto* fence = std::get_if<Fence>(&question);
        actor->askers.emplace(own, PeerActor::Asker{token, fence ? fence->device : ""});
      }
      p.ask(own, question, deadline, now());
    });
  }
  if (token == 0) return;
  to_device([this, token] {
    const Error error{ErrorCode::kPeerLeft, "the peer is gone"};
    outbound_->answered(token, tl::unexpected(error), tl::unexpected(error), now());
  });
}

void SimNode::happened(QuantumDone& event) { outbound_->quantum_done(event); }
void SimNode::happened(TransferIdle& event) { outbound_->idle(event, now()); }
void SimNode::happened(ImmediateComplete& event) { inbound_->counted(event.immediate, now()); }
void SimNode::happened(LinkFailed& event) {
  for (auto& [incarnation, actor] : device_peers_)
    to_peer(actor, [this, event, node = actor->record.node](Peer& p) {
      if (p.link_failed(event.link, event.error, now()) && p.is_up() && observer_.trouble)
        observer_.trouble(node);
    });
}
void SimNode::happened(LinkStill& event) {
  for (auto& [incarnation, actor] : device_peers_)
    to_peer(actor, [this, event](Peer& p) { p.link_still(event.link, now()); });
}
void SimNode::happened(NicState& event) {
  health_.at(event.nic).endpoint(event.up, event.error ? event.error->message : "");
  for (auto& [incarnation, actor] : device_peers_)
    to_peer(actor, [this, event](Peer& p) { p.card_is_up(0, event.nic, event.up, now()); });
}
void SimNode::happened(InboundReopened& event) {
  inbound_->reopened(event, now());
  shared_cards_ = inbound_->cards();
  for (auto& [incarnation, actor] : device_peers_)
    to_peer(actor, [this](Peer& p) { p.inbound_moved(now()); });
}
void SimNode::happened(PackedDisarmed& event) { inbound_->disarmed(event.tag, now()); }
void SimNode::happened(MessageReceived& event) {
  auto message = decode_message(event.payload);
  if (!message || message->destination != options_.incarnation) return;
  auto found = device_peers_.find(message->source);
  if (found == device_peers_.end()) {
    found = peers_.find(message->source);
    if (found == peers_.end()) return;
  }
  to_peer(found->second, [this, message = std::move(*message)](Peer& p) mutable {
    p.receive(std::move(message), now());
  });
}

// -- the peer actors -----------------------------------------------------------------------------

std::shared_ptr<SimNode::PeerActor> SimNode::peer_of(Incarnation peer) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? nullptr : found->second;
}

void SimNode::to_peer(const std::shared_ptr<PeerActor>& actor, std::function<void(Peer&)> message) {
  if (actor->quit) return;  // what it is sent would hold it for good
  actor->mail.push_back([this, actor, message = std::move(message)] {
    message(*actor->peer);
    settle(actor);
  });
}

Peer::Port SimNode::peer_port(const std::shared_ptr<PeerActor>& shared) {
  PeerActor* actor = shared.get();
  return {
      .command = [this](std::size_t,
                        PollerCommand command) { commands_.push_back(std::move(command)); },
      .new_link = [this] { return ++last_link_; },
      .answered =
          [this, actor](std::uint64_t token, Result<Answer> answer) {
            if (const auto asker = actor->node_askers.extract(token))
              return observer_.node_answered(asker.mapped(), answer);
            auto found = actor->askers.find(token);
            if (found == actor->askers.end()) return;
            actor->answers.emplace_back(std::move(found->second), std::move(answer));
            actor->askers.erase(found);
          },
      .asked =
          [this, weak = std::weak_ptr(shared)](std::uint64_t sequence, Question question,
                                               std::optional<TimePoint> at) {
            if (auto strong = weak.lock()) asked(strong, sequence, std::move(question), at);
          },
      .up =
          [this, weak = std::weak_ptr(shared)] {
            auto strong = weak.lock();
            const Incarnation peer = strong->record.incarnation;
            if (peer_of(peer) != strong) return;
            to_device([this, strong, peer] {
              device_peers_[peer] = strong;
              outbound_->peer_up(strong->record.node, peer, now());
              warm_up(strong->record);
            });
            if (observer_.connected) observer_.connected(strong->record.node);
          },
      .inbound_cards =
          [this] {
            return std::vector<DeviceCards>{{kDevice, shared_cards_}};
          },
      .links_back =
          [actor](std::size_t, const std::string& remote_device) {
            actor->returns.push_back(remote_device);
          },
      .card_seen =
          [this, actor](std::size_t, std::uint16_t nic, CardView view, const std::string& why) {
            health_.at(nic).seen(actor->record.incarnation, view, why);
          },
  };
}

void SimNode::asked(const std::shared_ptr<PeerActor>& actor, std::uint64_t sequence,
                    Question question, std::optional<TimePoint> at) {
  const Incarnation peer = actor->record.incarnation;
  const auto answer = [&](Answer with) {
    to_peer(actor,
            [this, sequence, with = std::move(with)](Peer& p) { p.answer(sequence, with, now()); });
  };
  if (auto* revoke = std::get_if<Revoke>(&question)) {
    to_device([this, peer, revoke = *revoke] {
      outbound_->revoked(peer, revoke.region, revoke.epoch, now());
    });
    return answer(Revoked{});
  }
  if (observer_.node_asked && question.index() >= Question(Delegate()).index())
    return observer_.node_asked(actor->record.node, peer, sequence, question);
  if (std::holds_alternative<DrainNode>(question)) {
    if (observer_.drain_asked) observer_.drain_asked(actor->record.node);
    return answer(DrainBegun{});
  }
  if (auto* open = std::get_if<Open>(&question))
    if (auto use = regions_.use(open->region, open->epoch); !use)
      return answer(Refused{use.error()});
  if (auto* fence = std::get_if<Fence>(&question); fence && fence->device.empty()) {
    to_device([this, actor, sequence, peer, id = fence->transfer] {
      inbound_->forget(peer, id, now());
      to_peer(actor, [this, sequence](Peer& p) { p.answer(sequence, Fenced{}, now()); });
    });
    return;
  }
  actor->questions.push_back({sequence, std::move(question), at});
}

void SimNode::to_owner(PeerActor& actor, std::uint64_t sequence, Question question,
                       std::vector<LinkId> links, std::optional<TimePoint> at) {
  const Incarnation peer = actor.record.incarnation;
  if (auto* open = std::get_if<Open>(&question))
    inbound_->open(peer, actor.record.node, sequence, *open, std::move(links), at, now());
  if (auto* fin = std::get_if<Fin>(&question)) inbound_->fin(peer, sequence, *fin, now());
  if (auto* fence = std::get_if<Fence>(&question)) inbound_->fence(peer, sequence, *fence, now());
}

void SimNode::settle(const std::shared_ptr<PeerActor>& actor) {
  for (auto& [asker, answer] : std::exchange(actor->answers, {})) {
    if (answer) {
      if (auto* ok = std::get_if<OpenOk>(&*answer)) asker.remote_device = ok->device;
      if (auto* fenced = std::get_if<Fenced>(&*answer))
        actor->peer->moved(asker.remote_device, fenced->cards, now());
    }
    auto links = actor->peer->links(0, asker.remote_device, now());
    to_device([this, token = asker.token, answer = std::move(answer), links = std::move(links)] {
      outbound_->answered(token, answer, links, now());
    });
  }
  for (auto& [sequence, question, at] : std::exchange(actor->questions, {})) {
    std::vector<LinkId> links;
    if (const auto* open = std::get_if<Open>(&question); open && takes_slots(*open))
      if (const auto cards = actor->peer->links(0, open->initiator_device, now()))
        for (const auto& card : *cards) links.push_back(card.link);
    to_device([this, actor, sequence = sequence, question = std::move(question), at = at,
               links = std::move(links)] { to_owner(*actor, sequence, question, links, at); });
  }
  for (const auto& remote_device : std::exchange(actor->returns, {})) {
    auto links = actor->peer->links(0, remote_device, now());
    if (!links) continue;
    to_device([this, peer = actor->record.incarnation, remote_device, links = std::move(*links)] {
      outbound_->links_back(peer, remote_device, links);
    });
  }
  const TimePoint next = actor->peer->next_tick();
  if (next >= actor->ticking || actor->quit) return;
  actor->ticking = next;
  wire_.network.after(std::max(next - now(), Clock::duration(0)), [this, actor] {
    to_peer(actor, [this, actor](Peer& p) {
      actor->ticking = TimePoint::max();
      p.tick(now());
    });
  });
}

// -- turns ---------------------------------------------------------------------------------------

void SimNode::schedule() {
  const TimePoint next = std::min(outbound_->next_tick(), inbound_->next_tick());
  if (next >= ticking_) return;
  ticking_ = next;
  wire_.network.after(std::max(next - now(), Clock::duration(0)), [this] {
    to_device([this] {
      ticking_ = TimePoint::max();
      outbound_->tick(now());
      inbound_->tick(now());
    });
  });
}

std::size_t SimNode::step_poller() {
  std::size_t happened = 0;
  for (std::uint64_t most = 1 + wire_.network.below(8); most > 0 && !commands_.empty(); --most) {
    poller_->execute(std::move(commands_.front()));
    commands_.pop_front();
    ++happened;
  }
  happened += poller_->step();
  if (poller_->has_events() && !rang_) {
    rang_ = true;
    ++happened;
    const auto handle = [this] {
      rang_ = false;
      for (auto& event : poller_->take_events())
        std::visit([this](auto& one) { this->happened(one); }, event);
    };
    if (options_.actor_delay.count() == 0)
      to_device(handle);
    else
      wire_.network.after(options_.actor_delay, [this, handle] { to_device(handle); });
  }
  if (const auto retry = poller_->next_retry();
      retry && (*retry < retrying_ || retrying_ <= now())) {
    retrying_ = *retry;
    wire_.network.after(std::max(*retry - now(), Clock::duration(0)), [] {});
  }
  return happened;
}

bool SimNode::restless() {
  if (crashed_) return false;
  if (!device_mail_.empty() || !commands_.empty() || poller_->has_events()) return true;
  const auto has_mail = [](const auto& actor) { return !actor->mail.empty(); };
  if (std::ranges::any_of(actors_, has_mail)) return true;
  if (std::ranges::any_of(nics_, [](Nic* nic) { return !nic->may_wait(); })) return true;
  return !poller_->idle() || retrying_ <= now();
}

std::size_t SimNode::step() {
  if (crashed_) return 0;
  std::size_t happened = 0;
  const std::uint64_t turn = wire_.network.below(3);
  if (turn == 0) happened += step_poller();
  if (!device_mail_.empty()) {
    const auto message = std::move(device_mail_.front());
    device_mail_.pop_front();
    message();
    schedule();
    ++happened;
  }
  if (turn == 1) happened += step_poller();
  for (std::size_t i = 0; i < actors_.size(); ++i) {
    const auto actor = actors_[i];
    if (actor->quit) actor->mail.clear();
    if (actor->mail.empty() || wire_.network.chance(0.3)) {
      happened += !actor->mail.empty();
      continue;
    }
    const auto message = std::move(actor->mail.front());
    actor->mail.pop_front();
    message();
    ++happened;
  }
  std::erase_if(actors_, [](const auto& actor) {
    if (actor->quit) actor->mail.clear();
    return actor->quit;
  });
  if (turn == 2) happened += step_poller();
  return happened;
}

void SimNode::crash() {
  crashed_ = true;
  for (LateNic* nic : late_nics_) nic->bury();
  if (mover_ != nullptr) mover_->die();
}

}  // namespace penstock::sim

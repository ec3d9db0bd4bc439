#include "tests/sim/late_nic.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/packing/credit.hpp"

namespace penstock::sim {
namespace {

std::uint64_t handle_of(const FabricAddress& address) {
  std::uint64_t handle = 0;
  std::memcpy(&handle, address.data(), sizeof handle);
  return handle;
}

}  // namespace

class LateNic::Registration final : public MemoryRegistration {
 public:
  Registration(Wire& wire, std::unique_ptr<MemoryRegistration> below)
      : wire_(wire), below_(std::move(below)) {}
  ~Registration() override { wire_.keys.erase(below_->key()); }
  std::uint64_t key() const override { return below_->key(); }
  std::uint64_t remote_base() const override { return below_->remote_base(); }
  void* descriptor() const override { return below_->descriptor(); }

 private:
  Wire& wire_;
  std::unique_ptr<MemoryRegistration> below_;
};

LateNic::LateNic(Wire& wire, SimNicOptions options)
    : wire_(wire),
      card_(wire.network, std::move(options)),
      inbound_(handle_of(card_.inbound_address())) {
  wire_.inbound[inbound_] = this;
  wire_.control[handle_of(card_.control_address())] = this;
  wire_.cards.insert(this);
}

LateNic::~LateNic() {
  // A later process may be at these addresses.
  std::erase_if(wire_.inbound, [this](const auto& each) { return each.second == this; });
  std::erase_if(wire_.control, [this](const auto& each) { return each.second == this; });
  wire_.cards.erase(this);
}

std::vector<OneSided> LateNic::operations_out() const {
  std::vector<Out> sorted;
  for (const auto& [context, out] : out_) sorted.push_back(out);
  std::ranges::sort(sorted, {}, &Out::number);
  std::vector<OneSided> operations;
  for (const Out& out : sorted) operations.push_back(out.operation);
  return operations;
}

void LateNic::die() {
  for (const OneSided& operation : operations_out()) land_late(operation);
  card_.die();
  dead_ = true;
}

void LateNic::bury() {
  die();
  card_.vanish();
  buried_ = true;
}

void LateNic::revive() {
  if (buried_) return;
  card_.revive();
  dead_ = false;
}

Post LateNic::post(const OneSided& operation, OperationContext* context) {
  Post result = card_.post(operation, context);
  if (result.status == PostStatus::kPosted) out_[context] = {next_number_++, operation};
  return result;
}

bool LateNic::loses(PeerHandle peer) const {
  double loss = wire_.message_loss;
  if (const auto target = wire_.control.find(peer);
      wire_.loss_between && target != wire_.control.end())
    loss = wire_.loss_between(card_.options().host, target->second->card_.options().host);
  return wire_.network.chance(loss);
}

Post LateNic::send(PeerHandle peer, std::span<const std::byte> payload, OperationContext* context) {
  if (!loses(peer)) {
    Post sent = card_.send(peer, payload, context);
    if (sent.status == PostStatus::kPosted && wire_.duplicate_chance > 0 &&
        wire_.network.chance(wire_.duplicate_chance))
      arrive_later(peer, payload, wire_.duplicate_most);
    return sent;
  }
  if (wire_.held_chance > 0 && wire_.network.chance(wire_.held_chance))
    arrive_later(peer, payload, wire_.held_most);
  Ready sent;
  sent.completion.context = context;
  ready_.push_back(std::move(sent));
  return {};
}

/// As a question that was sent again over another link while its first copy was held up. Credits
/// are not repeated by anybody, and no reliable fabric delivers a message twice by itself.
void LateNic::arrive_later(PeerHandle peer, std::span<const std::byte> payload,
                           std::chrono::nanoseconds most) {
  if (decode_credit(payload)) return;
  const auto after =
      std::chrono::nanoseconds(wire_.network.below(static_cast<std::uint64_t>(most.count())));
  const std::uint32_t host = card_.options().host;
  wire_.network.after(after, [&wire = wire_, peer, host,
                              copy = std::vector(payload.begin(), payload.end())]() mutable {
    const auto target = wire.control.find(peer);
    if (target == wire.control.end()) return;
    LateNic& nic = *target->second;
    if (nic.dead_ || nic.card_.stalled() || !wire.network.passes(host, nic.card_.options().host))
      return;
    nic.arrive(std::move(copy));
  });
}

void LateNic::arrive(std::vector<std::byte> message) {
  Ready arrival;
  arrival.completion.kind = Completion::Kind::kMessage;
  arrival.payload = std::move(message);
  ready_.push_back(std::move(arrival));
}

void LateNic::ended(const Completion& completion) {
  if (completion.kind != Completion::Kind::kOperation) return;
  const auto found = out_.find(completion.context);
  if (found == out_.end()) return;
  if (!completion.ok) land_late(found->second.operation);
  out_.erase(found);
}

std::size_t LateNic::poll(std::span<Completion> completions) {
  lent_.clear();
  if (ready_.empty()) {
    const std::size_t count = card_.poll(completions);
    for (std::size_t i = 0; i < count; ++i) ended(completions[i]);
    return count;
  }
  const std::size_t count = std::min(completions.size(), ready_.size());
  lent_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    lent_.push_back(std::move(ready_.front()));
    ready_.pop_front();
    completions[i] = lent_.back().completion;
    completions[i].payload = lent_.back().payload;
  }
  return count;
}

Result<void> LateNic::reopen_outbound() {
  ++reopens_;
  // Operations whose completion waits have landed (or failed): only the others are cut off.
  std::array<Completion, 16> completions;
  while (const std::size_t count = card_.poll(completions)) {
    for (std::size_t i = 0; i < count; ++i) {
      const bool one_sided = out_.contains(completions[i].context);
      ended(completions[i]);
      if (one_sided) continue;
      ready_.push_back(
          {completions[i], {completions[i].payload.begin(), completions[i].payload.end()}});
    }
  }
  for (const OneSided& operation : operations_out()) land_late(operation);
  out_.clear();
  return card_.reopen_outbound();
}

Result<void> LateNic::reopen_inbound() {
  std::erase_if(wire_.inbound, [this](const auto& each) { return each.second == this; });
  auto result = card_.reopen_inbound();
  inbound_ = handle_of(card_.inbound_address());
  wire_.inbound[inbound_] = this;
  return result;
}

void LateNic::land_late(const OneSided& operation) {
  if (operation.direction != Direction::kWrite || dead_) return;
  const auto memory = wire_.keys.find(operation.remote_key);
  if (memory == wire_.keys.end() || !wire_.network.chance(wire_.late_chance)) return;
  if (operation.remote_address + operation.length > memory->second.size()) return;
  // The key was checked when the message began; what is left is a copy.
  std::vector<std::byte> bytes;
  for (const LocalPiece& piece : std::span(operation.local).first(operation.pieces)) {
    const auto* at = static_cast<const std::byte*>(piece.address);
    bytes.insert(bytes.end(), at, at + piece.length);
  }
  const auto target = wire_.inbound.find(operation.peer);
  if (target == wire_.inbound.end()) return;
  arrive_late(wire_, this, target->second, operation,
              memory->second.data() + operation.remote_address, std::move(bytes));
}

/// Not while one of the two cards is dark: a stack sends again and again until the line is back.
void LateNic::arrive_late(Wire& wire, LateNic* from, LateNic* to, const OneSided& operation,
                          std::byte* remote, std::vector<std::byte> bytes) {
  const auto after = std::chrono::nanoseconds(
      wire.network.below(static_cast<std::uint64_t>(wire.late_most.count())));
  wire.network.after(
      after, [&wire, from, to, operation, remote, bytes = std::move(bytes)]() mutable {
        const auto target = wire.inbound.find(operation.peer);
        if (target == wire.inbound.end() || target->second != to || to->dead_) return;
        const bool sends = wire.cards.contains(from);
        if (to->card_.stalled() ||
            (sends && (from->card_.stalled() ||
                       !wire.network.passes(from->card_.options().host, to->card_.options().host))))
          return arrive_late(wire, from, to, operation, remote, std::move(bytes));
        if (wire.key_guards && !wire.keys.contains(operation.remote_key)) return;
        std::memcpy(remote, bytes.data(), bytes.size());
        ++wire.landed_late;
        if (!operation.immediate) return;
        Ready arrival;
        arrival.completion.kind = Completion::Kind::kImmediate;
        arrival.completion.immediate = *operation.immediate;
        target->second->ready_.push_back(std::move(arrival));
      });
}

Result<std::unique_ptr<MemoryRegistration>> LateNic::register_memory(std::span<std::byte> memory) {
  auto below = card_.register_memory(memory);
  if (!below) return below;
  wire_.keys[(*below)->key()] = memory;
  return std::make_unique<Registration>(wire_, std::move(*below));
}

}  // namespace penstock::sim

#include "tests/sim/late_nic.hpp"

#include <array>
#include <cstring>

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
}

LateNic::~LateNic() { wire_.inbound.erase(inbound_); }

void LateNic::die() {
  for (const auto& [context, operation] : out_) land_late(operation);
  card_.die();
  dead_ = true;
}

Post LateNic::post(const OneSided& operation, OperationContext* context) {
  Post result = card_.post(operation, context);
  if (result.status == PostStatus::kPosted) out_[context] = operation;
  return result;
}

Post LateNic::send(PeerHandle peer, std::span<const std::byte> payload, OperationContext* context) {
  if (!wire_.network.chance(wire_.message_loss)) return card_.send(peer, payload, context);
  Ready sent;
  sent.completion.context = context;
  ready_.push_back(std::move(sent));
  return {};
}

void LateNic::ended(const Completion& completion) {
  if (completion.kind != Completion::Kind::kOperation) return;
  const auto found = out_.find(completion.context);
  if (found == out_.end()) return;
  if (!completion.ok) land_late(found->second);
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
  for (const auto& [context, operation] : out_) land_late(operation);
  out_.clear();
  return card_.reopen_outbound();
}

Result<void> LateNic::reopen_inbound() {
  wire_.inbound.erase(inbound_);
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
  const auto* local = static_cast<const std::byte*>(operation.local);
  std::vector<std::byte> bytes(local, local + operation.length);
  std::byte* remote = memory->second.data() + operation.remote_address;
  const auto after = std::chrono::nanoseconds(
      wire_.network.below(static_cast<std::uint64_t>(wire_.late_most.count())));
  Wire& wire = wire_;
  wire.network.after(after, [&wire, remote, bytes = std::move(bytes), peer = operation.peer,
                             key = operation.remote_key, immediate = operation.immediate] {
    const auto target = wire.inbound.find(peer);
    if (target == wire.inbound.end() || target->second->dead_) return;
    if (wire.key_guards && !wire.keys.contains(key)) return;
    std::memcpy(remote, bytes.data(), bytes.size());
    ++wire.landed_late;
    if (!immediate) return;
    Ready arrival;
    arrival.completion.kind = Completion::Kind::kImmediate;
    arrival.completion.immediate = *immediate;
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

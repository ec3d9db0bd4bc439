#include "tests/sim/sim_nic.hpp"

#include <cerrno>
#include <cstring>

namespace penstock::sim {
namespace {

FabricAddress pack(std::uint64_t number) {
  FabricAddress address(sizeof number);
  std::memcpy(address.data(), &number, sizeof number);
  return address;
}

/// A stalled delivery looks again after this long.
constexpr auto kStallStep = std::chrono::microseconds(100);
constexpr auto kMessageStallStep = std::chrono::milliseconds(2);
/// So does one between hosts that are apart.
constexpr auto kApartStep = std::chrono::milliseconds(5);

}  // namespace

class SimNic::Registration final : public MemoryRegistration {
 public:
  Registration(SimNetwork& network, std::uint64_t key) : network_(network), key_(key) {}
  ~Registration() override { network_.memory_.erase(key_); }
  std::uint64_t key() const override { return key_; }
  std::uint64_t remote_base() const override { return 0; }
  void* descriptor() const override { return nullptr; }

 private:
  SimNetwork& network_;
  std::uint64_t key_;
};

SimNic::SimNic(SimNetwork& network, SimNicOptions options)
    : network_(network), options_(std::move(options)), line_free_(network.now()) {
  info_.name = options_.name;
  info_.provider = "sim";
  info_.max_chunk_bytes = options_.max_chunk_bytes;
  info_.local_pieces = options_.local_pieces;
  info_.immediate_data = options_.immediate_data;
  control_ = network_.new_endpoint(this, SimNetwork::Role::kControl, options_.control_address);
  inbound_ = network_.new_endpoint(this, SimNetwork::Role::kInbound, options_.inbound_address);
}

SimNic::~SimNic() {
  std::erase_if(network_.endpoints_, [&](const auto& each) { return each.second.nic == this; });
}

void SimNic::die() {
  dead_ = true;
  // What was under way is lost, also when the card lives again before it would have arrived.
  for (auto& [number, each] : outstanding_) each.fails = true;
}
void SimNic::stall(bool stalled) { stalled_ = stalled; }

std::uint64_t SimNic::posts_to(PeerHandle peer) const {
  const auto found = sent_per_peer_.find(peer);
  return found == sent_per_peer_.end() ? 0 : found->second.first;
}

std::vector<PeerHandle> SimNic::peer_handles() const {
  std::vector<PeerHandle> handles;
  for (const auto& [handle, uses] : peer_uses_) handles.push_back(handle);
  return handles;
}

std::uint64_t SimNic::bytes_to(PeerHandle peer) const {
  const auto found = sent_per_peer_.find(peer);
  return found == sent_per_peer_.end() ? 0 : found->second.second;
}

FabricAddress SimNic::control_address() const { return pack(control_); }
FabricAddress SimNic::inbound_address() const { return pack(inbound_); }

Result<PeerHandle> SimNic::add_peer(const FabricAddress& address) {
  std::uint64_t number = 0;
  if (address.size() != sizeof number)
    return fail(ErrorCode::kInvalidArgument, "{} bytes are no address", address.size());
  std::memcpy(&number, address.data(), sizeof number);
  ++peer_uses_[number];
  connected_at_.emplace(number, network_.now() + options_.connect);
  return number;
}

void SimNic::remove_peer(PeerHandle peer) {
  if (--peer_uses_.at(peer) == 0) peer_uses_.erase(peer);
}

SimNic* SimNic::target_of(PeerHandle peer, SimNetwork::Role role) {
  const auto found = network_.endpoints_.find(peer);
  if (found == network_.endpoints_.end() || found->second.role != role) return nullptr;
  return found->second.nic;
}

bool SimNic::connected(PeerHandle peer) { return network_.now() >= connected_at_[peer]; }

std::chrono::nanoseconds SimNic::delay_of(std::uint64_t bytes) {
  const auto transmit = std::chrono::nanoseconds(
      static_cast<std::int64_t>(1e9 * static_cast<double>(bytes) / options_.bytes_per_second));
  line_free_ = std::max(line_free_, network_.now()) + transmit;
  auto delay = line_free_ - network_.now() + options_.latency;
  if (options_.jitter.count() > 0)
    delay += std::chrono::nanoseconds(
        network_.below(static_cast<std::uint64_t>(options_.jitter.count())));
  return delay;
}

Post SimNic::post(const OneSided& operation, OperationContext* context) {
  if (refuse_posts_) return {PostStatus::kFailed, {ErrorCode::kProvider, "refused"}};
  auto& out = out_per_peer_[operation.peer];
  if (!connected(operation.peer) || out >= options_.depth_per_peer ||
      network_.chance(options_.again_chance))
    return {PostStatus::kAgain, {}};
  ++out;
  ++posts_;
  auto& [posts, bytes] = sent_per_peer_[operation.peer];
  ++posts;
  bytes += operation.length;
  if (keep_history_) history_.push_back(operation);
  bool fails = network_.chance(options_.failure_chance);
  if (fail_next_ > 0) {
    --fail_next_;
    fails = true;
  }
  const std::uint64_t number = network_.next_number_++;
  outstanding_[number] = {operation, context, fails};
  after(delay_of(operation.length), [this, number] { deliver(number); });
  return {};
}

void SimNic::after(std::chrono::nanoseconds time, std::function<void()> action) {
  network_.after(time, [alive = std::weak_ptr(alive_), action = std::move(action)] {
    if (!alive.expired()) action();
  });
}

void SimNic::deliver(std::uint64_t number) {
  const auto found = outstanding_.find(number);
  if (found == outstanding_.end()) return;  // cut off by reopen_outbound
  SimNic* target = target_of(found->second.operation.peer, SimNetwork::Role::kInbound);
  if (stalled_ || (target != nullptr && target->stalled_)) {
    after(kStallStep, [this, number] { deliver(number); });
    return;
  }
  if (target != nullptr && !network_.passes(options_.host, target->options_.host)) {
    after(kApartStep, [this, number] { deliver(number); });
    return;
  }
  const Outstanding ended = found->second;
  outstanding_.erase(found);
  --out_per_peer_[ended.operation.peer];
  complete(ended.context, !ended.fails && !dead_ && land(ended.operation, target), true);
}

bool SimNic::land(const OneSided& operation, SimNic* target) {
  if (target == nullptr || target->dead_) return false;
  const auto memory = network_.memory_.find(operation.remote_key);
  if (memory == network_.memory_.end() || memory->second.owner != target) return false;
  const auto bytes = memory->second.bytes;
  if (operation.remote_address > bytes.size() ||
      operation.length > bytes.size() - operation.remote_address)
    return false;
  std::byte* remote = bytes.data() + operation.remote_address;
  if (operation.direction == Direction::kRead) {
    for (const LocalPiece& piece : std::span(operation.local).first(operation.pieces)) {
      std::memcpy(piece.address, remote, piece.length);
      remote += piece.length;
    }
    return true;
  }
  for (const LocalPiece& piece : std::span(operation.local).first(operation.pieces)) {
    std::memcpy(remote, piece.address, piece.length);
    remote += piece.length;
  }
  if (operation.immediate) {
    Ready arrival;
    arrival.completion.kind = Completion::Kind::kImmediate;
    arrival.completion.immediate = *operation.immediate;
    target->ready_.push_back(std::move(arrival));
  }
  return true;
}

void SimNic::complete(OperationContext* context, bool ok, bool one_sided) {
  Ready ready;
  ready.completion.kind = Completion::Kind::kOperation;
  ready.completion.context = context;
  ready.completion.ok = ok;
  ready.completion.error_number = ok ? 0 : EIO;
  ready.one_sided = one_sided;
  ready_.push_back(std::move(ready));
}

Post SimNic::send(PeerHandle peer, std::span<const std::byte> payload, OperationContext* context) {
  if (!connected(peer) || network_.chance(options_.again_chance)) return {PostStatus::kAgain, {}};
  after(options_.latency,
        [this, peer, context,
         copy = std::vector<std::byte>(payload.begin(), payload.end())]() mutable {
          deliver_message(peer, std::move(copy), context);
        });
  return {};
}

void SimNic::deliver_message(PeerHandle peer, std::vector<std::byte> payload,
                             OperationContext* context) {
  SimNic* target = target_of(peer, SimNetwork::Role::kControl);
  if (target == nullptr || target->dead_ || dead_) return complete(context, false, false);
  if (stalled_ || target->stalled_ || !network_.passes(options_.host, target->options_.host)) {
    // All of a line's at once: they arrive in the order in which they were sent.
    const auto next = kMessageStallStep - network_.now().time_since_epoch() % kMessageStallStep;
    after(next, [this, peer, context, payload = std::move(payload)]() mutable {
      deliver_message(peer, std::move(payload), context);
    });
    return;
  }
  Ready arrival;
  arrival.completion.kind = Completion::Kind::kMessage;
  arrival.payload = std::move(payload);
  target->ready_.push_back(std::move(arrival));
  complete(context, true, false);
}

std::size_t SimNic::poll(std::span<Completion> completions) {
  lent_.clear();
  const auto most = std::min({completions.size(), options_.poll_batch, ready_.size()});
  lent_.reserve(most);
  for (std::size_t i = 0; i < most; ++i) {
    lent_.push_back(std::move(ready_.front()));
    ready_.pop_front();
    completions[i] = lent_.back().completion;
    completions[i].payload = lent_.back().payload;
  }
  return most;
}

Result<void> SimNic::reopen_outbound() {
  for (const auto& [number, each] : outstanding_) --out_per_peer_[each.operation.peer];
  outstanding_.clear();
  // Completions that wait to be polled go with their queue.
  std::erase_if(ready_, [](const Ready& ready) { return ready.one_sided; });
  if (fail_reopen_) return fail(ErrorCode::kProvider, "the card does not open again");
  return {};
}

Result<void> SimNic::reopen_inbound() {
  network_.endpoints_.erase(inbound_);
  inbound_ = network_.new_endpoint(this, SimNetwork::Role::kInbound);
  ++generation_;
  return {};
}

Result<std::unique_ptr<MemoryRegistration>> SimNic::register_memory(std::span<std::byte> memory) {
  if (memory.empty()) return fail(ErrorCode::kInvalidArgument, "cannot register 0 bytes");
  const std::uint64_t key = network_.random()();
  network_.memory_[key] = {memory, this};
  return std::make_unique<Registration>(network_, key);
}

}  // namespace penstock::sim

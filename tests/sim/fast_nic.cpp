#include "tests/sim/fast_nic.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace penstock::sim {

// -- the wire ------------------------------------------------------------------------------------

std::uint32_t FastWire::take() {
  if (free_.empty()) {
    operations_.emplace_back();
    return static_cast<std::uint32_t>(operations_.size() - 1);
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  return index;
}

std::int64_t FastWire::jitter(std::int64_t most_ps) {
  return most_ps == 0 ? 0
                      : static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most_ps));
}

void FastWire::run_until(std::int64_t now_ps) {
  while (!events_.empty() && events_.top().at_ps <= now_ps) {
    const Event event = events_.top();
    events_.pop();
    now_ps_ = event.at_ps;
    switch (event.step) {
      case Step::kArrives:
        arrives(event.operation);
        break;
      case Step::kLands:
        lands(event.operation);
        break;
      case Step::kEnds:
        ends(event.operation);
        break;
    }
  }
  now_ps_ = now_ps;
}

/// Whether both ends are as they were when it was posted, and the key is good.
bool FastWire::reaches(const Operation& operation) const {
  const FastNic& to = *operation.to;
  if (operation.from->dead_ || to.dead_) return false;
  if (operation.message) return true;
  if (operation.from_generation != operation.from->outbound_generation_ ||
      operation.to_generation != to.generation_)
    return false;
  if (operation.remote_key == 0 || operation.remote_key > memory_.size()) return false;
  const auto size = memory_[operation.remote_key - 1].size();
  return operation.remote_address <= size && operation.length <= size - operation.remote_address;
}

void FastWire::count(const Operation& operation, std::int64_t landed_ps) {
  const std::int64_t lasted = operation.to->line_ps(operation.length);
  const std::int64_t counted =
      std::min(landed_ps, count_end_ps_) - std::max(landed_ps - lasted, count_begin_ps_);
  if (counted > 0)
    operation.to->landed_bytes_ += static_cast<double>(operation.length) *
                                   static_cast<double>(counted) / static_cast<double>(lasted);
}

void FastWire::arrives(std::uint32_t index) {
  Operation& operation = operations_[index];
  FastNic& to = *operation.to;
  operation.ok = reaches(operation);
  if (!operation.ok || operation.message) {
    if (operation.ok) to.arrivals_.push_back({0, true, std::move(operation.payload)});
    return at(now_ps_ + operation.from->travel_ps(), index, Step::kEnds);
  }
  // The line was free while it came in, or it waits for those before it.
  const std::int64_t landed =
      std::max(now_ps_, to.receives_free_ps_ + to.line_ps(operation.length));
  to.receives_free_ps_ = landed;
  if (operation.counted || to.options_.move_bytes) return at(landed, index, Step::kLands);
  count(operation, landed);
  at(landed + to.travel_ps(), index, Step::kEnds);
}

void FastWire::lands(std::uint32_t index) {
  Operation& operation = operations_[index];
  FastNic& to = *operation.to;
  operation.ok = reaches(operation);
  if (operation.ok) {
    if (to.options_.move_bytes)
      std::memcpy(memory_[operation.remote_key - 1].data() + operation.remote_address,
                  operation.local, operation.length);
    if (operation.counted) to.arrivals_.push_back({operation.immediate, false, {}});
    count(operation, now_ps_);
  }
  at(now_ps_ + to.travel_ps(), index, Step::kEnds);
}

void FastWire::ends(std::uint32_t index) {
  Operation& operation = operations_[index];
  FastNic& from = *operation.from;
  const bool cut_off = !operation.message && operation.from_generation != from.outbound_generation_;
  const bool lost = !operation.ok && ((from.dead_ && from.silent_) ||
                                      (operation.to->dead_ && operation.to->silent_));
  // What is lost on the way of a silent card never ends; a message to it just fails to arrive.
  if (!cut_off && (!lost || operation.message)) {
    if (!operation.message) --from.out_;
    from.ready_.push_back(
        {operation.context, operation.ok || (lost && operation.message), operation.message});
  }
  operation.payload.clear();
  free_.push_back(index);
}

// -- the card ------------------------------------------------------------------------------------

class FastNic::Registration final : public MemoryRegistration {
 public:
  Registration(FastWire& wire, std::uint64_t key) : wire_(wire), key_(key) {}
  ~Registration() override { wire_.memory_[key_ - 1] = {}; }
  std::uint64_t key() const override { return key_; }
  std::uint64_t remote_base() const override { return 0; }
  void* descriptor() const override { return nullptr; }

 private:
  FastWire& wire_;
  std::uint64_t key_;
};

FastNic::FastNic(FastWire& wire, PollerCore& core, FastNicOptions options)
    : wire_(wire),
      core_(core),
      options_(std::move(options)),
      number_(static_cast<std::uint32_t>(wire.cards_.size())) {
  info_.name = options_.name;
  info_.provider = "sim";
  info_.max_chunk_bytes = std::uint64_t{1} << 30;
  info_.immediate_data = true;
  info_.fence = options_.fence;
  info_.link_gbps = options_.gbps;
  wire_.cards_.push_back(this);
}

FastNic::~FastNic() { wire_.cards_[number_] = nullptr; }

void FastNic::die(bool silent) {
  dead_ = true;
  silent_ = silent;
}

FabricAddress FastNic::address(std::uint32_t generation) const {
  const std::uint32_t words[2] = {number_, generation};
  FabricAddress address(sizeof words);
  std::memcpy(address.data(), words, sizeof words);
  return address;
}

/// A handle is the address itself: the card's number and the generation of its endpoint.
Result<PeerHandle> FastNic::add_peer(const FabricAddress& address) {
  PeerHandle handle = 0;
  if (address.size() != sizeof handle)
    return fail(ErrorCode::kInvalidArgument, "{} bytes are no address", address.size());
  std::memcpy(&handle, address.data(), sizeof handle);
  return handle;
}

std::int64_t FastNic::travel_ps() {
  return options_.latency.count() * 1000 + wire_.jitter(options_.jitter.count() * 1000);
}

Post FastNic::post(const OneSided& operation, OperationContext* context) {
  if (operation.direction != Direction::kWrite)
    return {PostStatus::kFailed, {ErrorCode::kUnsupported, "reads are not simulated here"}};
  if (out_ >= options_.depth) {
    ++again_;
    return {PostStatus::kAgain, {}};
  }
  ++out_;
  ++wire_.writes_;
  core_.works(core_.post_ps);
  const std::uint32_t index = wire_.take();
  auto& entry = wire_.operations_[index];
  entry.from = this;
  entry.to = wire_.cards_[static_cast<std::uint32_t>(operation.peer)];
  entry.context = context;
  entry.local = operation.local[0].address;  // it takes one piece
  entry.length = operation.length;
  entry.remote_address = operation.remote_address;
  entry.remote_key = operation.remote_key;
  entry.counted = operation.immediate.has_value();
  entry.immediate = operation.immediate.value_or(0);
  entry.message = false;
  entry.from_generation = outbound_generation_;
  entry.to_generation = static_cast<std::uint32_t>(operation.peer >> 32);
  const std::int64_t begins = std::max(core_.free_ps, sends_free_ps_);
  const std::int64_t lasts = std::max(line_ps(operation.length), options_.per_write.count() * 1000);
  sends_free_ps_ = begins + lasts;
  wire_.at(sends_free_ps_ + travel_ps(), index, FastWire::Step::kArrives);
  return {};
}

Post FastNic::send(PeerHandle peer, std::span<const std::byte> payload, OperationContext* context) {
  const std::uint32_t index = wire_.take();
  auto& entry = wire_.operations_[index];
  entry = {};
  entry.from = this;
  entry.to = wire_.cards_[static_cast<std::uint32_t>(peer)];
  entry.context = context;
  entry.message = true;
  entry.payload.assign(payload.begin(), payload.end());
  wire_.at(std::max(core_.free_ps, wire_.now_ps()) + travel_ps(), index, FastWire::Step::kArrives);
  return {};
}

std::size_t FastNic::poll(std::span<Completion> completions) {
  std::size_t count = 0;
  lent_.clear();
  if (!arrivals_.empty()) {
    std::swap(lent_, arrivals_);
    // What does not fit waits for the next poll.
    while (lent_.size() > completions.size()) {
      arrivals_.insert(arrivals_.begin(), std::move(lent_.back()));
      lent_.pop_back();
    }
    for (const Arrival& arrival : lent_) {
      Completion& completion = completions[count++];
      completion = {};
      completion.kind = arrival.message ? Completion::Kind::kMessage : Completion::Kind::kImmediate;
      completion.immediate = arrival.immediate;
      completion.payload = arrival.payload;
    }
  }
  for (; count < completions.size() && next_ready_ < ready_.size(); ++count, ++next_ready_) {
    Completion& completion = completions[count];
    completion = {};
    completion.context = ready_[next_ready_].context;
    completion.ok = ready_[next_ready_].ok;
    completion.error_number = completion.ok ? 0 : EIO;
  }
  if (next_ready_ == ready_.size()) {
    ready_.clear();
    next_ready_ = 0;
  }
  core_.works(static_cast<std::int64_t>(count) * core_.completion_ps);
  return count;
}

Result<void> FastNic::reopen_outbound() {
  ++outbound_generation_;
  out_ = 0;
  sends_free_ps_ = wire_.now_ps();
  // Messages keep their endpoint, and their completions.
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(next_ready_));
  std::erase_if(ready_, [](const Ended& ended) { return !ended.message; });
  next_ready_ = 0;
  if (dead_) return fail(ErrorCode::kProvider, "{}: the card is dead", options_.name);
  return {};
}

Result<void> FastNic::reopen_inbound() {
  ++generation_;
  return {};
}

Result<std::unique_ptr<MemoryRegistration>> FastNic::register_memory(std::span<std::byte> memory) {
  if (memory.empty()) return fail(ErrorCode::kInvalidArgument, "cannot register 0 bytes");
  wire_.memory_.push_back(memory);
  return std::make_unique<Registration>(wire_, wire_.memory_.size());
}

}  // namespace penstock::sim

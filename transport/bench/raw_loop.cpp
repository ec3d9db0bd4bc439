#include "transport/bench/raw_loop.hpp"

#include <array>
#include <cstring>
#include <ctime>

#include "transport/bench/raw_endpoint.hpp"

namespace penstock {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::chrono::nanoseconds thread_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

// -- target --------------------------------------------------------------------------------------

struct RawTarget::State {
  RawEndpoint raw;
  RawDescription description;
};

RawTarget::RawTarget(std::unique_ptr<State> state) : state_(std::move(state)) {}
RawTarget::~RawTarget() = default;

Result<std::unique_ptr<RawTarget>> RawTarget::open(const RawOptions& options,
                                                   std::span<std::byte> memory) {
  auto raw = RawEndpoint::open(options, memory);
  if (!raw) return tl::unexpected(raw.error());
  auto description = raw->describe();
  if (!description) return tl::unexpected(description.error());
  return std::unique_ptr<RawTarget>(
      new RawTarget(std::make_unique<State>(State{std::move(*raw), std::move(*description)})));
}

const RawDescription& RawTarget::description() const { return state_->description; }

void RawTarget::progress() {
  std::array<fi_cq_entry, 64> entries;
  fi_cq_read(state_->raw.queue.get(), entries.data(), entries.size());
}

// -- initiator -----------------------------------------------------------------------------------

struct RawInitiator::State {
  struct Slot {
    OperationContext context;
    std::uint64_t length = 0;
  };

  ssize_t post(const RawOperation& operation, Direction direction, Slot* slot);
  Result<void> reap();

  RawEndpoint raw;
  RawOptions options;
  fi_addr_t target = FI_ADDR_UNSPEC;
  std::uint64_t remote_key = 0;
  std::uint64_t remote_base = 0;
  std::vector<Slot> slots;
  std::vector<Slot*> free;
  std::uint64_t bytes_out = 0;
  std::uint64_t completed = 0;
};

RawInitiator::RawInitiator(std::unique_ptr<State> state) : state_(std::move(state)) {}
RawInitiator::~RawInitiator() = default;

Result<std::unique_ptr<RawInitiator>> RawInitiator::open(const RawOptions& options,
                                                         std::span<std::byte> memory,
                                                         const RawDescription& target) {
  std::uint64_t words[2] = {};
  if (target.size() <= sizeof words)
    return fail(ErrorCode::kInvalidArgument, "raw loop: the target's description is cut short");
  std::memcpy(words, target.data(), sizeof words);
  auto raw = RawEndpoint::open(options, memory);
  if (!raw) return tl::unexpected(raw.error());
  auto state = std::make_unique<State>();
  state->raw = std::move(*raw);
  state->options = options;
  state->remote_key = words[0];
  state->remote_base = words[1];
  state->slots = std::vector<State::Slot>(options.window_operations);
  for (auto& slot : state->slots) state->free.push_back(&slot);
  if (fi_av_insert(state->raw.addresses.get(), target.data() + sizeof words, 1, &state->target, 0,
                   nullptr) != 1)
    return fail(ErrorCode::kProvider, "raw loop: fi_av_insert refused the target's address");
  return std::unique_ptr<RawInitiator>(new RawInitiator(std::move(state)));
}

ssize_t RawInitiator::State::post(const RawOperation& operation, Direction direction, Slot* slot) {
  iovec local{raw.base + operation.local_offset, operation.length};
  fi_rma_iov remote{remote_base + operation.remote_offset, operation.length, remote_key};
  void* descriptor = fi_mr_desc(raw.memory.get());
  fi_msg_rma message{};
  message.msg_iov = &local;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = target;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = slot;
  slot->length = operation.length;
  return direction == Direction::kWrite
             ? fi_writemsg(raw.endpoint.get(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)
             : fi_readmsg(raw.endpoint.get(), &message, FI_COMPLETION);
}

Result<void> RawInitiator::State::reap() {
  std::array<fi_cq_entry, 64> entries;
  const auto read = fi_cq_read(raw.queue.get(), entries.data(), entries.size());
  if (read == -FI_EAGAIN) return {};
  if (read == -FI_EAVAIL) {
    fi_cq_err_entry error{};
    fi_cq_readerr(raw.queue.get(), &error, 0);
    return fail(ErrorCode::kProvider, "raw loop: an operation failed: {}", fi_strerror(error.err));
  }
  if (read < 0) return fail(ErrorCode::kProvider, "raw loop: fi_cq_read: {}", fabric_error(read));
  for (ssize_t i = 0; i < read; ++i) {
    auto* slot = static_cast<Slot*>(entries[i].op_context);
    bytes_out -= slot->length;
    free.push_back(slot);
  }
  completed += static_cast<std::uint64_t>(read);
  return {};
}

Result<RawRun> RawInitiator::run(std::span<const RawOperation> operations, Direction direction) {
  State& state = *state_;
  state.completed = 0;
  RawRun run;
  run.operations = operations.size();
  std::size_t next = 0;
  std::uint64_t last_completed = 0;
  unsigned quiet_rounds = 0;
  const auto cpu = thread_cpu_time();
  const auto start = SteadyClock::now();
  auto last_progress = start;
  while (state.completed < operations.size()) {
    while (next < operations.size() && !state.free.empty()) {
      const RawOperation& operation = operations[next];
      if (state.bytes_out > 0 && state.bytes_out + operation.length > state.options.window_bytes)
        break;
      const auto status = state.post(operation, direction, state.free.back());
      if (status == -FI_EAGAIN) break;
      if (status != 0)
        return fail(ErrorCode::kProvider, "raw loop: posting: {}", fabric_error(status));
      state.free.pop_back();
      state.bytes_out += operation.length;
      run.bytes += operation.length;
      ++next;
    }
    if (auto reaped = state.reap(); !reaped) return tl::unexpected(reaped.error());
    if (++quiet_rounds % 1024 != 0) continue;
    const auto now = SteadyClock::now();
    if (state.completed != last_completed) {
      last_completed = state.completed;
      last_progress = now;
    } else if (now - last_progress > state.options.patience) {
      return fail(ErrorCode::kDeadlineExceeded, "raw loop: {} of {} operations after {} ms",
                  state.completed, operations.size(), state.options.patience.count());
    }
  }
  run.elapsed = SteadyClock::now() - start;
  run.cpu = thread_cpu_time() - cpu;
  return run;
}

}  // namespace penstock

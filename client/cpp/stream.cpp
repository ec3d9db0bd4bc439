#include "client/cpp/stream.hpp"

#include <mutex>

#include "client/cpp/core.hpp"
#include "client/cpp/penstock.hpp"

namespace penstock::client {

struct StreamState {
 public:
  StreamState(const std::shared_ptr<Core>& its_core, const std::shared_ptr<TransferState>& its_end)
      : core(its_core), end(its_end), whole(its_end, its_core), id(whole.id()) {}
  ~StreamState() {
    if (!closed && !whole.ended())
      core->tell("cancel", {{"ids", packed(std::span<const std::uint64_t>({id}))}});
  }
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  const std::shared_ptr<Core> core;
  const std::shared_ptr<TransferState> end;
  const Transfer whole;
  const std::uint64_t id;
  std::mutex mutex;  // requests leave in the order of their numbers
  std::uint32_t parts = 0;
  bool closed = false;
};

Stream Client::stream(const StreamSpec& spec) {
  core_->refuse_on_own_thread("stream");
  auto keyed = spec;
  // When the answer is lost with its connection it is asked again: no second stream is opened.
  if (keyed.key.empty()) keyed.key = random_name("stream");
  auto state = core_->start_transfer(
      "stream", [&](std::uint64_t id) { return encode_stream(id, keyed); }, !spec.key.empty());
  return Stream(std::make_shared<StreamState>(core_, state));
}

std::uint64_t Stream::id() const { return state_->id; }

Transfer Stream::append(const Part& part) const {
  std::lock_guard lock(state_->mutex);
  if (state_->closed) throw Error("INVALID_ARGUMENT", "the stream is closed");
  auto transfer = state_->core->start_transfer("append", [&](std::uint64_t id) {
    return encode_append(id, state_->id, state_->parts, part);
  });
  ++state_->parts;
  return Transfer(std::move(transfer), state_->core);
}

std::uint32_t Stream::parts() const {
  std::lock_guard lock(state_->mutex);
  return state_->parts;
}

void Stream::close() const {
  std::lock_guard lock(state_->mutex);
  if (std::exchange(state_->closed, true)) return;
  state_->core->close_stream(state_->id, state_->parts, state_->end);
}

void Stream::cancel() const { state_->whole.cancel(); }

const Transfer& Stream::transfer() const { return state_->whole; }

}  // namespace penstock::client

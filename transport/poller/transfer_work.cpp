#include "transport/poller/transfer_work.hpp"

#include <algorithm>
#include <limits>

namespace penstock {

TransferWork::TransferWork(StartTransfer start, std::size_t nics)
    : start_(std::move(start)),
      local_base_(start_.local && start_.local->memory ? start_.local->memory->bytes().data()
                                                       : nullptr),
      descriptors_(nics, nullptr),
      paths_(nics),
      next_path_(nics, 0),
      cursor_(*start_.plan),
      landed_((start_.plan->chunks() + 63) / 64, 0),
      shares_(nics),
      dirty_nics_(nics, false) {
  if (!start_.local) return;
  const auto& registrations = start_.local->registrations;
  for (std::size_t nic = 0; nic < nics && nic < registrations.size(); ++nic)
    if (registrations[nic]) descriptors_[nic] = registrations[nic]->descriptor();
}

bool TransferWork::has_paths() const {
  return std::any_of(paths_.begin(), paths_.end(), [](const auto& each) { return !each.empty(); });
}

bool TransferWork::uses(const Link* link) const {
  const auto over = [&](const Path& path) { return path.link == link; };
  return std::any_of(paths_.begin(), paths_.end(),
                     [&](const auto& each) { return std::any_of(each.begin(), each.end(), over); });
}

void TransferWork::drop_paths(const Link* link) {
  for (auto& paths : paths_) std::erase_if(paths, [&](const Path& p) { return p.link == link; });
}

void TransferWork::clear_paths() {
  for (auto& paths : paths_) paths.clear();
}

const Chunk* TransferWork::peek() {
  if (has_ahead_) return &ahead_;
  if (!retry_.empty()) {
    ahead_ = retry_.back();
    retry_.pop_back();
    has_ahead_ = true;
  } else {
    has_ahead_ = cursor_.next(ahead_);
  }
  return has_ahead_ ? &ahead_ : nullptr;
}

void TransferWork::posted_next() {
  has_ahead_ = false;
  ++operations_out_;
  bytes_out_ += ahead_.length;
  unposted_ -= static_cast<std::int64_t>(ahead_.length);
}

bool TransferWork::completed(const Chunk& chunk, std::size_t nic) {
  landed_[chunk.sequence / 64] |= std::uint64_t{1} << (chunk.sequence % 64);
  ++completed_chunks_;
  completed_bytes_ += chunk.length;
  bytes_out_ -= chunk.length;
  shares_[nic].bytes += chunk.length;
  ++shares_[nic].writes;
  return --operations_out_ == 0;
}

bool TransferWork::failed(const Chunk& chunk, std::size_t nic, const Error& error) {
  dirty_.push_back(chunk);
  bytes_out_ -= chunk.length;
  note_failure(nic, error);
  return --operations_out_ == 0;
}

void TransferWork::not_posted(std::size_t nic, const Error& error) { note_failure(nic, error); }

void TransferWork::note_failure(std::size_t nic, const Error& error) {
  dirty_nics_[nic] = true;
  stop(error);
}

void TransferWork::grant(std::uint64_t bytes) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max() / 2;
  const auto more = static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, kMost));
  unposted_ = std::min(unposted_, kMost) + more;
  quantum_ = bytes;
  hungry_told_ = false;
}

bool TransferWork::take_hunger() {
  if (hungry_told_ || state != State::kRunning) return false;
  if (unposted_ > 0 && static_cast<std::uint64_t>(unposted_) > quantum_ / 2) return false;
  hungry_told_ = true;
  // Not when what is granted reaches to the end of the plan.
  const std::uint64_t left = plan().bytes() - completed_bytes_ - bytes_out_;
  return unposted_ <= 0 ? left > 0 : left > static_cast<std::uint64_t>(unposted_);
}

void TransferWork::stop(std::optional<Error> reason) {
  if (reason && !error_) error_ = std::move(reason);
  unposted_ = 0;
  hungry_told_ = true;
  if (state == State::kRunning) state = State::kStopping;
}

void TransferWork::resume() {
  retry_.insert(retry_.end(), dirty_.begin(), dirty_.end());
  dirty_.clear();
  dirty_nics_.assign(dirty_nics_.size(), false);
  error_.reset();
  start_.immediate.reset();
  unposted_ = 0;
  credit = 0;
  state = State::kRunning;
}

TransferIdle TransferWork::idle_event() const {
  TransferIdle event;
  event.transfer = id();
  event.complete = complete();
  event.error = error_;
  for (std::size_t nic = 0; nic < dirty_nics_.size(); ++nic)
    if (dirty_nics_[nic]) event.dirty_nics.push_back(static_cast<std::uint16_t>(nic));
  event.completed_bytes = completed_bytes_;
  event.shares = shares_;
  if (!event.complete) event.landed = landed_;
  return event;
}

}  // namespace penstock

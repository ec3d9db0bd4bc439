#include "transport/poller/transfer_work.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "transport/packing/packed_buffer.hpp"

namespace penstock {

TransferWork::TransferWork(StartTransfer start, std::size_t nics, SendSlots& send_slots,
                           std::size_t pieces)
    : start_(std::move(start)),
      send_slots_(&send_slots),
      local_base_(start_.local && start_.local->memory ? start_.local->memory->bytes().data()
                                                       : nullptr),
      descriptors_(nics, nullptr),
      paths_(nics),
      next_path_(nics, 0),
      cursor_(*start_.plan),
      landed_((start_.plan->chunks() + 63) / 64, 0),
      shares_(nics),
      dirty_nics_(nics, false),
      pieces_(pieces) {
  if (start_.packing && !start_.packing->slots.empty())
    bundles_.emplace(*start_.packing, *start_.plan);
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
  spoil_unless_it_has_a_way();
}

void TransferWork::drop_paths_of_nic(std::size_t nic) {
  paths_[nic].clear();
  spoil_unless_it_has_a_way();
}

/// A bundle that is gathered and not posted goes only where there is staging memory.
void TransferWork::spoil_unless_it_has_a_way() {
  if (ready_ == nullptr) return;
  for (const auto& paths : paths_)
    for (const Path& path : paths)
      if (path.staging_key != 0) return;
  spoil(std::exchange(ready_, nullptr));
}

void TransferWork::clear_paths() {
  for (auto& paths : paths_) paths.clear();
}

const ChunkRun* TransferWork::peek() {
  if (!ahead_.empty()) return &ahead_;
  // An owner who counts counts chunks, each with its immediate; and bundles take them one by one.
  const bool alone = bundles_ || start_.immediate || !plan().limits().merge;
  const std::size_t most = alone ? 1 : pieces_;
  Chunk chunk;
  while (ahead_.size() < most && next_chunk(chunk)) {
    if (!ahead_.empty() && !joins(chunk)) {
      held_ = chunk;
      break;
    }
    ahead_.add(chunk);
  }
  return ahead_.empty() ? nullptr : &ahead_;
}

bool TransferWork::next_chunk(Chunk& chunk) {
  if (held_) {
    chunk = *std::exchange(held_, std::nullopt);
    return true;
  }
  if (retry_.empty()) return cursor_.next(chunk);
  chunk = retry_.back();
  retry_.pop_back();
  return true;
}

bool TransferWork::joins(const Chunk& chunk) const {
  const Chunk& last = ahead_.chunks().back();
  return remote_offset(last) + last.length == remote_offset(chunk) &&
         ahead_.bytes() + chunk.length <= plan().limits().max_chunk_bytes;
}

void TransferWork::posted_next() {
  ++operations_out_;
  bytes_out_ += ahead_.bytes();
  unposted_ -= static_cast<std::int64_t>(ahead_.bytes());
  ahead_.clear();
}

// -- packed --------------------------------------------------------------------------------------

bool TransferWork::packs_next() {
  return bundles_ && (ready_ != nullptr || (peek() != nullptr && bundles_->packs(peek()->front())));
}

bool TransferWork::waits_for_slot() {
  return ready_ == nullptr && packs_next() && !bundles_->slot_free();
}

Bundle* TransferWork::gather() {
  const ChunkRun* next = peek();  // one chunk: while bundles are made, none are joined
  const std::span<std::byte> local = send_slots_->take();
  PackedWriter writer(local.first(std::min(local.size(), bundles_->slot_bytes())));
  if (!writer.fits(next->bytes())) {
    send_slots_->give_back(local);
    return nullptr;
  }
  Bundle* bundle = bundles_->open();
  bundle->local = local;
  bundle->first = next->front();
  bundle->rest = cursor_;
  do {
    const Chunk& chunk = next->front();
    writer.add(chunk.destination_offset,
               {local_base_ + chunk.source_offset, static_cast<std::size_t>(chunk.length)});
    ++bundle->chunks;
    bundle->payload_bytes += chunk.length;
    unposted_ -= static_cast<std::int64_t>(chunk.length);
    ahead_.clear();
    next = peek();
  } while (next != nullptr && unposted_ > 0 && bundles_->packs(next->front()) &&
           writer.fits(next->bytes()));
  bundle->wire_bytes = writer.finish();
  ++operations_out_;
  bytes_out_ += bundle->payload_bytes;
  ready_ = bundle;
  return bundle;
}

void TransferWork::bundle_posted(std::size_t nic) {
  ready_->nic = static_cast<std::uint16_t>(nic);
  ready_ = nullptr;
}

bool TransferWork::written(Bundle* bundle) {
  send_slots_->give_back(std::exchange(bundle->local, {}));
  if (bundle->credited)
    land(bundle);
  else if (state != State::kRunning)
    spoil(bundle);  // no credit is waited for any more
  else
    ++credits_owed_;
  return operations_out_ == 0;
}

bool TransferWork::failed(Bundle* bundle, const Error& error) {
  const std::size_t nic = bundle->nic;
  spoil(bundle);
  note_failure(nic, error);
  return operations_out_ == 0;
}

bool TransferWork::credited(std::uint32_t immediate) {
  Bundle* bundle = bundles_ ? bundles_->find(immediate) : nullptr;
  if (bundle == nullptr || bundle == ready_ || bundle->credited) return false;
  bundle->credited = true;
  if (!bundle->local.empty()) return false;  // its write has not completed yet
  --credits_owed_;
  land(bundle);
  return operations_out_ == 0;
}

void TransferWork::land(const Chunk& chunk) {
  landed_[chunk.sequence / 64] |= std::uint64_t{1} << (chunk.sequence % 64);
}

void TransferWork::land(const Bundle* bundle) {
  bundle->for_each([&](const Chunk& chunk) { land(chunk); });
  completed_chunks_ += bundle->chunks;
  completed_bytes_ += bundle->payload_bytes;
  packed_bytes_ += bundle->payload_bytes;
  bytes_out_ -= bundle->payload_bytes;
  shares_[bundle->nic].bytes += bundle->payload_bytes;
  ++shares_[bundle->nic].writes;
  --operations_out_;
  bundles_->close(bundle, true);
}

/// Its chunks are due again after a resume. Its slot stays taken: the receiver may hold it still.
void TransferWork::spoil(Bundle* bundle) {
  if (!bundle->local.empty()) send_slots_->give_back(std::exchange(bundle->local, {}));
  bundle->for_each([&](const Chunk& chunk) { add_dirty(chunk); });
  bytes_out_ -= bundle->payload_bytes;
  --operations_out_;
  bundles_->close(bundle, false);
  if (!bundles_->slot_free() && bundles_->all().empty()) bundles_.reset();  // no slot is left
}

/// Of what is not out on a card: gathered only, or written and never credited.
void TransferWork::abandon_bundles() {
  if (!bundles_) return;
  std::vector<Bundle*> idle;
  for (const auto& bundle : bundles_->all())
    if (bundle.get() == ready_ || bundle->local.empty()) idle.push_back(bundle.get());
  for (Bundle* bundle : idle) spoil(bundle);
  ready_ = nullptr;
  credits_owed_ = 0;
}

// -- completions ---------------------------------------------------------------------------------

bool TransferWork::completed(const ChunkRun& run, std::size_t nic) {
  for (const Chunk& chunk : run.chunks()) land(chunk);
  completed_chunks_ += run.size();
  completed_bytes_ += run.bytes();
  bytes_out_ -= run.bytes();
  shares_[nic].bytes += run.bytes();
  ++shares_[nic].writes;
  return --operations_out_ == 0;
}

bool TransferWork::failed(const ChunkRun& run, std::size_t nic, const Error& error) {
  for (const Chunk& chunk : run.chunks()) add_dirty(chunk);
  bytes_out_ -= run.bytes();
  note_failure(nic, error);
  return --operations_out_ == 0;
}

void TransferWork::note_failure(std::size_t nic, const Error& error) {
  dirty_nics_[nic] = true;
  note_error(error);
}

void TransferWork::note_error(const Error& error) {
  if (!error_) error_ = error;
}

void TransferWork::note_dirty(LinkId link) {
  if (std::find(dirty_links_.begin(), dirty_links_.end(), link) == dirty_links_.end())
    dirty_links_.push_back(link);
}

void TransferWork::add_dirty(const Chunk& chunk) {
  dirty_.push_back(chunk);
  dirty_bytes_ += chunk.length;
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
  // Not when what is granted reaches to the end of the plan. Dirty chunks were granted before, and
  // do not come back before a resume.
  const std::uint64_t left = plan().bytes() - completed_bytes_ - bytes_out_ - dirty_bytes_;
  return unposted_ <= 0 ? left > 0 : left > static_cast<std::uint64_t>(unposted_);
}

void TransferWork::stop(std::optional<Error> reason) {
  if (reason && !error_) error_ = std::move(reason);
  unposted_ = 0;
  hungry_told_ = true;
  if (state == State::kRunning) state = State::kStopping;
  abandon_bundles();
}

void TransferWork::resume() {
  retry_.insert(retry_.end(), dirty_.begin(), dirty_.end());
  dirty_.clear();
  dirty_bytes_ = 0;
  dirty_links_.clear();
  dirty_nics_.assign(dirty_nics_.size(), false);
  error_.reset();
  start_.immediate.reset();
  bundles_.reset();  // what is left goes directly
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
  event.dirty_links = dirty_links_;
  event.completed_bytes = completed_bytes_;
  event.packed_bytes = packed_bytes_;
  event.shares = shares_;
  if (!event.complete) event.landed = landed_;
  return event;
}

}  // namespace penstock

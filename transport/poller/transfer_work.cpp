#include "transport/poller/transfer_work.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "transport/packing/packed_buffer.hpp"
#include "transport/packing/page_copy.hpp"

namespace penstock {

namespace {

/// Bundles that are gathered ahead of posting, of one transfer: enough to hide the gathering behind
/// the writes, few enough that the next transfer finds slots.
constexpr std::size_t kGatheredAhead = 8;

}  // namespace

TransferWork::TransferWork(StartTransfer start, std::size_t nics, SendSlots& send_slots,
                           std::size_t pieces, SlotMover* mover)
    : start_(std::move(start)),
      send_slots_(&send_slots),
      local_base_(start_.local && start_.local->memory ? start_.local->memory->bytes().data()
                                                       : nullptr),
      descriptors_(nics, nullptr),
      paths_(nics),
      next_path_(nics, 0),
      cursor_(*start_.plan),
      mover_(mover),
      landed_((start_.plan->chunks() + 63) / 64, 0),
      shares_(nics),
      out_on_(nics),
      dirty_nics_(nics, false),
      pieces_(pieces) {
  packed_only_ = start_.packing && start_.packing->only;
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

/// A bundle that is gathered and not posted goes only where there is staging memory. One that is
/// being gathered is looked at when that ends.
void TransferWork::spoil_unless_it_has_a_way() {
  while (ready_ != nullptr && !has_packed_way()) {
    Bundle* bundle = ready_;
    next_ready();
    spoil(bundle);
  }
}

bool TransferWork::has_packed_way() const {
  for (const auto& paths : paths_)
    for (const Path& path : paths)
      if (path.staging_key != 0) return true;
  return false;
}

void TransferWork::clear_paths() {
  for (auto& paths : paths_) paths.clear();
}

const ChunkRun* TransferWork::peek() {
  if (!ahead_.empty()) return &ahead_;
  // An owner who counts counts chunks, each with its immediate; and bundles take them one by one.
  const bool alone = bundles_ || packed_only_ || start_.immediate || !plan().limits().merge;
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

bool TransferWork::waits() {
  if (ready_ != nullptr) return false;
  if (gathers_ahead()) return true;
  if (packed_only_) return !bundles_ || !bundles_->slot_free() || send_slots_->exhausted();
  return packs_next() && !bundles_->slot_free();
}

Bundle* TransferWork::gather() {
  Bundle* bundle = begin_bundle();
  if (bundle != nullptr) ready_ = bundle;
  return bundle;
}

/// Takes a slot on both sides and as many of the next chunks as fit. Where the processor copies,
/// they are in the slot afterwards; otherwise pages_ says what has to be copied.
Bundle* TransferWork::begin_bundle() {
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
    pages_.push_back(
        {chunk.source_offset, writer.place(chunk.destination_offset, chunk.length), chunk.length});
    if (resumed_) bundle->listed.push_back(chunk);
    ++bundle->chunks;
    bundle->payload_bytes += chunk.length;
    unposted_ -= static_cast<std::int64_t>(chunk.length);
    ahead_.clear();
    next = peek();
  } while (next != nullptr && unposted_ > 0 && bundles_->packs(next->front()) &&
           writer.fits(next->bytes()));
  bundle->wire_bytes = writer.finish();
  if (mover_ == nullptr) {
    gather_pages(pages_, local_base_, local.data());
    pages_.clear();
  }
  ++operations_out_;
  bytes_out_ += bundle->payload_bytes;
  return bundle;
}

void TransferWork::bundle_posted(std::size_t nic) {
  ready_->nic = static_cast<std::uint16_t>(nic);
  ready_->stage = Bundle::Stage::kPosted;
  next_ready();
}

void TransferWork::next_ready() {
  ready_ = nullptr;
  if (gathered_.empty()) return;
  ready_ = gathered_.front();
  gathered_.erase(gathered_.begin());
}

// -- gathered ahead ------------------------------------------------------------------------------

Result<bool> TransferWork::gather_ahead() {
  if (state != State::kRunning || !gathers_ahead()) return false;
  if (!pages_.empty()) return start_gathering(gathering_.back());  // it had to wait
  const std::size_t ahead = gathering_.size() + gathered_.size() + (ready_ != nullptr);
  if (ahead >= kGatheredAhead || unposted_ <= 0 || !bundles_->slot_free() ||
      send_slots_->exhausted() || !has_packed_way() || peek() == nullptr)
    return false;
  Bundle* bundle = begin_bundle();
  if (bundle == nullptr)
    return fail(ErrorCode::kInternal, "a page of {} bytes does not fit into a staging slot of {}",
                peek()->bytes(), bundles_->slot_bytes());
  bundle->stage = Bundle::Stage::kGathering;
  gathering_.push_back(bundle);
  return start_gathering(bundle);
}

/// False: the mover takes no more now.
Result<bool> TransferWork::start_gathering(Bundle* bundle) {
  auto ticket =
      mover_->start(pages_, local().memory->bytes(), bundle->local, MoveDirection::kGather);
  if (!ticket && ticket.error().code == ErrorCode::kBusy) return false;
  pages_.clear();
  if (!ticket) {
    gathering_.pop_back();
    spoil(bundle);
    return tl::unexpected(ticket.error());
  }
  bundle->moving = *ticket;
  return true;
}

Result<std::size_t> TransferWork::look_at_gathering() {
  std::size_t ended = 0;
  std::optional<Error> failure;
  for (std::size_t i = 0; i < gathering_.size();) {
    Bundle* bundle = gathering_[i];
    if (bundle->moving == SlotMover::kNothing) break;  // the last: not started yet
    const auto done = mover_->poll(bundle->moving);
    if (done && !*done) {
      ++i;
      continue;
    }
    gathering_.erase(gathering_.begin() + static_cast<std::ptrdiff_t>(i));
    bundle->moving = SlotMover::kNothing;
    ++ended;
    if (done) {
      gathered(bundle);
    } else {
      failure = done.error();
      spoil(bundle);
    }
  }
  if (failure) return tl::unexpected(*failure);
  return ended;
}

void TransferWork::gathered(Bundle* bundle) {
  if (state != State::kRunning || !has_packed_way()) return spoil(bundle);
  bundle->stage = Bundle::Stage::kGathered;
  if (ready_ == nullptr)
    ready_ = bundle;
  else
    gathered_.push_back(bundle);
}

// -- written, credited ---------------------------------------------------------------------------

bool TransferWork::written(Bundle* bundle) {
  send_slots_->give_back(std::exchange(bundle->local, {}));
  bundle->stage = Bundle::Stage::kWritten;
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
  if (bundle == nullptr || bundle->stage < Bundle::Stage::kPosted || bundle->credited) return false;
  bundle->credited = true;
  if (bundle->stage == Bundle::Stage::kPosted) return false;  // its write has not completed yet
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

/// Its chunks are due again after a resume. The slot of one that was posted stays taken: the
/// receiver may hold it still.
void TransferWork::spoil(Bundle* bundle) {
  if (!bundle->local.empty()) send_slots_->give_back(std::exchange(bundle->local, {}));
  bundle->for_each([&](const Chunk& chunk) { add_dirty(chunk); });
  bytes_out_ -= bundle->payload_bytes;
  --operations_out_;
  bundles_->close(bundle, bundle->stage < Bundle::Stage::kPosted);
  if (!packed_only_ && bundles_->spent()) bundles_.reset();
}

/// Of what is neither out on a card nor being gathered: gathered only, or written and never
/// credited.
void TransferWork::abandon_bundles() {
  if (!bundles_) return;
  std::vector<Bundle*> idle;
  for (const auto& bundle : bundles_->all())
    if (bundle->stage != Bundle::Stage::kPosted && bundle->moving == SlotMover::kNothing)
      idle.push_back(bundle.get());
  std::erase_if(gathering_, [](const Bundle* each) { return each->moving == SlotMover::kNothing; });
  pages_.clear();
  gathered_.clear();
  ready_ = nullptr;
  credits_owed_ = 0;
  for (Bundle* bundle : idle) spoil(bundle);
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

void TransferWork::resume(std::optional<Packing> packing) {
  retry_.insert(retry_.end(), dirty_.begin(), dirty_.end());
  dirty_.clear();
  dirty_bytes_ = 0;
  dirty_links_.clear();
  dirty_nics_.assign(dirty_nics_.size(), false);
  error_.reset();
  start_.immediate.reset();
  resumed_ = true;
  bundles_.reset();  // what is left goes directly, unless there are slots again
  if (packing && !packing->slots.empty()) bundles_.emplace(*packing, plan());
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

// Outbound: how a transfer begins. Warm-up, OPEN, and which way the bytes will go.
#include <algorithm>

#include "actors/device/outbound.hpp"
#include "transport/packing/packed_buffer.hpp"

namespace penstock {
namespace {

/// Packing a handful of chunks saves less than its credit's way back costs.
constexpr std::uint64_t kFewChunks = 8;

/// How often an event that a transfer waits for is looked at.
constexpr std::chrono::microseconds kEventLook{200};

/// As a packed buffer, a transfer this small fits into a message.
constexpr std::uint64_t kInlineChunks = 64;

InlineBytes pack_all(const Plan& plan, std::span<const std::byte> source) {
  InlineBytes data;
  data.bytes.resize(kPackedHeaderBytes + plan.bytes() + plan.chunks() * kPackedEntryBytes);
  PackedWriter writer(data.bytes);
  Cursor cursor(plan);
  for (Chunk chunk; cursor.next(chunk);)
    writer.add(chunk.destination_offset, source.subspan(chunk.source_offset, chunk.length));
  data.bytes.resize(writer.finish());
  return data;
}

/// Fills in what a path needs to write to the owner's staging memory.
void reach_staging(RemotePath& path, const std::vector<Peer::PathCard>& links,
                   const std::vector<RegionKey>& keys) {
  for (const auto& link : links)
    for (const auto& key : keys)
      if (link.link == path.link && link.remote_nic == key.nic) {
        path.staging_base = key.base;
        path.staging_key = key.key;
      }
}

std::uint32_t milliseconds_between(TimePoint from, TimePoint to) {
  const auto ms = std::chrono::duration_cast<Milliseconds>(to - from).count();
  return static_cast<std::uint32_t>(std::clamp<long long>(ms, 0, 0xffffffffLL));
}

}  // namespace

// -- warm-up -------------------------------------------------------------------------------------

WriteCosts Outbound::costs_of(Incarnation peer) const {
  const auto found = costs_.find(peer);
  return found == costs_.end() ? options_.costs : found->second;
}

void Outbound::warm_up(Incarnation peer, const std::string& node, const std::string& device,
                       std::shared_ptr<RegionUse> scratch, TimePoint now) {
  next_warm_up({peer, node, device, std::move(scratch), WarmUp(options_.costs)}, now);
}

void Outbound::next_warm_up(WarmUpRun run, TimePoint now) {
  const auto step = run.steps.next();
  const Node& node = nodes_[run.node];
  if (!step || node.up != run.peer) return;
  Admitted write;
  write.id = next_warm_up_++;
  write.node = run.node;
  write.remote_region = scratch_of(run.device);
  write.plan = step->plan;
  write.local = run.scratch;
  write.deadline = now + options_.connect;
  write.packing = PackingMode::kNever;
  write.only_link = step->link;
  warm_ups_.emplace(write.id, std::move(run));
  admit(std::move(write), now);
}

void Outbound::warm_up_ended(TransferId id, bool done, std::size_t links,
                             std::chrono::nanoseconds elapsed, TimePoint now) {
  auto found = warm_ups_.extract(id);
  if (found.empty() || !done) return;
  WarmUpRun& run = found.mapped();
  run.steps.done(links, elapsed);
  if (run.steps.measured()) costs_[run.peer] = run.steps.costs();
  next_warm_up(std::move(run), now);
}

// -- opening -------------------------------------------------------------------------------------

Outbound::Node::Queue& Outbound::queue_of(const Transfer& transfer) {
  return nodes_[transfer.asked.node].lanes[transfer.asked.lane == Lane::kBulk];
}

void Outbound::open_waiting(Node& node, TimePoint now) {
  // A transfer that ends while it is opened calls this again: the loop below it goes on, whatever
  // the number of those that wait.
  if (std::exchange(node.opening, true)) return;
  for (auto& queue : node.lanes) {
    while (node.up && queue.open < options_.open_per_node && !queue.waiting.empty()) {
      Transfer& transfer = transfers_.at(*queue.waiting.begin());
      queue.waiting.erase(queue.waiting.begin());
      transfer.peer = *node.up;
      transfer.inlined = fits_inline(transfer);
      ++queue.open;
      open(transfer, now);
    }
  }
  node.opening = false;
}

void Outbound::open(Transfer& transfer, TimePoint now) {
  const Admitted& asked = transfer.asked;
  const Plan& plan = *asked.plan;
  const bool write = asked.direction == Direction::kWrite;
  transfer.ask_again = false;
  transfer.stages.enter(Stage::kMetadata, now);
  transfer.staged = asked.path == PathChoice::kStaged || (*asked.local)->needs_staging();
  if (auto error = cannot_go(transfer))
    return end(transfer, Outcome::kFailed, std::move(error), Remote::kQuiet, now);
  if (asked.start_after) {
    const auto done = asked.start_after->done();
    if (!done) return end(transfer, Outcome::kFailed, done.error(), Remote::kQuiet, now);
    transfer.ask_again = !*done;
    if (!*done) return enter(transfer, State::kOpening, std::min(asked.deadline, now + kEventLook));
  }
  transfer.pack_below = transfer.inlined || transfer.staged ? 0 : pack_below(transfer);
  const bool counted = write && !transfer.inlined && !transfer.staged && transfer.pack_below == 0 &&
                       plan.chunks() > 0 && plan.chunks() <= options_.counted_chunks;
  Open question;
  question.transfer = asked.id;
  question.region = asked.remote_region;
  question.epoch = asked.remote_epoch;
  question.direction = asked.direction;
  question.end = write ? plan.destination_end() : plan.source_end();
  question.bytes = plan.bytes();
  question.chunks = counted ? static_cast<std::uint32_t>(plan.chunks()) : 0;
  question.lease_ms = milliseconds_between(
      now, asked.deadline + options_.grace_max + options_.fence + options_.lease_extra);
  question.initiator_region = (*asked.local)->name;
  question.notify = asked.notify;
  question.stream = asked.stream;
  question.part = asked.part;
  question.shadow = asked.shadow;
  question.initiator_device = options_.device;
  if (transfer.inlined) question.data = pack_all(plan, (*asked.local)->memory->bytes());
  question.staged = transfer.staged;
  if (transfer.pack_below > 0 || transfer.staged) question.pack_slots = slots_wanted(transfer);
  const TimePoint due = std::min(asked.deadline, now + options_.open);
  enter(transfer, State::kOpening, asked.deadline);
  ask(transfer, std::move(question), due);
}

void Outbound::opened(Transfer& transfer, Result<Answer>& answer,
                      Result<std::vector<Peer::PathCard>>& links, TimePoint now) {
  if (answer && std::holds_alternative<AlreadyDone>(*answer) && transfer.inlined) {
    transfer.last.complete = true;
    transfer.last.completed_bytes = transfer.asked.plan->bytes();
    return end(transfer, Outcome::kDone, std::nullopt, Remote::kQuiet, now);
  }
  if (!answer && transfer.inlined) return not_taken(transfer, answer.error(), now);
  if (!answer && answer.error().code == ErrorCode::kBusy && now < transfer.asked.deadline) {
    // A question that was under way for too long is young when it is asked anew; staging slots come
    // back as other transfers end.
    transfer.ask_again = true;
    const auto wait =
        std::exchange(transfer.was_busy, true) ? options_.retry_backoff : Milliseconds(0);
    return enter(transfer, State::kOpening, std::min(transfer.asked.deadline, now + wait));
  }
  if (!answer) {
    tell(transfer, Fence{transfer.asked.id, "", {}, true}, now + options_.fence);
    const ErrorCode code = answer.error().code;
    const bool expired = (code == ErrorCode::kPeerUnreachable || code == ErrorCode::kBusy) &&
                         now >= transfer.asked.deadline;
    if (!expired) return end(transfer, Outcome::kFailed, answer.error(), Remote::kQuiet, now);
    Error error = late(transfer);
    error.message += "; " + answer.error().message;
    return end(transfer, Outcome::kExpired, std::move(error), Remote::kQuiet, now);
  }
  auto* ok = std::get_if<OpenOk>(&*answer);
  if (!ok || !links || links->empty()) {
    if (ok) transfer.device = ok->device;
    tell(transfer, Fence{transfer.asked.id, transfer.device, {}, true}, now + options_.fence);
    Error error = !ok      ? Error{ErrorCode::kInternal, "the owner gave an answer of another kind"}
                  : !links ? links.error()
                           : Error{ErrorCode::kUnsupported, "no card here reaches the owner"};
    return end(transfer, Outcome::kFailed, std::move(error), Remote::kQuiet, now);
  }
  transfer.device = ok->device;
  transfer.staged = transfer.staged || ok->staged;
  transfer.remote_on_gpu = ok->on_gpu;
  auto refused = cannot_go(transfer, *ok);
  if (transfer.staged && !refused) {
    auto plan = cut_to_slots(*transfer.asked.plan, ok->staging->slot_bytes);
    if (plan)
      transfer.asked.plan = std::move(*plan);
    else
      refused = plan.error();
  }
  if (refused) {
    tell(transfer, Fence{transfer.asked.id, transfer.device, {}, true}, now + options_.fence);
    return end(transfer, Outcome::kFailed, std::move(refused), Remote::kQuiet, now);
  }
  transfer.epoch = ok->epoch;
  transfer.keys = std::move(ok->keys);
  transfer.immediate = ok->immediate;
  if (ok->staging) transfer.staging_keys = ok->staging->keys;
  transfer.links = std::move(*links);
  transfer.link_count = transfer.links.size();
  if (transfer.asked.only_link)
    transfer.links = {transfer.links[*transfer.asked.only_link % transfer.link_count]};
  if (transfer.asked.plan->chunks() == 0) {
    transfer.last.complete = true;
    return finish(transfer, now);
  }
  transfer.started_poller = true;
  enter(transfer, State::kRunning, transfer.asked.deadline);
  transfer.stages.enter(Stage::kPosting, now);
  std::optional<Packing> packing;
  if (ok->staging)
    packing.emplace(Packing{transfer.pack_below, ok->staging->slot_bytes,
                            std::move(ok->staging->slots), transfer.staged});
  port_.command(StartTransfer{transfer.asked.id, transfer.asked.plan, transfer.asked.direction,
                              transfer.asked.lane, (*transfer.asked.local)->local(),
                              paths_over(transfer.links, transfer), transfer.immediate,
                              std::move(packing)});
  scheduler_.add(transfer.asked.id, transfer.peer, transfer.asked.lane, transfer.asked.weight,
                 transfer.asked.plan->bytes(), transfer.asked.stream);
  grant();
}

std::uint32_t Outbound::slots_wanted(const Transfer& transfer) const {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(
      options_.pack_slots, transfer.asked.plan->bytes() / (options_.staging_bytes / 2) + 1));
}

/// Why a transfer that has to be staged, or was asked to go a certain way, cannot. Before the owner
/// is asked, and after.
std::optional<Error> Outbound::cannot_go(const Transfer& transfer) const {
  const Admitted& asked = transfer.asked;
  const Region& local = **asked.local;
  if (!transfer.staged) return std::nullopt;
  if (asked.path == PathChoice::kGpuDirect)
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("path gpudirect was asked for, and no card of {} reaches the memory of "
                    "region '{}' on GPU {}: its provider has no FI_HMEM; ask for auto or "
                    "staged",
                    options_.device, local.name, local.memory->gpu())};
  if (asked.direction == Direction::kRead)
    return Error{ErrorCode::kUnsupported,
                 fmt::format("a read into region '{}' would have to be staged, and reads are not: "
                             "let node '{}' write",
                             local.name, asked.node)};
  if (options_.staging_bytes == 0)
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the transfer has to be staged, and device {} has no staging memory: "
                             "see fabric.packing, fabric.staging_bytes",
                             options_.device)};
  return std::nullopt;
}

std::optional<Error> Outbound::cannot_go(const Transfer& transfer, const OpenOk& answer) const {
  const Admitted& asked = transfer.asked;
  if (transfer.staged && asked.path == PathChoice::kGpuDirect)
    return Error{ErrorCode::kUnsupported,
                 fmt::format("path gpudirect was asked for, and no card of node '{}' reaches the "
                             "memory of region '{}': its provider has no FI_HMEM; ask for auto or "
                             "staged",
                             asked.node, asked.remote_region)};
  if (auto error = cannot_go(transfer)) return error;
  if (transfer.staged && (!answer.staging || answer.staging->slots.empty()))
    return Error{ErrorCode::kUnsupported,
                 fmt::format("the transfer has to be staged, and node '{}' lent no staging slots",
                             asked.node)};
  if (asked.path == PathChoice::kGpuDirect && !answer.on_gpu && !(*asked.local)->on_gpu())
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("path gpudirect was asked for, and both regions, '{}' and '{}', are "
                             "host memory",
                             (*asked.local)->name, asked.remote_region)};
  return std::nullopt;
}

/// The plan with no chunk longer than what a slot takes on both sides.
Result<std::shared_ptr<const Plan>> Outbound::cut_to_slots(const Plan& plan,
                                                           std::uint64_t slot_bytes) const {
  constexpr std::uint64_t kEven = 64 * 1024;  // large pages are cut into even pieces
  std::uint64_t most = packed_page_most(std::min(slot_bytes, options_.staging_bytes));
  if (most > kEven) most -= most % kEven;
  PlanLimits limits = plan.limits();
  limits.max_chunk_bytes = std::min(limits.max_chunk_bytes, most);
  if (most == 0)
    return fail(ErrorCode::kResourceExhausted, "staging slots of {} bytes hold no page",
                slot_bytes);
  return Plan::make(plan.layout(), limits);
}

/// Chunks shorter than this are packed; 0: none.
std::uint64_t Outbound::pack_below(const Transfer& transfer) const {
  const Admitted& asked = transfer.asked;
  const PackingMode mode = asked.packing == PackingMode::kAuto ? options_.packing : asked.packing;
  if (asked.direction != Direction::kWrite || mode == PackingMode::kNever ||
      options_.staging_bytes == 0 || asked.plan->chunks() == 0 || (*asked.local)->on_gpu())
    return 0;
  // Two pages in a slot at least, or there is nothing to be packed.
  const std::uint64_t most = options_.staging_bytes / 2 - kPackedHeaderBytes;
  if (mode == PackingMode::kAlways) return most;
  const std::uint64_t below = std::min(costs_of(transfer.peer).pack_below(), most);
  const std::uint64_t average = asked.plan->bytes() / asked.plan->chunks();
  return asked.plan->chunks() >= kFewChunks && average < below ? below : 0;
}

/// An Open with data was not answered with AlreadyDone.
void Outbound::not_taken(Transfer& transfer, const Error& error, TimePoint now) {
  if (error.code == ErrorCode::kUnsupported || error.code == ErrorCode::kBusy) {
    transfer.inlined = false;
    return open(transfer, now);
  }
  const bool silent = unanswered(error.code);
  const bool late = silent && now >= transfer.asked.deadline;
  transfer.reason = error;
  transfer.outcome = late ? Outcome::kExpired : Outcome::kFailed;
  // Refused, nothing was written. Without an answer it may have been, or may be yet.
  if (silent) return fence(transfer, now);
  end(transfer, transfer.outcome, error, Remote::kQuiet, now);
}

bool Outbound::fits_inline(const Transfer& transfer) const {
  const Admitted& asked = transfer.asked;
  return asked.direction == Direction::kWrite && !asked.only_link &&
         asked.path == PathChoice::kAuto && !(*asked.local)->on_gpu() &&
         asked.plan->bytes() <= options_.inline_bytes && asked.plan->chunks() > 0 &&
         asked.plan->chunks() <= kInlineChunks && asked.packing == PackingMode::kAuto &&
         (*asked.local)->memory;
}

std::vector<RemotePath> Outbound::paths_over(const std::vector<Peer::PathCard>& links,
                                             const Transfer& transfer) {
  std::vector<RemotePath> paths;
  if (transfer.staged) {
    for (const auto& link : links) paths.push_back({link.link, 0, 0, link.generation});
    for (RemotePath& path : paths) reach_staging(path, links, transfer.staging_keys);
    std::erase_if(paths, [](const RemotePath& path) { return path.staging_key == 0; });
    return paths;
  }
  for (const auto& link : links)
    for (const auto& key : transfer.keys)
      if (key.nic == link.remote_nic)
        paths.push_back({link.link, key.base, key.key, link.generation});
  for (RemotePath& path : paths) reach_staging(path, links, transfer.staging_keys);
  return paths;
}

}  // namespace penstock

// PollerLoop: which chunk goes out next, and over which link. The write path: per chunk it touches
// vectors and pointers that are at hand, allocates nothing and looks nothing up.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "transport/poller/loop_state.hpp"

namespace penstock {
namespace {

/// How much a transfer of the bulk lane posts per round. A longer chunk is paid for by sitting out
/// rounds, so that transfers share by bytes whatever their chunks.
constexpr std::int64_t kRoundBytes = 256 * 1024;

/// Posts per card and step. An empty window is filled in several steps, so that the other cards,
/// completions and commands do not wait until a whole window is posted.
constexpr std::size_t kPostsPerStep = 32;
/// Nor so many bytes: a provider in software copies them while it takes them, and so does packing.
constexpr std::uint64_t kBytesPerStep = 1u << 20;

}  // namespace

Backoff::Time PollerLoop::State::now() {
  if (!step_time) step_time = clock();
  return *step_time;
}

bool PollerLoop::State::backs_off(const Backoff& backoff) {
  if (!backoff.waiting() || !backoff.blocks(now())) return false;
  if (!retry_at || backoff.until() < *retry_at) retry_at = backoff.until();
  return true;
}

void PollerLoop::State::enqueue(TransferWork& transfer) {
  if (transfer.may_post()) lane(transfer).add(&transfer);
}

void PollerLoop::State::dequeue(TransferWork& transfer) { lane(transfer).remove(&transfer); }

void PollerLoop::State::tell_hunger(TransferWork& transfer) {
  if (transfer.take_hunger())
    events.emplace_back(QuantumDone{transfer.id(), transfer.completed_bytes()});
}

std::size_t PollerLoop::State::post(std::size_t nic) {
  const CardState& card = *cards[nic];
  if (!card.up) return 0;
  const std::uint64_t bytes_most = card.posted_bytes + kBytesPerStep;
  std::size_t posted = 0;
  while (posted < kPostsPerStep && card.posted_bytes < bytes_most && card_has_room(card) &&
         (post_urgent(nic) || post_bulk(nic)))
    ++posted;
  return posted;
}

bool PollerLoop::State::post_urgent(std::size_t nic) {
  for (std::size_t tried = 0; tried < urgent.size(); ++tried) {
    const bool posted = post_next(nic, *urgent.current(nic)) > 0;
    if (urgent.empty()) return posted;
    urgent.advance(nic);
    if (posted) return true;
  }
  return false;
}

/// Deficit round robin. A transfer posts as long as it has credit; when none that could post has
/// any left, each of them gets a round's worth. One that is blocked keeps what it has and gets no
/// more.
bool PollerLoop::State::post_bulk(std::size_t nic) {
  for (;;) {
    bool in_debt = false;
    for (std::size_t tried = 0; tried < bulk.size();) {
      TransferWork& transfer = *bulk.current(nic);
      if (transfer.credit > 0) {
        if (const std::uint64_t bytes = post_next(nic, transfer); bytes > 0) {
          transfer.credit -= static_cast<std::int64_t>(bytes);
          return true;
        }
        if (!transfer.queued) continue;  // refused for good: the next one is current now
      } else if (can_post(nic, transfer)) {
        in_debt = true;
      }
      ++tried;
      bulk.advance(nic);
    }
    if (!in_debt) return false;
    for (TransferWork* transfer : bulk.members())
      if (transfer->credit <= 0 && can_post(nic, *transfer)) transfer->credit += kRoundBytes;
  }
}

bool PollerLoop::State::card_has_room(const CardState& card) const {
  // The last chunk may reach beyond the window: were it to wait until it fits, short chunks would
  // take the room as it comes free, every time.
  return !card.chunks.exhausted() && card.posted_bytes < options.card_window_bytes;
}

bool PollerLoop::State::has_room(const Link& link, bool counted) {
  if (link.inbound == nullptr || link.closing || link.full_in_step == step_number) return false;
  if (counted && link.immediates_out >= options.immediate_credits) return false;
  if (link.posted_operations > 0)
    return link.posted_operations < options.link_window_operations &&
           link.posted_bytes < options.link_window_bytes;
  return !backs_off(link.data_backoff);
}

TransferWork::Path* PollerLoop::State::pick_path(std::size_t nic, TransferWork& transfer) {
  if (!card_has_room(*cards[nic])) return nullptr;
  auto& paths = transfer.paths(nic);
  const auto count = static_cast<std::uint32_t>(paths.size());
  std::uint32_t& next = transfer.next_path(nic);
  for (std::uint32_t tried = 0; tried < count; ++tried) {
    if (next >= count) next = 0;
    TransferWork::Path& path = paths[next++];
    if (has_room(*path.link, transfer.immediate().has_value())) return &path;
  }
  return nullptr;
}

bool PollerLoop::State::can_post(std::size_t nic, TransferWork& transfer) {
  return !transfer.waits() && pick_path(nic, transfer) != nullptr;
}

/// What is to be posted next as an operation of its own.
OneSided PollerLoop::State::direct(std::size_t nic, TransferWork& transfer,
                                   const TransferWork::Path& path) {
  const ChunkRun& run = *transfer.peek();
  OneSided request;
  request.direction = transfer.direction();
  request.pieces = run.size();
  for (std::size_t i = 0; i < run.size(); ++i)
    request.local[i] = {transfer.local_base() + transfer.local_offset(run.chunks()[i]),
                        run.chunks()[i].length};
  request.local_descriptor = transfer.descriptor(nic);
  request.length = run.bytes();
  request.remote_address = path.remote_base + transfer.remote_offset(run.front());
  request.remote_key = path.remote_key;
  if (request.direction == Direction::kWrite) request.immediate = transfer.immediate();
  return request;
}

/// What is to be posted next as one packed write; null when it has to go directly.
Bundle* PollerLoop::State::packed(TransferWork& transfer, const TransferWork::Path& path) {
  if (transfer.ready_bundle() != nullptr) return transfer.ready_bundle();
  if (path.staging_key == 0 || !transfer.packs_next() || send_slots.exhausted()) return nullptr;
  return transfer.gather();
}

/// Posts what is next of the transfer on this card. Returns its bytes; 0: nothing of it can be
/// posted here now.
std::uint64_t PollerLoop::State::post_next(std::size_t nic, TransferWork& transfer) {
  if (transfer.waits()) return 0;
  const TransferWork::Path* path = pick_path(nic, transfer);
  if (path == nullptr) return 0;
  if (transfer.ready_bundle() != nullptr && path->staging_key == 0) return 0;
  CardState& card = *cards[nic];
  Link& link = *path->link;

  Bundle* bundle = packed(transfer, *path);
  if (bundle == nullptr && transfer.packed_only()) return 0;
  OneSided request;
  if (bundle == nullptr) {
    request = direct(nic, transfer, *path);
  } else {
    request.local[0] = {bundle->local.data(), bundle->wire_bytes};
    request.local_descriptor = send_slots.descriptor(nic);
    request.length = bundle->wire_bytes;
    request.remote_address = path->staging_base + bundle->slot.offset;
    request.remote_key = path->staging_key;
    request.immediate = bundle->slot.immediate;
  }
  request.peer = link.inbound->handle;

  ChunkOperation* operation = card.chunks.take(PostedOperation::Kind::kChunk);
  operation->link = &link;
  operation->address = link.inbound;
  operation->transfer = &transfer;
  operation->counted = request.immediate.has_value();
  operation->bundle = bundle;
  if (bundle == nullptr) operation->run.assign(*transfer.peek());
  operation->bytes = request.length;

  Post result = card.nic->post(request, operation);
  if (result.status != PostStatus::kPosted) {
    card.chunks.give_back(operation);
    if (result.status == PostStatus::kAgain) {
      add(card.counters.again, 1);
      refused(link);
      // Another link of the same card may have room.
      return post_next(nic, transfer);
    }
    add(card.counters.failed, 1);
    // Never posted: the chunk goes another way, if there is one.
    fail_link(link, result.error);
    transfer.note_error(result.error);
    transfer.drop_paths(&link);
    note_failover(nic, transfer);
    lost_paths(transfer, result.error);
    return transfer.may_post() ? post_next(nic, transfer) : 0;
  }
  link.data_backoff.accepted();
  ++link.posted_operations;
  link.posted_bytes += request.length;
  link.immediates_out += operation->counted;
  ++link.inbound->posted;
  ++card.posted_operations;
  card.posted_bytes += request.length;
  card.immediates_out += operation->counted;
  transfer.out_on(nic);
  ++operations_out;
  if (!transfer.first_post) transfer.first_post = clock();
  if (bundle == nullptr)
    transfer.posted_next();
  else
    transfer.bundle_posted(nic);
  tell_hunger(transfer);
  if (!transfer.may_post()) dequeue(transfer);
  return request.length;
}

void PollerLoop::State::refused(Link& link) {
  link.full_in_step = step_number;
  // With something out, a completion makes room; otherwise the peer has to connect first.
  if (link.posted_operations > 0) return;
  link.data_backoff.refused(now());
  backs_off(link.data_backoff);
}

std::size_t PollerLoop::State::send_messages() {
  std::size_t sent = 0;
  for (std::size_t i = 0; i < with_messages.size();) {
    Link* link = with_messages[i];
    while (!link->outbox.empty() && send_next(*link)) ++sent;
    if (link->outbox.empty()) {
      with_messages.erase(with_messages.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return sent;
}

/// Tells senders which of our staging slots are free again.
std::size_t PollerLoop::State::send_credits() {
  std::size_t sent = 0;
  arrivals.give_credits([&](const Credit& credit, const std::vector<LinkId>& over) {
    for (const LinkId id : over) {
      const Link* link = find_link(id);
      if (link == nullptr) continue;
      add(cards[link->nic]->counters.credits_sent, credit.immediates.size());
      execute(SendMessage{id, encode_credit(credit)});
      ++sent;
      return;
    }
  });
  return sent;
}

std::size_t PollerLoop::State::look_at_scattering() {
  const std::size_t ended = arrivals.look();
  for (const Error& error : arrivals.take_failures())
    spdlog::error("a packed write was not scattered: {}", error.message);
  for (const std::uint64_t tag : arrivals.take_disarmed()) events.emplace_back(PackedDisarmed{tag});
  return ended;
}

/// Gathers for transfers whose pages the processor cannot copy, before there is room to post them.
std::size_t PollerLoop::State::gather_ahead() {
  std::size_t happened = 0;
  for (std::size_t i = 0; i < gatherers.size();) {
    TransferWork* transfer = gatherers[i];
    happened += gather_ahead(*transfer);  // which may end it
    if (i < gatherers.size() && gatherers[i] == transfer) ++i;
  }
  return happened;
}

std::size_t PollerLoop::State::gather_ahead(TransferWork& transfer) {
  const auto ended = transfer.look_at_gathering();
  if (!ended) {
    halt(transfer, ended.error());
    return 1;
  }
  std::size_t begun = 0;
  for (;;) {
    const auto more = transfer.gather_ahead();
    if (!more) {
      halt(transfer, more.error());
      return 1;
    }
    if (!*more) break;
    ++begun;
    tell_hunger(transfer);
  }
  if (*ended == 0) return begun;
  enqueue(transfer);
  settle(transfer);  // it may have been stopped meanwhile
  return begun + *ended;
}

/// Sends the first message of the link's outbox; false when it has to wait.
bool PollerLoop::State::send_next(Link& link) {
  if (sends.exhausted() || backs_off(link.send_backoff)) return false;
  SendOperation* operation = sends.take(PostedOperation::Kind::kSend);
  operation->link = &link;
  Post result = cards[link.nic]->nic->send(link.control, link.outbox.front(), operation);
  if (result.status == PostStatus::kAgain) {
    sends.give_back(operation);
    if (link.sends_posted == 0) {
      link.send_backoff.refused(now());
      backs_off(link.send_backoff);
    }
    return false;
  }
  link.outbox.pop_front();
  if (result.status == PostStatus::kFailed) {
    sends.give_back(operation);
    link_failed(link.id, std::move(result.error));
    return true;
  }
  link.send_backoff.accepted();
  ++link.sends_posted;
  ++operations_out;
  return true;
}

}  // namespace penstock

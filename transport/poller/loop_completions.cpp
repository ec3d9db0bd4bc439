// PollerLoop: what each completion means.
#include <spdlog/spdlog.h>

#include <cstring>

#include "transport/poller/loop_state.hpp"

namespace penstock {
std::size_t PollerLoop::State::poll(std::size_t nic) {
  const std::size_t count = cards[nic]->nic->poll(completions);
  for (std::size_t i = 0; i < count; ++i) take(nic, completions[i]);
  return count;
}

void PollerLoop::State::take(std::size_t nic, const Completion& completion) {
  CardCounters& counters = cards[nic]->counters;
  switch (completion.kind) {
    case Completion::Kind::kMessage:
      add(counters.messages_received, 1);
      if (const auto credit = decode_credit(completion.payload)) return take_credit(nic, *credit);
      events.emplace_back(MessageReceived{static_cast<std::uint16_t>(nic),
                                          {completion.payload.begin(), completion.payload.end()}});
      return;
    case Completion::Kind::kImmediate: {
      const auto packed = arrivals.arrived(completion.immediate);
      if (packed == PackedArrivals::Arrival::kTaken) return;
      if (packed == PackedArrivals::Arrival::kMalformed)
        return spdlog::error("a packed write was dropped: {}", arrivals.malformed().message);
      const auto arrival = immediates.arrived(completion.immediate);
      if (arrival == ImmediateCounts::Arrival::kFull)
        events.emplace_back(ImmediateComplete{completion.immediate});
      if (arrival == ImmediateCounts::Arrival::kUnknown) add(counters.stray_immediates, 1);
      return;
    }
    case Completion::Kind::kOperation:
      break;
  }
  auto* operation = static_cast<PostedOperation*>(completion.context);
  if (operation == nullptr || operation->kind == PostedOperation::Kind::kFree) return;
  if (operation->kind == PostedOperation::Kind::kSend)
    return end_send(nic, static_cast<SendOperation*>(operation), completion);
  auto* chunk = static_cast<ChunkOperation*>(operation);
  if (completion.ok) return end_chunk(nic, chunk, nullptr);
  const Error error{
      ErrorCode::kProvider,
      fmt::format("{} of {} bytes over link {} failed: {} ({})",
                  chunk->transfer->direction() == Direction::kWrite ? "write" : "read",
                  chunk->bytes, chunk->link->id, std::strerror(completion.error_number),
                  completion.error_number)};
  end_chunk(nic, chunk, &error);
}

void PollerLoop::State::end_chunk(std::size_t nic, ChunkOperation* operation, const Error* error,
                                  bool cut_off) {
  CardState& card = *cards[nic];
  Link& link = *operation->link;
  TransferWork& transfer = *operation->transfer;
  Bundle* bundle = operation->bundle;
  const std::uint64_t bytes = operation->bytes;
  PeerAddress* address = operation->address;

  card.posted_bytes -= bytes;
  --card.posted_operations;
  card.immediates_out -= operation->counted;
  --operations_out;
  link.posted_bytes -= bytes;
  --link.posted_operations;
  link.immediates_out -= operation->counted;
  ++link.ended;
  --address->posted;
  if (transfer.back_from(nic)) transfer.note_last(nic, now());

  bool last = false;
  if (error == nullptr) {
    add(transfer.direction() == Direction::kWrite ? card.counters.written_bytes
                                                  : card.counters.read_bytes,
        bundle != nullptr ? bundle->payload_bytes : bytes);
    add(card.counters.operations, 1);
    last = bundle != nullptr ? transfer.written(bundle) : transfer.completed(operation->run, nic);
  } else {
    add(card.counters.failed, 1);
    last = bundle != nullptr ? transfer.failed(bundle, *error)
                             : transfer.failed(operation->run, nic, *error);
    transfer.note_dirty(link.id);
  }
  card.chunks.give_back(operation);
  // What was posted to an address that the peer has closed since had to fail: that says nothing
  // against the link.
  const bool link_is_bad = error != nullptr && !cut_off && !address->retired;
  if (link_is_bad) {
    fail_link(link, *error);
    transfer.drop_paths(&link);
  }
  if (address->retired) release(address, link);
  if (link.closing) close_if_quiet(link);
  if (link_is_bad) {
    note_failover(nic, transfer);
    return lost_paths(transfer, *error);
  }
  if (last) settle(transfer);
}

void PollerLoop::State::take_credit(std::size_t nic, const Credit& credit) {
  add(cards[nic]->counters.credits_received, credit.immediates.size());
  TransferWork* transfer = find_transfer(credit.transfer);
  if (transfer == nullptr) return;
  bool last = false;
  for (const std::uint32_t immediate : credit.immediates) last |= transfer->credited(immediate);
  enqueue(*transfer);
  if (last) settle(*transfer);
}

void PollerLoop::State::end_send(std::size_t nic, SendOperation* operation,
                                 const Completion& completion) {
  Link& link = *operation->link;
  sends.give_back(operation);
  --operations_out;
  --link.sends_posted;
  if (completion.ok) {
    add(cards[nic]->counters.messages_sent, 1);
  } else {
    add(cards[nic]->counters.failed, 1);
    link_failed(link.id,
                {ErrorCode::kProvider,
                 fmt::format("sending a message over link {} failed: {} ({})", link.id,
                             std::strerror(completion.error_number), completion.error_number)});
  }
  if (link.closing) close_if_quiet(link);
}

/// Forgets a retired address once nothing is posted to it.
void PollerLoop::State::release(PeerAddress* address, Link& link) {
  if (address->posted > 0) return;
  cards[link.nic]->nic->remove_peer(address->handle);
  std::erase_if(link.addresses, [&](const auto& each) { return each.get() == address; });
}

void PollerLoop::State::close_if_quiet(Link& link) {
  if (!link.closing || !link.quiet()) return;
  Nic& nic = *cards[link.nic]->nic;
  for (const auto& address : link.addresses) nic.remove_peer(address->handle);
  nic.remove_peer(link.control);
  links.erase(link.id);
}

/// Posts nothing more of a transfer.
void PollerLoop::State::halt(TransferWork& transfer, std::optional<Error> reason) {
  transfer.stop(std::move(reason));
  dequeue(transfer);
  settle(transfer);
}

/// Tells that a transfer is idle when nothing of it is out and it will post nothing more: it is
/// complete or stopped, or what is left failed and has to be fenced first.
void PollerLoop::State::settle(TransferWork& transfer) {
  if (transfer.operations_out() > 0 || transfer.state == TransferWork::State::kIdle) return;
  if (transfer.state == TransferWork::State::kRunning && !transfer.complete()) {
    if (transfer.out_of_slots()) return halt(transfer, std::nullopt);
    if (!transfer.only_dirty_left()) return;
    dequeue(transfer);
  }
  transfer.state = TransferWork::State::kIdle;
  TransferIdle event = transfer.idle_event();
  event.first_post = transfer.first_post;
  event.settled = clock();
  if (transfer.first_post) event.elapsed = *event.settled - *transfer.first_post;
  events.emplace_back(std::move(event));
  if (transfer.end_when_idle) forget(transfer.id());
}

/// For whoever looks from another thread. Once per step, and most steps change nothing.
void PollerLoop::State::show_what_is_out() {
  const auto show = [](std::atomic<std::uint64_t>& shown, std::uint64_t now) {
    if (shown.load(std::memory_order_relaxed) != now) shown.store(now, std::memory_order_relaxed);
  };
  for (const auto& card : cards) {
    show(card->counters.posted_bytes, card->posted_bytes);
    show(card->counters.posted_operations, card->posted_operations);
    show(card->counters.immediates_out, card->immediates_out);
  }
}

void PollerLoop::State::link_failed(LinkId link, Error error) {
  events.emplace_back(LinkFailed{link, std::move(error)});
}

}  // namespace penstock

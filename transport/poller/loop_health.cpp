// PollerLoop: links that stand still, and cards that are down.
#include <algorithm>

#include "transport/poller/loop_state.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// While something happens in every step, the clock is read in one of so many.
constexpr std::uint64_t kStepsPerGlance = 32;
/// A card that is down is tried again after this, doubled up to the second.
constexpr std::chrono::milliseconds kReopenFirst{100};
constexpr std::chrono::milliseconds kReopenMost{2000};

/// How often links are looked at: the grain of a stall's measure.
std::chrono::milliseconds look_every(std::chrono::milliseconds stall) {
  return stall.count() == 0 ? 50ms : std::clamp(stall / 8, 1ms, 50ms);
}

}  // namespace

void PollerLoop::State::look_for_the_dead(bool nothing_happened) {
  if (!nothing_happened && step_number % kStepsPerGlance != 0) return;
  const bool something_out = std::any_of(
      cards.begin(), cards.end(), [](const auto& card) { return card->posted_operations > 0; });
  const bool all_up =
      std::all_of(cards.begin(), cards.end(), [](const auto& card) { return card->up; });
  const bool owed = std::any_of(transfers.begin(), transfers.end(),
                                [](const auto& each) { return each.second->credits_owed() > 0; });
  if (!something_out && !owed && all_up) return;
  const auto every = look_every(options.card_stall);
  const auto since = now() - last_look;
  if (since >= every) {
    last_look = now();
    // Nobody looked for long, since nothing was out or since this thread did not run: what was seen
    // then says nothing about now.
    const bool anew = since > 4 * every;
    std::vector<bool> dead(cards.size(), false);
    for (auto& [id, link] : links) {
      look_at(*link, anew);
      if (link->doomed) dead[link->nic] = true;
    }
    for (std::size_t nic = 0; nic < cards.size(); ++nic) {
      if (dead[nic]) cut_off(nic);
      try_card_again(nic);
    }
    look_at_credits(anew);
  }
  const auto next = last_look + every;
  if (!retry_at || next < *retry_at) retry_at = next;
}

void PollerLoop::State::look_at(Link& link, bool anew) {
  link.failure_told = false;
  const bool was_busy = std::exchange(link.busy, link.posted_operations > 0);
  const bool moves = std::exchange(link.ended_seen, link.ended) != link.ended;
  if (!link.busy || !was_busy || moves || anew) {
    link.still = link.doomed = false;
    link.still_since = link.still_told = now();
    return;
  }
  if (options.card_stall.count() == 0 || now() - link.still_told < options.card_stall) return;
  link.still = true;
  link.still_told = now();
  events.emplace_back(LinkStill{link.id});
}

/// A credit is a message, and messages get lost with the link that they went over. Where none comes
/// the transfer stops: a fence tells what landed, and the rest goes on without packing.
void PollerLoop::State::look_at_credits(bool anew) {
  if (options.card_stall.count() == 0) return;
  std::vector<TransferWork*> waiting;
  for (auto& [id, transfer] : transfers) {
    if (transfer->credits_owed() == 0 || anew) transfer->progressed_at.reset();
    const bool moves = std::exchange(transfer->progress_seen, transfer->completed_bytes()) !=
                       transfer->completed_bytes();
    if (!transfer->progressed_at || moves || transfer->credits_owed() == 0)
      transfer->progressed_at = now();
    else if (now() - *transfer->progressed_at >= options.card_stall)
      waiting.push_back(transfer.get());
  }
  for (TransferWork* transfer : waiting)
    halt(*transfer, Error{ErrorCode::kProvider,
                          fmt::format("{} packed writes have arrived and the receiver has not said "
                                      "for {} ms that it scattered them",
                                      transfer->credits_owed(), options.card_stall.count())});
}

/// The peer's answer may have overtaken completions that were on their way: they get until the next
/// look.
void PollerLoop::State::execute(CutOff&& command) {
  Link* link = find_link(command.link);
  if (link != nullptr && link->still && link->ended == link->ended_seen) link->doomed = true;
}

/// The links of this card that stand still are dead: a doomed one, and with it all the others.
void PollerLoop::State::cut_off(std::size_t nic) {
  std::vector<std::pair<Link*, Error>> dead;
  for (auto& [id, link] : links) {
    if (link->nic != nic || !link->still || link->closing) continue;
    const auto still =
        std::chrono::duration_cast<std::chrono::milliseconds>(now() - link->still_since);
    dead.emplace_back(
        link.get(),
        Error{ErrorCode::kProvider,
              fmt::format("link {} stands still: {} operations out and no completion for {} ms, "
                          "while the peer answers over others: cut off",
                          id, link->posted_operations, still.count())});
  }
  reopen_outbound(nic);
  for (const auto& [link, error] : dead) {
    link->still = link->doomed = false;
    fail_link(*link, error);
    drop_link(*link, error);
  }
}

/// Says once per failure that a link is bad, however many operations show it.
void PollerLoop::State::fail_link(Link& link, const Error& reason) {
  if (!link.failure_told) {
    add(cards[link.nic]->counters.link_failures, 1);
    link_failed(link.id, reason);
  }
  link.failure_told = true;
}

void PollerLoop::State::drop_link(const Link& link, const Error& reason) {
  // Settling may end transfers, so not from inside a loop over the map.
  std::vector<TransferWork*> users;
  for (auto& [id, transfer] : transfers)
    if (transfer->uses(&link)) users.push_back(transfer.get());
  for (TransferWork* transfer : users) {
    transfer->drop_paths(&link);
    note_failover(link.nic, *transfer);
    lost_paths(*transfer, reason);
  }
}

/// After a transfer lost paths: stops it when it has no way to go.
void PollerLoop::State::lost_paths(TransferWork& transfer, const Error& reason) {
  const bool runs = transfer.state == TransferWork::State::kRunning;
  if (runs && !transfer.has_paths()) return halt(transfer, reason);
  if (!transfer.may_post()) dequeue(transfer);
  settle(transfer);
}

void PollerLoop::State::note_failover(std::size_t nic, const TransferWork& transfer) {
  if (transfer.state == TransferWork::State::kRunning && transfer.has_paths())
    add(cards[nic]->counters.failovers, 1);
}

/// Every operation on the card ends as cut off. False: the card is down.
bool PollerLoop::State::reopen_outbound(std::size_t nic) {
  CardState& card = *cards[nic];
  add(card.counters.reopened, 1);
  const auto reopened = card.nic->reopen_outbound();
  // From here on none of its operations is reported any more.
  const Error cut{ErrorCode::kCancelled, "cut off: the card's outbound endpoint was reopened"};
  card.chunks.for_each_out(
      [&](ChunkOperation* operation) { end_chunk(nic, operation, &cut, true); });
  if (!reopened) take_card_down(nic, reopened.error());
  return reopened.has_value();
}

void PollerLoop::State::take_card_down(std::size_t nic, const Error& error) {
  CardState& card = *cards[nic];
  if (!card.up) return;
  card.up = false;
  card.reopen_after = kReopenFirst;
  card.reopen_at = now() + card.reopen_after;
  events.emplace_back(NicState{static_cast<std::uint16_t>(nic), false, error});
  std::vector<TransferWork*> users;
  for (auto& [id, transfer] : transfers)
    if (!transfer->paths(nic).empty()) users.push_back(transfer.get());
  for (TransferWork* transfer : users) {
    transfer->drop_paths_of_nic(nic);
    note_failover(nic, *transfer);
    lost_paths(*transfer, error);
  }
}

void PollerLoop::State::try_card_again(std::size_t nic) {
  CardState& card = *cards[nic];
  if (card.up || now() < card.reopen_at) return;
  if (card.nic->reopen_outbound()) {
    card.up = true;
    events.emplace_back(NicState{static_cast<std::uint16_t>(nic), true, std::nullopt});
    return;
  }
  card.reopen_after = std::min(card.reopen_after * 2, kReopenMost);
  card.reopen_at = now() + card.reopen_after;
}

}  // namespace penstock

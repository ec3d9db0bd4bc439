#include <algorithm>

#include "transport/poller/loop_state.hpp"

namespace penstock {
namespace {

/// Messages that may be out at once over all links. They are metadata: never many.
constexpr std::size_t kSendsOut = 256;

}  // namespace

PollerLoop::State::State(std::vector<std::unique_ptr<Nic>> nics, PollerOptions wanted, Clock time)
    : options(wanted),
      clock(std::move(time)),
      urgent(nics.size()),
      bulk(nics.size()),
      sends(kSendsOut) {
  for (auto& nic : nics) {
    pieces = std::min(pieces, nic->info().local_pieces);
    cards.push_back(std::make_unique<CardState>(std::move(nic), options));
  }
}

PollerLoop::State::~State() {
  for (auto& card : cards) card->nic.reset();
  movers.clear();  // which waits for what they are moving, before the memory may go
}

PollerLoop::PollerLoop(std::vector<std::unique_ptr<Nic>> nics, PollerOptions options, Clock clock)
    : state_(std::make_unique<State>(std::move(nics), options, std::move(clock))) {}

PollerLoop::~PollerLoop() = default;

void PollerLoop::execute(PollerCommand command) {
  state_->settled = false;
  state_->step_time.reset();
  std::visit([&](auto& each) { state_->execute(std::move(each)); }, command);
}

std::size_t PollerLoop::step() {
  State& state = *state_;
  ++state.step_number;
  state.step_time.reset();
  state.retry_at.reset();
  std::size_t happened = 0;
  for (std::size_t nic = 0; nic < state.cards.size(); ++nic) happened += state.poll(nic);
  if (state.arrivals.moving()) happened += state.look_at_scattering();
  if (state.arrivals.credits_due()) happened += state.send_credits();
  if (!state.with_messages.empty()) happened += state.send_messages();
  if (!state.gatherers.empty()) happened += state.gather_ahead();
  for (std::size_t nic = 0; nic < state.cards.size(); ++nic) happened += state.post(nic);
  state.settled = happened == 0;
  state.show_what_is_out();
  state.look_for_the_dead(happened == 0);
  return happened;
}

void PollerLoop::send() {
  if (!state_->with_messages.empty()) state_->send_messages();
}

std::vector<PollerEvent> PollerLoop::take_events() { return std::exchange(state_->events, {}); }

bool PollerLoop::has_events() const { return !state_->events.empty(); }

bool PollerLoop::idle() const {
  if (!state_->settled || state_->operations_out > 0 || state_->peers_at_work ||
      state_->arrivals.moving())
    return false;
  for (const TransferWork* transfer : state_->gatherers)
    if (transfer->gathering()) return false;
  // A credit is on its way.
  return std::none_of(state_->transfers.begin(), state_->transfers.end(),
                      [](const auto& each) { return each.second->credits_owed() > 0; });
}

bool PollerLoop::quiet() const { return state_->transfers.empty() && !state_->peers_at_work; }

std::optional<PollerLoop::TimePoint> PollerLoop::next_retry() const { return state_->retry_at; }

std::size_t PollerLoop::nic_count() const { return state_->cards.size(); }
Nic& PollerLoop::nic(std::size_t i) { return *state_->cards.at(i)->nic; }
const CardCounters& PollerLoop::counters(std::size_t i) const {
  return state_->cards.at(i)->counters;
}

}  // namespace penstock

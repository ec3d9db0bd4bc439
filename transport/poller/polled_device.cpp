#include "transport/poller/polled_device.hpp"

namespace penstock {
namespace {

bool takes_long(const PollerCommand& command) {
  return std::holds_alternative<ReopenInbound>(command) ||
         std::holds_alternative<ReopenOutbound>(command);
}

}  // namespace

Result<void> PolledDevice::open() {
  auto opened = setup_.open_cards();
  if (!opened) return tl::unexpected(opened.error());
  if (opened->empty()) return fail(ErrorCode::kInvalidArgument, "a poller without cards");
  loop_ = std::make_unique<PollerLoop>(std::move(*opened), setup_.options);
  for (std::size_t i = 0; i < loop_->nic_count(); ++i) {
    cards_.push_back(&loop_->nic(i));
    counters_.push_back(&loop_->counters(i));
  }
  return {};
}

bool PolledDevice::work() {
  const bool commanded = run_commands();
  const bool happened = loop_->step() > 0 || commanded;
  const bool told = tell_events();
  return happened || !told;
}

void PolledDevice::send() {
  if (run_commands()) loop_->send();
}

bool PolledDevice::run_commands() {
  if (!commands_.take(taken_)) return false;
  for (auto& command : taken_) {
    if (before_long_ones_ && takes_long(command)) before_long_ones_();
    loop_->execute(std::move(command));
  }
  taken_.clear();
  return true;
}

/// False: some have to wait for the next round.
bool PolledDevice::tell_events() {
  if (untold_.empty()) {
    if (!loop_->has_events()) return true;
    untold_ = loop_->take_events();
  }
  return events_.push(untold_) && !loop_->has_events();
}

}  // namespace penstock

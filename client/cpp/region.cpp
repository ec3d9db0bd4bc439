#include "client/cpp/region.hpp"

#include <utility>

#include "client/cpp/core.hpp"
#include "client/cpp/region_state.hpp"

namespace penstock::client {

Region::Region(std::shared_ptr<Core> core, std::shared_ptr<RegionState> state)
    : core_(std::move(core)), state_(std::move(state)) {
  if (core_) core_->keep(state_);
}

Region::Region(Region&& other) noexcept
    : core_(std::move(other.core_)), state_(std::move(other.state_)) {}

Region& Region::operator=(Region&& other) noexcept {
  if (this == &other) return *this;
  Region old(std::move(*this));
  core_ = std::move(other.core_);
  state_ = std::move(other.state_);
  return *this;
}

Region::~Region() {
  if (!state_) return;
  state_->unmap();
  if (!core_) return;
  core_->drop(state_.get());
  try {
    core_->call("release", {{"name", name()}, {"force", true}});
  } catch (const Error&) {
    // Nobody to tell; the service knows.
  }
}

RegionInfo Region::info() const { return state_ ? state_->info() : RegionInfo{}; }

std::span<std::byte> Region::data() const {
  return state_ ? state_->data() : std::span<std::byte>{};
}

void Region::map() { state_->map(); }

void Region::detach() {
  if (core_) {
    core_->drop(state_.get());
    core_->leave(name());
  }
  core_.reset();
}

void Region::release(bool force) {
  if (!core_) {
    throw Error("INVALID_ARGUMENT",
                "region '" + name() + "' is detached or released; use Client::release");
  }
  core_->call("release", {{"name", name()}, {"force", force}}, core_->options().memory_timeout_ms);
  core_->drop(state_.get());
  core_.reset();
  state_->unmap();
}

}  // namespace penstock::client

#include "client/workload/traffic_tally.hpp"

namespace penstock::workload {

using State = client::TransferResult::State;

void TrafficTally::submitted() {
  std::lock_guard lock(mutex_);
  ++submitted_;
}

void TrafficTally::ended(const client::TransferResult& result) {
  std::lock_guard lock(mutex_);
  ++ended_;
  switch (result.state) {
    case State::kDone:
      ++done_;
      bytes_ += result.bytes;
      return;
    case State::kRefused:
      ++refused_[result.error_code];
      return;
    case State::kLost:
      ++lost_[result.error_code];
      return;
    case State::kFailed:
    case State::kCancelled:
    case State::kExpired:
      ++failed_[result.error_code];
  }
}

void TrafficTally::checked(std::uint64_t pages, Check check, std::uint64_t wrong_pages) {
  std::lock_guard lock(mutex_);
  switch (check) {
    case Check::kRight:
      verified_pages_ += pages;
      return;
    case Check::kWrong:
      verified_pages_ += pages - wrong_pages;
      wrong_pages_ += wrong_pages;
      return;
    case Check::kNotPossible:
      unchecked_pages_ += pages;
  }
}

void TrafficTally::probed() {
  std::lock_guard lock(mutex_);
  ++probes_;
}

std::uint64_t TrafficTally::open() const {
  std::lock_guard lock(mutex_);
  return submitted_ - ended_;
}

std::uint64_t TrafficTally::wrong_pages() const {
  std::lock_guard lock(mutex_);
  return wrong_pages_;
}

nlohmann::json TrafficTally::to_json() const {
  std::lock_guard lock(mutex_);
  return {{"submitted", submitted_},
          {"ended", ended_},
          {"open", submitted_ - ended_},
          {"done", done_},
          {"bytes", bytes_},
          {"failed", failed_},
          {"refused", refused_},
          {"lost", lost_},
          {"verified_pages", verified_pages_},
          {"wrong_pages", wrong_pages_},
          {"unchecked_pages", unchecked_pages_},
          {"probes", probes_}};
}

}  // namespace penstock::workload

// The comparison of both sides of a transfer by digests, after its last byte has landed and before
// its terminal event (`verify` of a request). Pages go in batches: digested here on a worker, and
// compared by whoever has the other side. Pure but for what the port does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/clock.hpp"
#include "actors/device/outbound.hpp"
#include "actors/node/page_digests.hpp"

namespace penstock {

class Verification {
 public:
  static constexpr std::size_t kBatchPages = 256;
  static constexpr std::uint64_t kBatchBytes = 64u << 20;
  static constexpr std::size_t kUnderWay = 4;

  struct Batch {
    std::uint64_t first = 0;  // the place of its first page among all
    std::vector<PageRange> local;
    std::vector<PageRange> other;
  };
  /// Compares a batch somewhere, then compared() is called with the place of the first page of the
  /// batch that differs (from 1; 0: none).
  using Compare = std::function<void(std::shared_ptr<const Batch>)>;

  /// What is compared: the pages of an admitted transfer, each by itself.
  static Result<std::unique_ptr<Verification>> make(const Admitted& admitted);

  /// The transfer has ended well.
  void start(TransferResult result, TimePoint now, const Compare& compare);
  void compared(std::uint64_t first, const Result<std::uint64_t>& differing, TimePoint now,
                const Compare& compare);
  void cancel();
  /// Nobody will answer what is under way.
  void give_up(const Error& error);
  bool started() const { return result_.has_value(); }
  /// Nothing is under way any more: the transfer's result, which says failed when a page differs.
  bool ended() const { return started() && under_way_ == 0 && (stopped_ || cursor_.done()); }
  TransferResult take_result(TimePoint now);

  const std::shared_ptr<RegionUse>& local() const { return local_; }
  const std::shared_ptr<RegionUse>& copy_target() const { return copy_target_; }
  const std::string& node() const { return node_; }
  const std::string& remote_region() const { return remote_region_; }
  std::uint64_t remote_epoch() const { return result_ ? result_->remote_epoch : 0; }
  TimePoint deadline() const { return deadline_; }

 private:
  Verification(const Admitted& admitted, std::shared_ptr<const Plan> pages);
  void go_on(TimePoint now, const Compare& compare);
  void stop(TransferResult::State state, Error error);

  std::shared_ptr<const Plan> pages_;
  Cursor cursor_;
  const bool write_;
  const std::string node_;
  const std::string remote_region_;
  const TimePoint deadline_;
  std::shared_ptr<RegionUse> local_;
  std::shared_ptr<RegionUse> copy_target_;
  std::optional<TransferResult> result_;
  TimePoint started_{};
  std::uint64_t next_page_ = 0;
  std::size_t under_way_ = 0;
  bool stopped_ = false;
  std::optional<std::uint64_t> differs_;  // the first page that does
};

}  // namespace penstock

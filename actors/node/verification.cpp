#include "actors/node/verification.hpp"

#include <algorithm>
#include <utility>

namespace penstock {

Result<std::unique_ptr<Verification>> Verification::make(const Admitted& admitted) {
  // Page by page, as the request names them; ranges as they are, but no longer than a batch.
  auto pages = Plan::make(admitted.plan->layout(), {kBatchBytes, false});
  if (!pages) return tl::unexpected(pages.error());
  return std::unique_ptr<Verification>(new Verification(admitted, std::move(*pages)));
}

Verification::Verification(const Admitted& admitted, std::shared_ptr<const Plan> pages)
    : pages_(std::move(pages)),
      cursor_(*pages_),
      write_(admitted.direction == Direction::kWrite),
      node_(admitted.node),
      remote_region_(admitted.remote_region),
      deadline_(admitted.deadline),
      local_(admitted.local),
      copy_target_(admitted.copy_target) {}

void Verification::start(TransferResult result, TimePoint now, const Compare& compare) {
  result_ = std::move(result);
  started_ = now;
  go_on(now, compare);
}

void Verification::go_on(TimePoint now, const Compare& compare) {
  if (!stopped_ && now >= deadline_ && !cursor_.done())
    stop(TransferResult::State::kExpired,
         {ErrorCode::kDeadlineExceeded,
          fmt::format("every byte was delivered; the deadline passed after {} of {} pages had been "
                      "verified",
                      next_page_, pages_->chunks())});
  while (!stopped_ && under_way_ < kUnderWay && !cursor_.done()) {
    auto batch = std::make_shared<Batch>();
    batch->first = next_page_;
    Chunk chunk;
    for (std::uint64_t bytes = 0;
         batch->local.size() < kBatchPages && bytes < kBatchBytes && cursor_.next(chunk);
         bytes += chunk.length) {
      const PageRange source{chunk.source_offset, chunk.length};
      const PageRange destination{chunk.destination_offset, chunk.length};
      batch->local.push_back(write_ ? source : destination);
      batch->other.push_back(write_ ? destination : source);
    }
    next_page_ += batch->local.size();
    ++under_way_;
    compare(std::move(batch));
  }
}

void Verification::compared(std::uint64_t first, const Result<std::uint64_t>& differing,
                            TimePoint now, const Compare& compare) {
  --under_way_;
  if (!differing) {
    Error error = differing.error();
    error.message = "every byte was delivered, but could not be verified: " + error.message;
    stop(TransferResult::State::kFailed, std::move(error));
  } else if (*differing > 0) {
    differs_ = std::min(differs_.value_or(UINT64_MAX), first + *differing - 1);
    stopped_ = true;  // batches before this one may still say an earlier page
  }
  go_on(now, compare);
}

void Verification::cancel() {
  stop(TransferResult::State::kCancelled,
       {ErrorCode::kCancelled, "cancelled while it was verified; every byte was delivered"});
}

void Verification::give_up(const Error& error) {
  stop(TransferResult::State::kFailed,
       {error.code, "every byte was delivered, but could not be verified: " + error.message});
  under_way_ = 0;
}

void Verification::stop(TransferResult::State state, Error error) {
  if (stopped_) return;
  stopped_ = true;
  if (!result_) return;
  result_->state = state;
  result_->error = std::move(error);
}

TransferResult Verification::take_result(TimePoint now) {
  TransferResult result = std::move(*result_);
  result.elapsed_us += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(now - started_).count());
  if (!differs_) return result;
  Cursor cursor(*pages_);
  Chunk chunk;
  for (std::uint64_t i = 0; i <= *differs_; ++i) cursor.next(chunk);
  result.state = TransferResult::State::kFailed;
  result.error = {ErrorCode::kProvider,
                  fmt::format("verify: page {} of {} differs: {} bytes at offset {} of the source "
                              "and {} of the destination",
                              *differs_, pages_->chunks(), chunk.length, chunk.source_offset,
                              chunk.destination_offset)};
  return result;
}

}  // namespace penstock

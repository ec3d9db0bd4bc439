#include "transport/plan/plan.hpp"

#include <algorithm>
#include <utility>

#include "transport/plan/chunk_count.hpp"
#include "transport/plan/extent.hpp"

namespace penstock {

Result<std::shared_ptr<const Plan>> Plan::make(Layout layout, PlanLimits limits) {
  if (limits.max_chunk_bytes == 0)
    return fail(ErrorCode::kInvalidArgument, "max_chunk_bytes is 0; it must be at least 1");
  const auto extent = measure(layout);
  if (!extent) return tl::unexpected(extent.error());

  struct Made : Plan {};
  const auto plan = std::make_shared<Made>();
  plan->limits_ = limits;
  plan->bytes_ = extent->bytes;
  plan->source_end_ = extent->source_end;
  plan->destination_end_ = extent->destination_end;
  plan->chunks_ = extent->bytes == 0 ? 0 : count_chunks(layout, limits);
  plan->layout_ = std::move(layout);
  return plan;
}

Cursor::Cursor(const Plan& plan) : plan_(&plan), walk_(plan.layout(), plan.limits().merge) {
  if (!done()) walk_.next(ahead_);
}

bool Cursor::next(Chunk& chunk) {
  if (done()) return false;
  const PlanLimits& limits = plan_->limits();
  // Only as far as this chunk needs: a run of a whole region costs each chunk its own share.
  while (open_.length < limits.max_chunk_bytes && ahead_.length != 0) {
    if (open_.length == 0)
      open_ = ahead_;
    else if (limits.merge && open_.joins(ahead_))
      open_.length += ahead_.length;
    else
      break;
    walk_.next(ahead_);
  }
  const std::uint64_t length = std::min(open_.length, limits.max_chunk_bytes);
  chunk = {sequence_++, open_.source, open_.destination, length};
  open_ = {open_.source + length, open_.destination + length, open_.length - length};
  return true;
}

}  // namespace penstock

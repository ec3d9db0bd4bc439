#include "transport/plan/chunk_count.hpp"

#include "transport/plan/walk.hpp"

namespace penstock {
namespace {

using u64 = std::uint64_t;

/// A sequence of contiguous runs of which the first and the last may still grow, because what
/// comes before or after may join them. The runs between are closed and counted in chunks.
class RunTally {
 public:
  explicit RunTally(u64 max_chunk_bytes) : max_chunk_bytes_(max_chunk_bytes) {}

  /// `count` (at least 1) runs of `length` bytes, none joined.
  void assign(u64 count, u64 length) {
    runs_ = count;
    first_ = last_ = length;
    closed_chunks_ = count > 2 ? (count - 2) * chunks_of(length) : 0;
  }

  /// Appends `next`; `joined` says that its first run continues our last one.
  void append(const RunTally& next, bool joined) {
    if (runs_ == 0) {
      *this = next;
      return;
    }
    closed_chunks_ += next.closed_chunks_;
    if (joined) {
      join(next);
      return;
    }
    if (runs_ > 1) closed_chunks_ += chunks_of(last_);
    if (next.runs_ > 1) closed_chunks_ += chunks_of(next.first_);
    last_ = next.last_;
    runs_ += next.runs_;
  }

  u64 chunks() const {
    if (runs_ == 0) return 0;
    return closed_chunks_ + chunks_of(first_) + (runs_ > 1 ? chunks_of(last_) : 0);
  }

 private:
  void join(const RunTally& next) {
    const u64 run = last_ + next.first_;
    if (runs_ > 1 && next.runs_ > 1) closed_chunks_ += chunks_of(run);
    if (runs_ == 1) first_ = run;
    last_ = next.runs_ == 1 ? run : next.last_;
    runs_ += next.runs_ - 1;
  }

  /// Most runs fit one chunk: spare them the division.
  u64 chunks_of(u64 run) const {
    return run <= max_chunk_bytes_ ? 1 : (run - 1) / max_chunk_bytes_ + 1;
  }

  u64 max_chunk_bytes_;
  u64 runs_ = 0;
  u64 first_ = 0;  // the same run as last_ while there is only one
  u64 last_ = 0;
  u64 closed_chunks_ = 0;
};

}  // namespace

u64 count_chunks(const Layout& layout, const PlanLimits& limits) {
  // Pages that are not joined are all alike.
  if (const auto* pages = std::get_if<Pages>(&layout); pages != nullptr && !limits.merge)
    return pages->source_pages.size() * pages->rows * pages->bases.size() *
           ((pages->row_bytes - 1) / limits.max_chunk_bytes + 1);
  EntryWalk entries(layout, limits.merge);
  const Rows rows = entries.rows();
  Element first;
  if (!entries.next(first)) return 0;

  RunTally per_base(limits.max_chunk_bytes);
  per_base.assign(rows.count, first.length);
  Element last = rows.last(first);
  RunTally one_entry(limits.max_chunk_bytes);
  for (Element entry; entries.next(entry); last = rows.last(entry)) {
    one_entry.assign(rows.count, entry.length);
    per_base.append(one_entry, limits.merge && last.joins(entry));
  }

  RunTally all(limits.max_chunk_bytes);
  const BasePair* previous = nullptr;
  for (const BasePair& base : entries.bases()) {
    const bool joined = limits.merge && previous != nullptr &&
                        last.shifted(previous->source, previous->destination)
                            .joins(first.shifted(base.source, base.destination));
    all.append(per_base, joined);
    previous = &base;
  }
  return all.chunks();
}

}  // namespace penstock

// A plan as a test wants it: the chunks in a vector, and a naive model that makes the same vector
// by listing every row of the layout.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "transport/plan/plan.hpp"

namespace penstock {

inline bool operator==(const Chunk& a, const Chunk& b) {
  return a.sequence == b.sequence && a.source_offset == b.source_offset &&
         a.destination_offset == b.destination_offset && a.length == b.length;
}

inline void PrintTo(const Chunk& chunk, std::ostream* out) {
  *out << '#' << chunk.sequence << ' ' << chunk.source_offset << "->" << chunk.destination_offset
       << " x" << chunk.length;
}

inline std::shared_ptr<const Plan> plan_of(Layout layout, PlanLimits limits = {}) {
  auto plan = Plan::make(std::move(layout), limits);
  if (plan) return *plan;
  ADD_FAILURE() << "refused: " << plan.error().message;
  return *Plan::make(Ranges{}, {});
}

inline Error refusal_of(Layout layout, PlanLimits limits = {}) {
  auto plan = Plan::make(std::move(layout), limits);
  if (!plan) return plan.error();
  ADD_FAILURE() << "accepted: " << (*plan)->bytes() << " bytes";
  return {};
}

inline std::vector<Chunk> chunks_of(const Plan& plan) {
  std::vector<Chunk> chunks;
  Cursor cursor(plan);
  for (Chunk chunk; cursor.next(chunk);) chunks.push_back(chunk);
  EXPECT_TRUE(cursor.done());
  return chunks;
}

inline Ranges ranges(const std::vector<Range>& list) { return {BlobList<Range>::of(list)}; }

/// Plain pages, back to back on both sides.
inline Pages pages(std::uint64_t page_bytes, const std::vector<std::uint32_t>& source,
                   const std::vector<std::uint32_t>& destination) {
  Pages layout;
  layout.row_bytes = layout.source_stride = layout.destination_stride = page_bytes;
  layout.source_pages = BlobList<std::uint32_t>::of(source);
  layout.destination_pages = BlobList<std::uint32_t>::of(destination);
  return layout;
}

struct Model {
  std::vector<Chunk> chunks;
  std::uint64_t bytes = 0;
  std::uint64_t source_end = 0;
  std::uint64_t destination_end = 0;
};

inline std::vector<Range> rows_of(const Layout& layout) {
  std::vector<Range> rows;
  if (const auto* list = std::get_if<Ranges>(&layout)) {
    for (std::size_t i = 0; i < list->ranges.size(); ++i) rows.push_back(list->ranges[i]);
    return rows;
  }
  const auto& p = std::get<Pages>(layout);
  for (const BasePair& base : p.bases)
    for (std::size_t i = 0; i < p.source_pages.size(); ++i)
      for (std::uint64_t r = 0; r < p.rows; ++r)
        rows.push_back({base.source + p.source_pages[i] * p.source_stride + r * p.source_pitch,
                        base.destination + p.destination_pages[i] * p.destination_stride +
                            r * p.destination_pitch,
                        p.row_bytes});
  return rows;
}

inline Model model_of(const Layout& layout, PlanLimits limits) {
  Model model;
  std::vector<Range> runs;
  for (const Range& row : rows_of(layout)) {
    if (row.length == 0) continue;
    model.bytes += row.length;
    model.source_end = std::max(model.source_end, row.source_offset + row.length);
    model.destination_end = std::max(model.destination_end, row.destination_offset + row.length);
    if (limits.merge && !runs.empty() &&
        runs.back().source_offset + runs.back().length == row.source_offset &&
        runs.back().destination_offset + runs.back().length == row.destination_offset)
      runs.back().length += row.length;
    else
      runs.push_back(row);
  }
  for (const Range& run : runs)
    for (std::uint64_t at = 0; at < run.length; at += limits.max_chunk_bytes)
      model.chunks.push_back({model.chunks.size(), run.source_offset + at,
                              run.destination_offset + at,
                              std::min(limits.max_chunk_bytes, run.length - at)});
  return model;
}

inline void expect_matches_model(const Layout& layout, PlanLimits limits) {
  const auto plan = plan_of(layout, limits);
  const Model model = model_of(layout, limits);
  EXPECT_EQ(plan->bytes(), model.bytes);
  EXPECT_EQ(plan->chunks(), model.chunks.size());
  EXPECT_EQ(plan->source_end(), model.source_end);
  EXPECT_EQ(plan->destination_end(), model.destination_end);
  EXPECT_EQ(chunks_of(*plan), model.chunks);
}

}  // namespace penstock

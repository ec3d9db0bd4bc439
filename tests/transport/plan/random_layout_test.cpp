// Random layouts, small enough that neighbours are frequent, against the naive model. The seed of a
// failing layout is in the trace.
#include <random>

#include "tests/transport/plan/expect_plan.hpp"

namespace penstock {
namespace {

class Dice {
 public:
  explicit Dice(std::uint32_t seed) : random_(seed) {}
  std::uint64_t up_to(std::uint64_t most) { return random_() % (most + 1); }
  bool heads() { return up_to(1) == 1; }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[up_to(choices.size() - 1)];
  }

 private:
  std::mt19937 random_;  // the same numbers on every machine
};

PlanLimits random_limits(Dice& dice) {
  return {.max_chunk_bytes = dice.one_of<std::uint64_t>({1, 3, 8, 16, 40, 1 << 20}),
          .merge = dice.up_to(3) != 0};
}

Layout random_ranges(Dice& dice) {
  std::vector<Range> list(dice.up_to(20));
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
  for (Range& range : list) {
    if (dice.up_to(2) == 0) source = dice.up_to(1000);
    if (dice.up_to(2) == 0) destination = dice.up_to(1000);
    range = {source, destination, dice.up_to(12)};
    source += range.length;
    destination += range.length;
  }
  return ranges(list);
}

std::vector<std::uint32_t> random_indices(Dice& dice, std::size_t count) {
  std::vector<std::uint32_t> indices;
  while (indices.size() < count)
    indices.push_back(indices.empty() || dice.up_to(2) == 0 ? dice.up_to(50) : indices.back() + 1);
  return indices;
}

Layout random_pages(Dice& dice) {
  const std::size_t count = dice.up_to(12);
  const std::uint64_t row_bytes = 1 + dice.up_to(8);
  Pages layout = pages(row_bytes, random_indices(dice, count), random_indices(dice, count));
  layout.rows = 1 + dice.up_to(3);
  const auto pitch = [&] {
    return dice.one_of({row_bytes, row_bytes, row_bytes * 2, row_bytes - 1});
  };
  layout.source_pitch = pitch();
  layout.destination_pitch = pitch();
  const auto stride = [&](std::uint64_t by) {
    const std::uint64_t span = (layout.rows - 1) * by + row_bytes;
    return dice.one_of<std::uint64_t>({span, span, span + 3, 0});
  };
  layout.source_stride = stride(layout.source_pitch);
  layout.destination_stride = stride(layout.destination_pitch);
  layout.bases.clear();
  // A step as long as the pages' own span makes base pairs neighbours.
  const std::uint64_t step = dice.heads() ? count * layout.source_stride : dice.up_to(100);
  for (std::uint64_t b = dice.up_to(4); b > 0; --b)
    layout.bases.push_back({dice.up_to(1) * 5 + layout.bases.size() * step,
                            layout.bases.size() * (dice.up_to(3) == 0 ? 7 : step)});
  return layout;
}

TEST(RandomLayout, RangesMatchTheNaiveModel) {
  for (std::uint32_t seed = 0; seed < 5000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Dice dice(seed);
    const PlanLimits limits = random_limits(dice);
    expect_matches_model(random_ranges(dice), limits);
  }
}

TEST(RandomLayout, PagesMatchTheNaiveModel) {
  for (std::uint32_t seed = 0; seed < 20'000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Dice dice(seed);
    const PlanLimits limits = random_limits(dice);
    expect_matches_model(random_pages(dice), limits);
  }
}

}  // namespace
}  // namespace penstock

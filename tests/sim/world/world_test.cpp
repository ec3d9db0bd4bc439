// A few fixed seeds of the simulated cluster, and that a seed replays. Many more: ./dev sim.
#include "tests/sim/world/world.hpp"

#include <gtest/gtest.h>

#include <set>

namespace penstock::sim {
namespace {

TEST(World, KeepsThePromisesOverFixedSeeds) {
  std::size_t asked = 0;
  std::size_t done = 0;
  std::uint64_t late = 0;
  for (std::uint64_t seed = 101; seed <= 200 && !HasFailure(); ++seed) {
    World world(seed);
    world.run();
    asked += world.asked();
    done += world.done();
    late += world.landed_late();
    if (!world.failures().empty())
      ADD_FAILURE() << "seed " << seed << ": " << world.failures().front() << "\n"
                    << world.history();
  }
  EXPECT_GT(done * 2, asked) << "hardly anything succeeds in this weather";
  EXPECT_GT(late, 0u) << "no write landed late: the weather is too good";
}

TEST(World, TheSameSeedRunsTheSameWay) {
  std::set<std::uint64_t> digests;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    World first(seed);
    first.run();
    // Memory lies elsewhere the second time.
    const std::vector<std::vector<char>> between(seed * 100, std::vector<char>(seed * 7));
    World second(seed);
    second.run();
    EXPECT_EQ(first.digest(), second.digest()) << "seed " << seed;
    EXPECT_EQ(first.history(), second.history()) << "seed " << seed;
    digests.insert(first.digest());
  }
  EXPECT_EQ(digests.size(), 8u) << "different seeds run the same way";
}

}  // namespace
}  // namespace penstock::sim

// The promises of docs/architecture.md, checked over many seeds. PENSTOCK_SEED=n replays one of
// them and prints its history; PENSTOCK_SEEDS=n runs so many of each.
#include "tests/sim/nodes/two_nodes.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace penstock::sim {
namespace {

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Case {
  const char* name;
  Weather weather;
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

class TwoNodesTest : public testing::TestWithParam<Case> {
 protected:
  struct Sum {
    std::size_t done = 0;
    std::size_t ended = 0;
    std::uint64_t late = 0;
  };

  void run_seed(std::uint64_t seed, bool show) {
    TwoNodes world(seed, GetParam().weather);
    world.run();
    sum_.done += world.done();
    sum_.ended += world.ended();
    sum_.late += world.landed_late();
    if (show) std::puts(world.history().c_str());
    if (world.failures().empty()) return;
    ADD_FAILURE() << "seed " << seed << ": " << world.failures().front() << "\n" << world.history();
  }
  Sum sum_;
};

TEST_P(TwoNodesTest, KeepThePromises) {
  if (const auto seed = number_of("PENSTOCK_SEED", 0)) return run_seed(seed, true);
  const std::uint64_t seeds = number_of("PENSTOCK_SEEDS", 100);
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) run_seed(seed, false);
  RecordProperty("done", std::to_string(sum_.done));
  std::printf("%zu transfers ended, %zu of them done, %llu writes landed late\n", sum_.ended,
              sum_.done, static_cast<unsigned long long>(sum_.late));
  EXPECT_GT(sum_.done * 4, sum_.ended) << "hardly anything succeeds in this weather";
}

Weather calm() {
  Weather weather;
  weather.late_chance = 0;
  weather.cancel_chance = 0;
  weather.short_deadline_chance = 0;
  weather.card_faults = false;
  return weather;
}
Weather cancels() {
  Weather weather = calm();
  weather.cancel_chance = 0.5;
  weather.short_deadline_chance = 0.3;
  weather.late_chance = 0.7;
  return weather;
}
Weather failing() {
  Weather weather;
  weather.failure_chance = 0.01;
  weather.late_chance = 0.7;
  return weather;
}
Weather losing() {
  Weather weather;
  weather.message_loss = 0.2;
  return weather;
}
Weather releasing() {
  Weather weather;
  weather.releases = true;
  return weather;
}
Weather parting() {
  Weather weather;
  weather.partings = true;
  weather.message_loss = 0.05;
  return weather;
}
Weather crashing() {
  Weather weather;
  weather.crash = true;
  return weather;
}
Weather rekeying() {
  Weather weather = parting();
  weather.fence = FenceKind::kRekey;
  weather.failure_chance = 0.01;
  weather.releases = true;
  return weather;
}
Weather everything() {
  Weather weather;
  weather.message_loss = 0.05;
  weather.failure_chance = 0.003;
  weather.partings = true;
  weather.crash = true;
  weather.releases = true;
  return weather;
}

Weather outages() {
  Weather weather = calm();
  weather.late_chance = 0.7;
  weather.cards = {4, 4};
  weather.transfers = 12;
  weather.most_pages = 40;
  weather.outages = 1;
  weather.all_done = true;
  return weather;
}
Weather outages_for_good() {
  Weather weather = outages();
  weather.for_good = true;
  return weather;
}
Weather uneven_outages() {
  Weather weather = outages_for_good();
  weather.cards = {4, 3};
  return weather;
}
Weather many_outages() {
  Weather weather;
  weather.cards = {3, 4};
  weather.most_pages = 20;
  weather.outages = 4;
  weather.late_chance = 0.8;
  weather.message_loss = 0.02;
  return weather;
}
Weather everything_with_outages() {
  Weather weather = everything();
  weather.cards = {4, 2};
  weather.outages = 4;
  return weather;
}
Weather rekeying_outages() {
  Weather weather = rekeying();
  weather.cards = {3, 3};
  weather.outages = 4;
  return weather;
}

/// Node a has its regions on a GPU that no card reaches, and its copies take their time.
Weather staged(Weather weather) {
  weather.on_gpu = {true, false};
  return weather;
}
Weather staged_both(Weather weather) {
  weather.on_gpu = {true, true};
  weather.move_failure_chance = 0.002;
  return weather;
}

INSTANTIATE_TEST_SUITE_P(
    Weather, TwoNodesTest,
    testing::Values(Case{"Calm", calm()}, Case{"Cancels", cancels()}, Case{"Failing", failing()},
                    Case{"Losing", losing()}, Case{"Releasing", releasing()},
                    Case{"Parting", parting()}, Case{"Crashing", crashing()},
                    Case{"Rekeying", rekeying()}, Case{"Everything", everything()},
                    Case{"Outages", outages()}, Case{"OutagesForGood", outages_for_good()},
                    Case{"UnevenOutages", uneven_outages()}, Case{"ManyOutages", many_outages()},
                    Case{"EverythingWithOutages", everything_with_outages()},
                    Case{"RekeyingOutages", rekeying_outages()}, Case{"StagedCalm", staged(calm())},
                    Case{"StagedCancels", staged(cancels())},
                    Case{"StagedFailing", staged(failing())},
                    Case{"StagedOutages", staged(outages())},
                    Case{"StagedReleasing", staged(releasing())},
                    Case{"StagedCrashing", staged(crashing())},
                    Case{"StagedRekeyingOutages", staged(rekeying_outages())},
                    Case{"StagedEverythingWithOutages", staged(everything_with_outages())},
                    Case{"StagedBothCancels", staged_both(cancels())},
                    Case{"StagedBothRekeying", staged_both(rekeying())},
                    Case{"StagedBothEverything", staged_both(everything())}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace penstock::sim

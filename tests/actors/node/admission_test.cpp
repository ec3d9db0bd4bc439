#include "actors/node/admission.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tests/actors/device/gpu_memory_double.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class AdmissionTest : public testing::Test {
 protected:
  AdmissionTest() {
    rules.node = "here";
    rules.takes_work = [](const std::string& name) -> Result<void> {
      if (name == "there") return {};
      if (name == "leaving") return fail(ErrorCode::kDraining, "draining");
      return fail(ErrorCode::kNotFound, "unknown");
    };
    for (const auto& [name, bytes] : {std::pair{"big", 1000}, {"small", 100}}) {
      auto region = std::make_shared<Region>();
      region->name = name;
      region->bytes = static_cast<std::uint64_t>(bytes);
      regions.publish(region);
    }
  }
  TransferSpec spec(std::vector<Range> ranges, std::vector<TransferTarget> targets) {
    TransferSpec s;
    s.region = "big";
    s.layout = Ranges{BlobList<Range>::of(ranges)};
    s.targets = std::move(targets);
    return s;
  }
  ErrorCode refusal(const TransferSpec& s) {
    auto result = admit(s, rules, regions, now);
    if (result) {
      ADD_FAILURE() << "admitted";
      return ErrorCode::kInternal;
    }
    for (const auto& region : regions.list()) EXPECT_EQ(region->uses, 0u) << "still held";
    return result.error().code;
  }
  std::uint64_t epoch(const std::string& name) { return (*regions.use(name))->epoch; }

  TimePoint now{1h};
  AdmissionRules rules;
  RegionTable regions;
};

TEST_F(AdmissionTest, WhatFitsIsAdmittedWithItsDeadline) {
  TransferSpec s = spec({{0, 0, 1000}}, {{"there", "theirs", 7}});
  auto admitted = admit(s, rules, regions, now);
  ASSERT_TRUE(admitted);
  EXPECT_EQ(admitted->at(0).deadline, now + 60s);
  EXPECT_EQ(admitted->at(0).remote_epoch, 7u);
  EXPECT_FALSE(admitted->at(0).copy_target);
  EXPECT_EQ((*admitted->at(0).local)->uses, 1u);
  s.deadline_ms = 5;
  EXPECT_EQ(admit(s, rules, regions, now)->at(0).deadline, now + 5ms);
}

TEST_F(AdmissionTest, AByteBeyondTheLocalRegionIsOutOfRange) {
  for (Direction direction : {Direction::kWrite, Direction::kRead}) {
    const bool write = direction == Direction::kWrite;
    TransferSpec s = spec({write ? Range{1, 0, 1000} : Range{0, 1, 1000}}, {{"there", "x", 0}});
    s.direction = direction;
    EXPECT_EQ(refusal(s), ErrorCode::kOutOfRange);
  }
}

TEST_F(AdmissionTest, TheOtherNodesRangesAreLeftToItsOwner) {
  EXPECT_TRUE(admit(spec({{0, 1u << 30, 10}}, {{"there", "x", 0}}), rules, regions, now));
}

TEST_F(AdmissionTest, OffsetsThatPassTheLastByteAreRefused) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  for (const Range& range : {Range{kMost, 0, 2}, Range{0, kMost, 2}, Range{kMost - 5, 0, kMost}})
    EXPECT_EQ(refusal(spec({range}, {{"there", "x", 0}})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refusal(spec({{kMost - 5, 0, 5}}, {{"there", "x", 0}})), ErrorCode::kOutOfRange);
}

TEST_F(AdmissionTest, OnOneNodeBothSidesAreChecked) {
  EXPECT_EQ(refusal(spec({{0, 0, 101}}, {{"", "small", 0}})), ErrorCode::kOutOfRange);
  EXPECT_EQ(refusal(spec({{0, 99, 2}}, {{"here", "small", 0}})), ErrorCode::kOutOfRange);
  TransferSpec read = spec({{99, 0, 2}}, {{"here", "small", 0}});
  read.direction = Direction::kRead;
  EXPECT_EQ(refusal(read), ErrorCode::kOutOfRange);
  EXPECT_EQ(refusal(spec({{0, 0, 1}}, {{"", "none", 0}})), ErrorCode::kNotFound);
  EXPECT_EQ(refusal(spec({{0, 0, 1}}, {{"", "small", 99}})), ErrorCode::kStaleRegion);
  auto copy = admit(spec({{900, 0, 100}}, {{"", "small", epoch("small")}}), rules, regions, now);
  ASSERT_TRUE(copy);
  EXPECT_EQ((*copy->at(0).copy_target)->name, "small");
  EXPECT_EQ(copy->at(0).node, "here");
}

TEST_F(AdmissionTest, UnknownNodesRegionsAndTargetsAreRefusedByName) {
  EXPECT_EQ(refusal(spec({{0, 0, 1}}, {{"nowhere", "x", 0}})), ErrorCode::kNotFound);
  EXPECT_EQ(refusal(spec({{0, 0, 1}}, {})), ErrorCode::kInvalidArgument);
  TransferSpec s = spec({{0, 0, 1}}, {{"there", "x", 0}});
  s.region = "none";
  EXPECT_EQ(refusal(s), ErrorCode::kNotFound);
  ASSERT_TRUE(regions.close("big", true));
  EXPECT_EQ(refusal(spec({{0, 0, 1}}, {{"there", "x", 0}})), ErrorCode::kStaleRegion);
}

TEST_F(AdmissionTest, ADrainingNodeIsGivenNoNewWork) {
  EXPECT_EQ(refusal(spec({{0, 0, 1}}, {{"there", "x", 0}, {"leaving", "x", 0}})),
            ErrorCode::kDraining);
}

TEST_F(AdmissionTest, OneBadTargetRefusesAllAndHoldsNothing) {
  EXPECT_EQ(refusal(spec({{0, 0, 10}}, {{"there", "x", 0}, {"", "small", 0}, {"no", "x", 0}})),
            ErrorCode::kNotFound);
}

TEST_F(AdmissionTest, AScatterSharesOnePlan) {
  auto admitted =
      admit(spec({{0, 0, 10}}, {{"there", "x", 0}, {"there", "y", 0}, {"", "small", 0}}), rules,
            regions, now);
  ASSERT_TRUE(admitted);
  ASSERT_EQ(admitted->size(), 3u);
  EXPECT_EQ(admitted->at(0).plan, admitted->at(2).plan);
  EXPECT_EQ(admitted->at(1).remote_region, "y");
  EXPECT_EQ((*admitted->at(0).local)->uses, 3u);
}

TEST_F(AdmissionTest, NothingToMoveFitsAnywhere) {
  EXPECT_TRUE(admit(spec({}, {{"there", "x", 0}}), rules, regions, now));
}

/// Regions on a GPU, beside those of the fixture.
class GpuAdmission : public AdmissionTest {
 protected:
  GpuAdmission() {
    for (const char* name : {"gpu", "gpu2"}) {
      auto region = std::make_shared<Region>();
      region->name = name;
      region->bytes = 1000;
      region->memory = std::make_shared<test::GpuMemoryDouble>(1000);
      regions.publish(region);
    }
    rules.open_event = [this](int gpu, const std::string&) -> Result<std::shared_ptr<GpuEvent>> {
      opened.push_back(gpu);
      return fail(ErrorCode::kInvalidArgument, "no event of that GPU");
    };
  }
  TransferSpec from_gpu(std::vector<TransferTarget> targets) {
    TransferSpec s = spec({{0, 0, 10}, {10, 10, 10}}, std::move(targets));
    s.region = "gpu";
    return s;
  }
  std::vector<int> opened;
};

TEST_F(GpuAdmission, AWayBetweenNodesIsRefusedWhereBothRegionsAreHere) {
  TransferSpec s = from_gpu({{"", "gpu2", 0}});
  s.path = PathChoice::kStaged;
  EXPECT_EQ(refusal(s), ErrorCode::kInvalidArgument);
}

TEST_F(GpuAdmission, WhatOnlyAKernelReadsIsNotLookedThroughForNeighbours) {
  EXPECT_EQ(admit(from_gpu({{"", "gpu2", 0}}), rules, regions, now)->at(0).plan->chunks(), 2u);
  EXPECT_EQ(admit(from_gpu({{"there", "x", 0}}), rules, regions, now)->at(0).plan->chunks(), 1u);
  EXPECT_EQ(admit(from_gpu({{"there", "x", 0}, {"", "gpu2", 0}}), rules, regions, now)
                ->at(0)
                .plan->chunks(),
            1u);
}

TEST_F(GpuAdmission, EventsBelongToRegionsOnAGpu) {
  TransferSpec host = spec({{0, 0, 10}}, {{"there", "x", 0}});
  host.start_after = std::string(64, 'e');
  EXPECT_EQ(refusal(host), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(opened.empty());
  TransferSpec remote = from_gpu({{"there", "x", 0}});
  remote.record_event = std::string(64, 'e');
  EXPECT_EQ(refusal(remote), ErrorCode::kInvalidArgument) << "there is nothing to record it behind";
  EXPECT_TRUE(opened.empty());
  TransferSpec broken = from_gpu({{"", "gpu2", 0}});
  broken.start_after = std::string(64, 'e');
  EXPECT_EQ(refusal(broken), ErrorCode::kInvalidArgument);
  EXPECT_EQ(opened, std::vector<int>{2});
}

}  // namespace
}  // namespace penstock

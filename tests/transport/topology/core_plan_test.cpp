#include "transport/topology/core_plan.hpp"

#include <gmock/gmock.h>

#include "tests/transport/topology/machines.hpp"
#include "transport/topology/print.hpp"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int> range(int first, int last) {
  std::vector<int> numbers;
  for (int i = first; i <= last; ++i) numbers.push_back(i);
  return numbers;
}

std::vector<int> cpus_of(const CorePlan& plan) {
  std::vector<int> cpus;
  for (const PollerPlan& poller : plan.pollers) cpus.push_back(poller.cpu);
  return cpus;
}

class PinningOnAP5 : public testing::Test {
 protected:
  std::vector<DevicePlan> devices(const std::vector<std::string>& gpus) const {
    return pair_devices(p5, cards_in_topology(p5, "efa"), gpus).value();
  }
  Topology p5 = load_machine("p5.48xlarge");
};

TEST_F(PinningOnAP5, EachGpuHasTwelveCoresAndIsPolledFromTheFirst) {
  const CorePlan plan = plan_cores(p5, devices(gpu_buses(p5)));
  ASSERT_EQ(plan.pollers.size(), 8u);
  for (int g = 0; g < 8; ++g) {
    EXPECT_EQ(plan.pollers[g].cpu, 12 * g);
    EXPECT_EQ(plan.pollers[g].share, range(12 * g, 12 * g + 11));
    EXPECT_THAT(plan.pollers[g].devices, ElementsAre(g));
  }
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST_F(PinningOnAP5, AGpuKeepsItsCoresWhenOthersAreHidden) {
  const CorePlan plan = plan_cores(p5, devices({"b9:00.0", "64:00.0"}));
  EXPECT_EQ(cpus_of(plan), (std::vector{12, 72}));
}

TEST_F(PinningOnAP5, AnSmtSiblingIsUsedOnlyWhenTheFirstThreadIsNotAllowed) {
  ASSERT_TRUE(p5.allow_only({0, 96, 1, 97, 98}).has_value());
  const CorePlan plan = plan_cores(p5, devices({"53:00.0", "64:00.0", "75:00.0"}));
  EXPECT_EQ(cpus_of(plan), (std::vector{0, 1, 98}));
}

TEST_F(PinningOnAP5, FewerCoresThanGpusGiveTheVisibleGpusOneEach) {
  ASSERT_TRUE(p5.allow_only({10, 11}).has_value());
  const CorePlan plan = plan_cores(p5, devices({"75:00.0", "86:00.0"}));
  EXPECT_EQ(cpus_of(plan), (std::vector{10, 11}));
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST_F(PinningOnAP5, WhereCoresRunOutDevicesShareAPollerAndItIsSaid) {
  ASSERT_TRUE(p5.allow_only({10, 11, 48}).has_value());
  const CorePlan plan =
      plan_cores(p5, devices({"53:00.0", "64:00.0", "75:00.0", "86:00.0", "97:00.0"}));
  ASSERT_EQ(cpus_of(plan), (std::vector{10, 11, 48}));
  EXPECT_THAT(plan.pollers[0].devices, ElementsAre(0, 1));
  EXPECT_THAT(plan.pollers[1].devices, ElementsAre(2, 3));
  EXPECT_THAT(plan.pollers[2].devices, ElementsAre(4));
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("4 devices of NUMA node 0 share 2 pollers")));
}

TEST_F(PinningOnAP5, ACpusetOfOneCoreIsPinnedToAndSaid) {
  ASSERT_TRUE(p5.allow_only({50, 146}).has_value());
  const CorePlan plan = plan_cores(p5, devices({"97:00.0"}));
  EXPECT_EQ(cpus_of(plan), (std::vector{50}));
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("only one core may be used (CPU 50,146)")));
}

TEST_F(PinningOnAP5, ADeviceWhoseNodeHasNoAllowedCoreIsPolledFromAnotherWithAWarning) {
  ASSERT_TRUE(p5.allow_only({48, 49}).has_value());
  const CorePlan plan = plan_cores(p5, devices({"53:00.0", "97:00.0"}));
  EXPECT_EQ(cpus_of(plan), (std::vector{49, 48}));
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("gpu0 is on NUMA node 0")));
}

TEST_F(PinningOnAP5, ALocalAndAnExiledDeviceOnTheOnlyCoreShareOnePoller) {
  ASSERT_TRUE(p5.allow_only({48}).has_value());
  const CorePlan plan = plan_cores(p5, devices({"53:00.0", "97:00.0"}));
  ASSERT_EQ(cpus_of(plan), (std::vector{48}));
  EXPECT_THAT(plan.pollers[0].devices, testing::UnorderedElementsAre(0, 1));
}

TEST_F(PinningOnAP5, AskedForFewerPollersNeighboursShareOne) {
  const CorePlan plan = plan_cores(p5, devices(gpu_buses(p5)), {.pollers = 2});
  ASSERT_EQ(plan.pollers.size(), 2u);
  EXPECT_EQ(cpus_of(plan), (std::vector{0, 48}));
  EXPECT_THAT(plan.pollers[1].devices, ElementsAre(4, 5, 6, 7));
}

TEST_F(PinningOnAP5, AskedForMorePollersThanDevicesSaysHowManyRun) {
  const CorePlan plan = plan_cores(p5, devices({"53:00.0"}), {.pollers = 3});
  EXPECT_EQ(plan.pollers.size(), 1u);
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("3 pollers asked for, 1")));
}

TEST_F(PinningOnAP5, WithoutPinningDevicesStillHavePollers) {
  const CorePlan plan = plan_cores(p5, devices(gpu_buses(p5)), {.pin = false});
  ASSERT_EQ(plan.pollers.size(), 8u);
  for (int cpu : cpus_of(plan)) EXPECT_EQ(cpu, -1);
}

TEST(PinningHostDevices, PutsEachOnItsNode) {
  const Topology machine = load_machine("two-nic-server");
  const auto devices = pair_devices(machine, cards_in_topology(machine, "tcp"), {}).value();
  EXPECT_EQ(cpus_of(plan_cores(machine, devices)), (std::vector{0, 16}));
}

TEST(PinningADeviceOfUnknownNode, TakesACoreThatIsFree) {
  Topology machine = bare_machine(1, 2);
  machine.devices = {gpu_at("0000:01:00.0", -1), gpu_at("0000:02:00.0", 0)};
  const CardOffer card{"tcp", "eth0", "", "", -1, 0};
  const auto devices = pair_devices(machine, {card}, gpu_buses(machine)).value();
  EXPECT_EQ(cpus_of(plan_cores(machine, devices)), (std::vector{1, 0}));
}

TEST_F(PinningOnAP5, TheTreeShowsSwitchesDevicesCoresAndReasons) {
  const auto offers = cards_in_topology(p5, "efa");
  const auto plans = devices({"53:00.0"});
  const std::string text = print_topology(p5, offers, plans, plan_cores(p5, plans));
  for (const char* line :
       {"p5.48xlarge\nNUMA node 0: 1024 GiB, cores 0-47 (SMT 96-143)\n",
        "|- switch 0000:45:00.0\n|  |- card 0000:4f:00.0  rdmap79s0  for gpu0\n",
        "|  `- GPU 0000:53:00.0  gpu0\n", "card 0000:60:00.0  rdmap96s0  not used\n",
        "GPU 0000:64:00.0  not used\n", "card 0000:00:05.0  ens5  not used\n",
        "NUMA node 1: 1024 GiB", "`- switch 0000:bc:00.0\n   |- card 0000:c6:00.0",
        "gpu0 0000:53:00.0: NUMA node 0, core 0 of 0-11\n",
        "|- rdmap79s0 0000:4f:00.0  same PCIe switch 0000:45:00.0\n",
        "`- rdmap82s0 0000:52:00.0  same PCIe switch 0000:45:00.0\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(TheTree, ShowsWhatHasNoKnownPlaceAndTheWarnings) {
  Topology machine = bare_machine(1, 1);
  machine.devices = {card_at("0000:11:00.0", -1, "eth0")};
  const auto offers = cards_in_topology(machine, "tcp");
  const auto plans = pair_devices(machine, offers, {}).value();
  const std::string text = print_topology(machine, offers, plans, plan_cores(machine, plans));
  EXPECT_THAT(text, HasSubstr("NUMA node unknown\n`- card 0000:11:00.0  eth0  for host0\n"));
  EXPECT_THAT(text, HasSubstr("warning: only one core may be used (CPU 0)"));
}

}  // namespace
}  // namespace penstock

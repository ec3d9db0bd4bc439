#include "transport/topology/pairing.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/transport/topology/machines.hpp"

namespace penstock {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

struct Expected {
  std::string bus;
  int numa_node;
  std::vector<std::string> cards;
};

std::vector<Expected> p5_table() {
  std::vector<Expected> table;
  for (int g = 0; g < 8; ++g) {
    const int root = 0x44 + 0x11 * g;
    Expected row{fmt::format("0000:{:02x}:00.0", root + 0x0f), g / 4, {}};
    for (int bus = root + 0x0b; bus <= root + 0x0e; ++bus)
      row.cards.push_back(fmt::format("rdmap{}s0", bus));
    table.push_back(row);
  }
  return table;
}

CardOffer offer(const std::string& domain, const std::string& bus = "", int numa_node = -1) {
  return {"tcp", domain, "", bus, numa_node, 0};
}

std::vector<DevicePlan> pair(const Topology& topology, const std::vector<CardOffer>& offers,
                             const std::vector<std::string>& gpus,
                             const PairingOverride& overrides = {}) {
  auto plans = pair_devices(topology, offers, gpus, overrides);
  EXPECT_TRUE(plans.has_value()) << plans.error().message;
  return plans.value_or(std::vector<DevicePlan>{});
}

class OnAP5 : public testing::Test {
 protected:
  Topology p5 = load_machine("p5.48xlarge");
  std::vector<CardOffer> efa = cards_in_topology(p5, "efa");
};

TEST_F(OnAP5, EachGpuGetsExactlyItsFourCards) {
  const auto plans = pair(p5, efa, gpu_buses(p5));
  const auto table = p5_table();
  EXPECT_EQ(table[7].cards,
            (std::vector<std::string>{"rdmap198s0", "rdmap199s0", "rdmap200s0", "rdmap201s0"}));
  ASSERT_EQ(plans.size(), 8u);
  for (int g = 0; g < 8; ++g) {
    EXPECT_EQ(plans[g].name, fmt::format("gpu{}", g));
    EXPECT_EQ(plans[g].kind, DeviceKind::kGpu);
    EXPECT_EQ(plans[g].index, g);
    EXPECT_EQ(plans[g].bus, table[g].bus);
    EXPECT_EQ(plans[g].numa_node, table[g].numa_node);
    EXPECT_EQ(card_names(plans[g], efa), table[g].cards);
    const auto why = fmt::format("same PCIe switch 0000:{:02x}:00.0", 0x45 + 0x11 * g);
    EXPECT_THAT(plans[g].cards, Each(Field(&PairedCard::why, why)));
  }
}

TEST_F(OnAP5, AnySubsetOfGpusInAnyOrderAndSpellingKeepsEachGpusNameAndCards) {
  const auto table = p5_table();
  const auto plans = pair(p5, efa, {"00000000:CA:00.0", "75:00.0", "0000:97:00.0"});
  ASSERT_EQ(plans.size(), 3u);
  const std::vector<int> gpus = {2, 4, 7};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(plans[i].name, fmt::format("gpu{}", gpus[i]));
    EXPECT_EQ(plans[i].bus, table[gpus[i]].bus);
    EXPECT_EQ(card_names(plans[i], efa), table[gpus[i]].cards);
  }
}

TEST_F(OnAP5, TheOrderInWhichTheProviderListsCardsDoesNotMatter) {
  std::reverse(efa.begin(), efa.end());
  const auto plans = pair(p5, efa, gpu_buses(p5));
  ASSERT_EQ(plans.size(), 8u);
  for (int g = 0; g < 8; ++g) EXPECT_EQ(card_names(plans[g], efa), p5_table()[g].cards);
}

TEST_F(OnAP5, TheEnaCardIsNeverAmongTheEfaCards) {
  EXPECT_EQ(efa.size(), 32u);
  for (const CardOffer& card : efa) EXPECT_THAT(card.domain, HasSubstr("rdmap"));
  const auto tcp = cards_in_topology(p5, "tcp");
  ASSERT_EQ(tcp.size(), 1u);
  EXPECT_EQ(tcp[0].domain, "ens5");
  EXPECT_TRUE(cards_in_topology(p5, "verbs").empty());
}

TEST_F(OnAP5, OfferedOnlyOneCardEveryGpuSharesIt) {
  const auto plans = pair(p5, {efa.front()}, gpu_buses(p5));
  ASSERT_EQ(plans.size(), 8u);
  EXPECT_EQ(plans[0].cards[0].why, "same PCIe switch 0000:45:00.0");
  EXPECT_THAT(plans[1].cards[0].why, HasSubstr("same NUMA node 0"));
  EXPECT_THAT(plans[7].cards[0].why, HasSubstr("only card"));
  for (const DevicePlan& plan : plans) EXPECT_EQ(plan.cards.size(), 1u);
}

TEST_F(OnAP5, AnOverrideWinsAndIsEchoed) {
  const auto plans = pair(p5, efa, gpu_buses(p5), {{"gpu1", {"rdmap201s0", "0000:4f:00.0"}}});
  EXPECT_THAT(card_names(plans[1], efa), ElementsAre("rdmap201s0", "rdmap79s0"));
  EXPECT_THAT(plans[1].cards, Each(Field(&PairedCard::why, "override")));
  EXPECT_EQ(card_names(plans[0], efa), p5_table()[0].cards) << "other devices keep theirs";
}

TEST_F(OnAP5, AnOverrideOfAHiddenGpuIsLeftOutButOneOfNoDeviceIsAnError) {
  EXPECT_TRUE(pair_devices(p5, efa, {"53:00.0"}, {{"gpu7", {"rdmap79s0"}}}).has_value());
  const auto nothing = pair_devices(p5, efa, {"53:00.0"}, {{"gpu8", {"rdmap79s0"}}});
  ASSERT_FALSE(nothing.has_value());
  EXPECT_THAT(nothing.error().message, HasSubstr("gpu8"));
}

TEST_F(OnAP5, AnOverrideWithAnUnknownRepeatedOrNoCardIsAnErrorThatNamesIt) {
  const auto unknown = pair_devices(p5, efa, {"53:00.0"}, {{"gpu0", {"rdmap1s0"}}});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(unknown.error().message, HasSubstr("rdmap1s0"));
  EXPECT_FALSE(
      pair_devices(p5, efa, {"53:00.0"}, {{"gpu0", {"rdmap79s0", "4f:00.0"}}}).has_value());
  EXPECT_FALSE(pair_devices(p5, efa, {"53:00.0"}, {{"gpu0", {}}}).has_value());
}

TEST_F(OnAP5, AGpuThatIsNotThereIsAnErrorThatListsThoseThatAre) {
  const auto plans = pair_devices(p5, efa, {"0000:99:00.0"});
  ASSERT_FALSE(plans.has_value());
  EXPECT_EQ(plans.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(plans.error().message, HasSubstr("0000:53:00.0"));
  EXPECT_FALSE(pair_devices(p5, efa, {"53:00.0", "0000:53:00.0"}).has_value()) << "named twice";
  EXPECT_FALSE(pair_devices(p5, efa, {"zero"}).has_value());
}

TEST_F(OnAP5, WithoutAGpuTheHostMemoryOfEachNodeGetsItsNodesCards) {
  const auto plans = pair(p5, efa, {});
  ASSERT_EQ(plans.size(), 2u);
  for (int node = 0; node < 2; ++node) {
    EXPECT_EQ(plans[node].name, fmt::format("host{}", node));
    EXPECT_EQ(plans[node].kind, DeviceKind::kHost);
    EXPECT_EQ(plans[node].numa_node, node);
    ASSERT_EQ(plans[node].cards.size(), 16u);
    for (const PairedCard& card : plans[node].cards)
      EXPECT_EQ(efa[card.offer].numa_node, node) << card.why;
  }
}

TEST(OnAP5en, TwoGpusUnderASwitchDivideItsFourCardsWhetherBothAreVisibleOrNot) {
  const Topology machine = load_machine("p5en.48xlarge");
  const auto efa = cards_in_topology(machine, "efa");
  const auto gpus = gpu_buses(machine);
  const auto all = pair(machine, efa, gpus);
  ASSERT_EQ(all.size(), 8u);
  EXPECT_THAT(card_names(all[0], efa), ElementsAre("rdmap80s0", "rdmap81s0"));
  EXPECT_THAT(card_names(all[1], efa), ElementsAre("rdmap82s0", "rdmap83s0"));
  const auto second = pair(machine, efa, {gpus[1]});
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(card_names(second[0], efa), card_names(all[1], efa));
}

TEST(OnAP6B200, TwoGpusUnderASwitchTakeOneCardEach) {
  const Topology machine = load_machine("p6-b200.48xlarge");
  const auto efa = cards_in_topology(machine, "efa");
  std::set<std::string> taken;
  for (const DevicePlan& plan : pair(machine, efa, gpu_buses(machine))) {
    ASSERT_EQ(plan.cards.size(), 1u);
    taken.insert(card_names(plan, efa).front());
  }
  EXPECT_EQ(taken.size(), 8u);
}

TEST(OnATwoNicServer, EachNodesMemoryGetsTheCardOfItsNode) {
  const Topology machine = load_machine("two-nic-server");
  for (const auto& [provider, names] :
       {std::pair{"tcp", std::pair{"ens1np0", "ens2np0"}}, {"verbs", {"mlx5_0", "mlx5_1"}}}) {
    const auto offers = cards_in_topology(machine, provider);
    const auto plans = pair(machine, offers, {});
    ASSERT_EQ(plans.size(), 2u);
    EXPECT_THAT(card_names(plans[0], offers), ElementsAre(names.first));
    EXPECT_THAT(card_names(plans[1], offers), ElementsAre(names.second));
    EXPECT_EQ(plans[1].cards[0].why, "same NUMA node 1");
  }
}

TEST(AnOfferWithoutABusId, IsPlacedByItsInterfaceName) {
  const Topology machine = load_machine("two-nic-server");
  const auto plans = pair(machine, {offer("ens2np0"), offer("ens1np0")}, {});
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0].cards.at(0).offer, 1u);
  EXPECT_EQ(plans[1].cards.at(0).offer, 0u);
}

TEST(ACardOfUnknownNode, ServesEveryHostDeviceBesideTheCardsOfTheNode) {
  const Topology machine = bare_machine(2, 4);
  const auto plans = pair(machine, {offer("near", "", 0), offer("anywhere")}, {});
  ASSERT_EQ(plans.size(), 2u);
  ASSERT_EQ(plans[0].cards.size(), 2u);
  ASSERT_EQ(plans[1].cards.size(), 1u);
  EXPECT_EQ(plans[1].cards[0].offer, 1u);
  EXPECT_THAT(plans[1].cards[0].why, HasSubstr("unknown"));
}

TEST(ANodeWithoutCards, TakesThoseOfTheOtherNode) {
  const auto plans = pair(bare_machine(2, 4), {offer("a", "", 0), offer("b", "", 0)}, {});
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[1].cards.size(), 2u);
  EXPECT_EQ(plans[1].cards[0].why, "any card: none on NUMA node 1");
}

TEST(AMachineThatTellsNothing, StillHasOneHostDevice) {
  const auto plans = pair(Topology{}, {offer("lo")}, {});
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].name, "host0");
  EXPECT_EQ(plans[0].cards[0].why, "only card");
  EXPECT_FALSE(pair_devices(Topology{}, {}, {}).has_value()) << "no card at all";
}

TEST(AGpuOfUnknownNode, TakesItsPartOfAllCards) {
  Topology machine = bare_machine(2, 4);
  machine.devices = {gpu_at("0000:01:00.0", -1), gpu_at("0000:02:00.0", -1)};
  const std::vector<CardOffer> offers = {offer("a", "", 0), offer("b", "", 1)};
  const auto plans = pair(machine, offers, gpu_buses(machine));
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_THAT(card_names(plans[0], offers), ElementsAre("a"));
  EXPECT_THAT(card_names(plans[1], offers), ElementsAre("b"));
  EXPECT_THAT(plans[0].cards[0].why, HasSubstr("NUMA node is unknown"));
}

TEST(AGpuThatTheTopologyHides, IsServedWithAReasonWhenNoGpuIsShown) {
  const auto plans = pair(bare_machine(1, 2), {offer("a"), offer("b")}, {"0000:01:00.0"});
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].cards.size(), 2u);
  EXPECT_THAT(plans[0].cards[0].why, HasSubstr("does not show this GPU"));
}

TEST(FewerCardsThanGpus, AreSharedByNeighbours) {
  Topology machine = bare_machine(1, 8);
  const std::vector<Bridge> complex = {{"0000:[00-ff]", true}};
  for (int g = 0; g < 4; ++g)
    machine.devices.push_back(gpu_at(fmt::format("0000:{:02x}:00.0", g + 1), 0, complex));
  machine.devices.push_back(card_at("0000:11:00.0", 0, "a", complex));
  machine.devices.push_back(card_at("0000:12:00.0", 0, "b", complex));
  const auto offers = cards_in_topology(machine, "tcp");
  const auto plans = pair(machine, offers, gpu_buses(machine));
  ASSERT_EQ(plans.size(), 4u);
  for (int g = 0; g < 4; ++g)
    EXPECT_THAT(card_names(plans[g], offers), ElementsAre(g < 2 ? "a" : "b"));
  EXPECT_EQ(plans[0].cards[0].why,
            "same PCIe root complex 0000:[00-ff], shared: 4 GPUs on 2 cards");
}

TEST(FiveCardsForTwoGpus, AreAllGivenOutOnce) {
  Topology machine = bare_machine(1, 8);
  machine.devices = {gpu_at("0000:01:00.0", 0), gpu_at("0000:02:00.0", 0)};
  std::vector<CardOffer> offers;
  for (const char* name : {"a", "b", "c", "d", "e"}) offers.push_back(offer(name, "", 0));
  const auto plans = pair(machine, offers, gpu_buses(machine));
  EXPECT_EQ(plans.at(0).cards.size() + plans.at(1).cards.size(), 5u);
  EXPECT_THAT(card_names(plans[1], offers), ElementsAre("c", "d", "e"));
}

}  // namespace
}  // namespace penstock

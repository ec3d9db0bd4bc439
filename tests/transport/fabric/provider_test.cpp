#include "transport/fabric/provider.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "transport/fabric/interfaces.hpp"
#include "transport/fabric/provider_traits.hpp"

namespace penstock {
namespace {

using ::testing::HasSubstr;

InterfaceAddress made(const std::string& name, const std::string& address, bool up = true) {
  InterfaceAddress entry;
  entry.name = name;
  entry.address = address;
  entry.socket_address = parse_address(address).value();
  entry.up = up;
  entry.loopback = name == "lo";
  entry.ipv6 = entry.socket_address.ss_family == AF_INET6;
  entry.link_local = address.starts_with("fe80") || address.starts_with("169.254");
  return entry;
}

std::vector<std::string> names(const std::vector<InterfaceAddress>& all) {
  std::vector<std::string> result;
  for (const auto& each : all) result.push_back(each.name + " " + each.address);
  return result;
}

TEST(Interfaces, OnlyThoseWorthAdvertisingAreUsable) {
  const std::vector<InterfaceAddress> all = {
      made("lo", "127.0.0.1"),     made("docker0", "172.17.0.1"), made("eth1", "10.0.0.2", false),
      made("eth0", "fd00::1"),     made("eth0", "10.0.0.1"),      made("br0", "10.0.0.1"),
      made("eth2", "169.254.1.1"), made("eth0", "fe80::1"),       made("eth0:1", "10.0.0.9"),
      made("eth3", "fd00::3")};
  EXPECT_EQ(names(usable_addresses(all)),
            (std::vector<std::string>{"eth0 10.0.0.1", "eth3 fd00::3"}));
}

TEST(Interfaces, LoopbackIsTheLastResort) {
  EXPECT_EQ(names(usable_addresses({made("lo", "127.0.0.1"), made("eth0", "fe80::1")})),
            std::vector<std::string>{"lo 127.0.0.1"});
}

TEST(Interfaces, AConfiguredAddressWinsAndMustBeOnItsInterface) {
  const std::vector<InterfaceAddress> all = {made("lo", "127.0.0.1"), made("eth0", "10.0.0.1"),
                                             made("eth1", "10.0.1.1"),
                                             made("eth2", "10.0.2.1", false)};
  EXPECT_EQ(choose_address(all, "", "10.0.1.1")->name, "eth1");
  EXPECT_EQ(choose_address(all, "eth1", "")->address, "10.0.1.1");
  EXPECT_EQ(choose_address(all, "lo", "")->address, "127.0.0.1");
  EXPECT_EQ(choose_address(all, "", "")->name, "eth0");
  const auto absent = choose_address(all, "", "10.9.9.9");
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("eth1 10.0.1.1"));
  EXPECT_FALSE(choose_address(all, "eth0", "10.0.1.1"));
  EXPECT_THAT(choose_address(all, "", "10.0.2.1").error().message, HasSubstr("down"));
  EXPECT_FALSE(choose_address(all, "eth7", ""));
}

TEST(Interfaces, NumericAddressesParseAndNothingElse) {
  EXPECT_EQ(parse_address("10.1.2.3")->ss_family, AF_INET);
  EXPECT_EQ(parse_address("::1")->ss_family, AF_INET6);
  EXPECT_EQ(parse_address("[fd00::2]")->ss_family, AF_INET6);
  const auto zoned = parse_address("fe80::1%lo");
  ASSERT_TRUE(zoned);
  EXPECT_NE(reinterpret_cast<const sockaddr_in6&>(*zoned).sin6_scope_id, 0u);
  for (const auto* wrong : {"", "localhost", "10.1.2.3:80", "10.1.2", "[::1]:5", "fe80::1%nosuch",
                            "10.1.2.3%lo", "::1 "})
    EXPECT_FALSE(parse_address(wrong)) << wrong;
}

TEST(Providers, AnUnknownOneIsRefusedWithTheListOfKnownOnes) {
  const auto cards = list_cards("carrier-pigeon");
  ASSERT_FALSE(cards);
  EXPECT_EQ(cards.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(cards.error().message, HasSubstr("efa"));
}

TEST(Providers, OneThatIsAbsentHereIsNeverReplaced) {
  const auto cards = list_cards("efa");
  if (cards) GTEST_SKIP() << "there are efa cards here";
  EXPECT_EQ(cards.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(cards.error().message, HasSubstr("shm")) << "it lists what is offered";
  CardRequest request;
  request.provider = "efa";
  EXPECT_FALSE(open_card(request));
}

TEST(Providers, TcpOffersInterfacesAndShmOneCard) {
  const auto tcp = list_cards("tcp");
  ASSERT_TRUE(tcp) << tcp.error().message;
  EXPECT_FALSE(tcp->empty());
  for (const auto& card : *tcp) EXPECT_FALSE(card.address.empty());
  const auto shm = list_cards("shm");
  ASSERT_TRUE(shm) << shm.error().message;
  EXPECT_EQ(shm->size(), 1u);
}

TEST(Providers, ASourceAddressThatNoInterfaceHasIsRefused) {
  CardRequest request;
  request.address = "10.254.254.254";
  const auto nic = open_card(request);
  ASSERT_FALSE(nic);
  EXPECT_EQ(nic.error().code, ErrorCode::kNotFound);
  request.address = "127.0.0.1";
  EXPECT_TRUE(open_card(request));
  request.domain = "nosuch0";
  EXPECT_FALSE(open_card(request));
}

TEST(Providers, EveryRowOfTheTableIsComplete) {
  for (const auto& traits : known_providers()) {
    EXPECT_FALSE(traits.fabric_names.empty());
    EXPECT_FALSE(traits.notes.empty());
    EXPECT_NE(traits.memory_modes, 0u);
    EXPECT_EQ(traits_of(traits.name), &traits);
  }
}

}  // namespace
}  // namespace penstock

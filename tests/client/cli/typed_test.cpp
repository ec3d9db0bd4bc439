// What a user types means what it says, or is refused with words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "client/cli/page_list.hpp"
#include "client/cli/quantity.hpp"
#include "client/cli/transfer_arguments.hpp"
#include "client/cli/usage_error.hpp"

namespace penstock::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Sizes, UnitsArePowersOf1024) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("4096B"), 4096u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("64KiB"), 65536u);
  EXPECT_EQ(parse_bytes("64 kB"), 65536u);
  EXPECT_EQ(parse_bytes("1.5G"), std::uint64_t{3} << 29);
  EXPECT_EQ(parse_bytes("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(parse_bytes("16777215T"), std::uint64_t{16777215} << 40);
}

TEST(Sizes, WhatIsNoSizeIsRefused) {
  for (auto text : {"", "K", "-1", "1X", "1KK", "1.5", "0.3K", "1.2.3K", "16777216T", " 1",
                    "18446744073709551616", "99999999999999999999.5G", "0x10", "1e3"}) {
    EXPECT_THAT(refusal([&] { parse_bytes(text); }), HasSubstr("is no size")) << text;
  }
}

TEST(Durations, AreSecondsUnlessAUnitSaysOtherwise) {
  EXPECT_EQ(parse_duration_ms("60"), 60000u);
  EXPECT_EQ(parse_duration_ms("60s"), 60000u);
  EXPECT_EQ(parse_duration_ms("0.5s"), 500u);
  EXPECT_EQ(parse_duration_ms("1500ms"), 1500u);
  EXPECT_EQ(parse_duration_ms("2m"), 120000u);
  EXPECT_EQ(parse_duration_ms("1h"), 3600000u);
  for (auto text : {"", "s", "-1s", "1d", "1 s", "1.2.3s", "99999999999999999h"}) {
    EXPECT_THAT(refusal([&] { parse_duration_ms(text); }), HasSubstr("is no duration")) << text;
  }
}

TEST(Sizes, ReadBackWell) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(65536), "64.0 KiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16.0 EiB");
  EXPECT_EQ(format_gbps(1000000000, 1000000), "8.0");
  EXPECT_EQ(format_gbps(1, 0), "0.0");
  EXPECT_EQ(format_time_us(850), "850 us");
  EXPECT_EQ(format_time_us(12300), "12.3 ms");
  EXPECT_EQ(format_time_us(4560000), "4.56 s");
}

TEST(Numbers, DecimalAndHex) {
  EXPECT_EQ(parse_u64("0xff", "seed"), 255u);
  EXPECT_EQ(parse_u64("10", "seed"), 10u);
  EXPECT_THAT(refusal([] { parse_u64("1x", "seed"); }), HasSubstr("seed '1x'"));
  EXPECT_THAT(refusal([] { parse_u64("0x", "seed"); }), HasSubstr("seed"));
}

TEST(PageLists, IndexesAndRunsInBothDirections) {
  EXPECT_THAT(parse_page_list("0-3,12"), ElementsAre(0, 1, 2, 3, 12));
  EXPECT_THAT(parse_page_list("3-1"), ElementsAre(3, 2, 1));
  EXPECT_THAT(parse_page_list("7-7"), ElementsAre(7));
  EXPECT_THAT(parse_page_list("4294967294-4294967295"), ElementsAre(4294967294, 4294967295));
  EXPECT_THAT(parse_page_list("1 2\n# all of them\n3, # the third\n"), ElementsAre(1, 2, 3));
  EXPECT_THAT(parse_page_list(""), IsEmpty());
}

TEST(PageLists, WhatIsNoListIsRefused) {
  for (auto text : {"a", "1-", "-1", "1--2", "4294967296", "1;2", "1.5"}) {
    EXPECT_NE(refusal([&] { parse_page_list(text); }), "") << text;
  }
}

TEST(PageLists, ARunBeyondTheLimitIsRefusedBeforeItIsBuilt) {
  EXPECT_THAT(refusal([] { parse_page_list("0-4294967295"); }), HasSubstr("split it"));
}

TEST(PageLists, AnArgumentThatIsNoListNamesAFile) {
  auto path =
      std::filesystem::temp_directory_path() / ("penstock-pages-" + std::to_string(::getpid()));
  std::ofstream(path) << "5-6\n9\n";
  EXPECT_THAT(page_list_or_file(path), ElementsAre(5, 6, 9));
  std::filesystem::remove(path);
  EXPECT_THAT(refusal([&] { page_list_or_file(path); }), HasSubstr(path.string()));
}

TEST(RangeLists, ALineEach) {
  EXPECT_THAT(parse_ranges("0 4K 64\n\n# nothing\n1,2,3\n"),
              ElementsAre(client::Range{0, 4096, 64}, client::Range{1, 2, 3}));
  EXPECT_THAT(refusal([] { parse_ranges("1 2 3\n1 2\n"); }), HasSubstr("line 2"));
  EXPECT_THAT(refusal([] { parse_ranges("1 2 x\n"); }), HasSubstr("line 1"));
}

TEST(Targets, NodeAndRegion) {
  EXPECT_EQ(parse_target("n:r").node, "n");
  EXPECT_EQ(parse_target("n:r").region, "r");
  EXPECT_EQ(parse_target("r").node, "");
  EXPECT_EQ(parse_target(":r").region, "r");
  EXPECT_NE(refusal([] { parse_target("n:"); }), "");
  EXPECT_NE(refusal([] { parse_target("a:b:c"); }), "");
}

TEST(Bases, PairsOfOffsets) {
  EXPECT_THAT(parse_bases("0:0,1M:2"),
              ElementsAre(client::BasePair{0, 0}, client::BasePair{1 << 20, 2}));
  EXPECT_NE(refusal([] { parse_bases("1"); }), "");
  EXPECT_NE(refusal([] { parse_bases(""); }), "");
}

TransferArguments typed() {
  TransferArguments arguments;
  arguments.region = "a";
  arguments.targets = {"n:b"};
  return arguments;
}

TEST(TransferArguments, PagesGoToTheSamePagesUnlessToldOtherwise) {
  auto arguments = typed();
  arguments.pages = "0-2";
  arguments.page_bytes = "64K";
  arguments.deadline_s = 1.5;
  arguments.on = "c";
  ParsedTransfer parsed(arguments);
  EXPECT_EQ(parsed.spec().on, "c");
  const auto& pages = std::get<client::Pages>(parsed.spec().layout);
  EXPECT_EQ(pages.page_bytes, 65536u);
  EXPECT_THAT(pages.destination_pages, ElementsAre(0, 1, 2));
  EXPECT_EQ(parsed.spec().deadline_ms, 1500u);
  EXPECT_EQ(client::bytes_of(parsed.spec().layout), 3u * 65536);
}

TEST(TransferArguments, RowBytesMakeItStrided) {
  auto arguments = typed();
  arguments.pages = "0-1";
  arguments.row_bytes = "64";
  arguments.rows = 4;
  arguments.bases = "0:0,1K:1K";
  ParsedTransfer parsed(arguments);
  EXPECT_EQ(std::get<client::Strided>(parsed.spec().layout).rows, 4u);
  EXPECT_EQ(client::bytes_of(parsed.spec().layout), 2u * 2 * 4 * 64);
}

TEST(TransferArguments, WhatContradictsItselfIsRefused) {
  auto none = typed();
  EXPECT_THAT(refusal([&] { ParsedTransfer parsed(none); }), HasSubstr("what to move"));
  auto both = typed();
  both.ranges = "-";
  both.pages = "1";
  EXPECT_THAT(refusal([&] { ParsedTransfer parsed(both); }), HasSubstr("not both"));
  auto sizeless = typed();
  sizeless.pages = "1";
  EXPECT_THAT(refusal([&] { ParsedTransfer parsed(sizeless); }), HasSubstr("--page-bytes"));
  auto uneven = typed();
  uneven.pages = "1-2";
  uneven.destination_pages = "1";
  uneven.page_bytes = "1";
  EXPECT_THAT(refusal([&] { ParsedTransfer parsed(uneven); }), HasSubstr("as many of both"));
  auto endless = typed();
  endless.pages = "1";
  endless.page_bytes = "1";
  endless.deadline_s = 1e10;
  EXPECT_THAT(refusal([&] { ParsedTransfer parsed(endless); }), HasSubstr("--deadline"));
}

TEST(LayoutBytes, SaturateInsteadOfWrapping) {
  std::vector<std::uint32_t> two{0, 1};
  client::Pages pages{.page_bytes = UINT64_MAX, .source_pages = two, .destination_pages = two};
  EXPECT_EQ(client::bytes_of(pages), UINT64_MAX);
  EXPECT_EQ(client::bytes_of(client::Ranges{{{0, 0, UINT64_MAX}, {0, 0, 2}}}), UINT64_MAX);
  EXPECT_EQ(client::bytes_of(client::Ranges{}), 0u);
}

}  // namespace
}  // namespace penstock::cli

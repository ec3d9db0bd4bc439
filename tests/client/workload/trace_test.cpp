#include "client/workload/trace.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace penstock::workload {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<TraceRequest> read(const std::string& text) {
  std::istringstream input(text);
  TraceReader reader(input, "trace.jsonl");
  std::vector<TraceRequest> requests;
  while (auto request = reader.next()) requests.push_back(*request);
  return requests;
}

std::string error_of(const std::string& text) {
  try {
    read(text);
  } catch (const TraceError& error) {
    return error.what();
  }
  return "no error";
}

const std::string kGood =
    R"({"timestamp": 5, "input_length": 513, "output_length": 7, "hash_ids": [0, 9]})";

TEST(Trace, IsReadLineByLine) {
  auto requests = read(kGood + "\r\n\n" +
                       R"({"hash_ids":[18446744073709551615],"output_length":0,"extra":[1],)" +
                       R"("timestamp":5,"input_length":512})");
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].line, 1u);
  EXPECT_EQ(requests[0].timestamp_ms, 5u);
  EXPECT_EQ(requests[0].input_tokens, 513u);
  EXPECT_EQ(requests[0].output_tokens, 7u);
  EXPECT_THAT(requests[0].blocks, ElementsAre(0u, 9u));
  EXPECT_EQ(requests[1].line, 3u);
  EXPECT_THAT(requests[1].blocks, ElementsAre(UINT64_MAX));
}

TEST(Trace, LinesMayBeLongerThanTheBufferIsAtFirst) {
  for (std::size_t length = (16 << 10) - 3; length < (16 << 10) + 3; ++length) {
    std::string line = kGood;
    line.resize(length, ' ');
    EXPECT_EQ(read(line).size(), 1u) << length;
    EXPECT_EQ(read(fmt::format("{}\n{}\n", line, kGood)).size(), 2u) << length;
    EXPECT_EQ(read(fmt::format("{}{:40000}\n{}", line, "", line)).size(), 2u) << length;
  }
}

TEST(Trace, WithoutLinesHasNoRequest) {
  EXPECT_TRUE(read("").empty());
  EXPECT_TRUE(read("\n \n").empty());
}

TEST(Trace, ErrorNamesFileAndLine) {
  EXPECT_THAT(error_of(kGood + "\nnonsense\n"), HasSubstr("trace.jsonl:2: no JSON at byte"));
  EXPECT_THAT(error_of("\n\n[1]\n"), HasSubstr("trace.jsonl:3: found array"));
  EXPECT_THAT(error_of(kGood.substr(0, 40)), HasSubstr("trace.jsonl:1: no JSON"));
  EXPECT_THAT(error_of("14E229389"), HasSubstr("trace.jsonl:1: it holds a number"));
}

TEST(Trace, MissingFieldIsNamed) {
  EXPECT_THAT(error_of(R"({"timestamp": 0, "input_length": 0, "hash_ids": []})"),
              HasSubstr("trace.jsonl:1: the field \"output_length\" is missing"));
}

TEST(Trace, FieldOfWrongTypeIsNamed) {
  EXPECT_THAT(
      error_of(R"({"timestamp": -1, "input_length": 0, "output_length": 0, "hash_ids": []})"),
      HasSubstr("\"timestamp\" is -1; expected a whole number"));
  EXPECT_THAT(
      error_of(R"({"timestamp": 1.5, "input_length": 0, "output_length": 0, "hash_ids": []})"),
      HasSubstr("\"timestamp\" is 1.5"));
  EXPECT_THAT(
      error_of(R"({"timestamp": 0, "input_length": "9", "output_length": 0, "hash_ids": []})"),
      HasSubstr("\"input_length\" is string"));
  EXPECT_THAT(error_of(R"({"timestamp": 0, "input_length": 0, "output_length": 0, "hash_ids": 4})"),
              HasSubstr("\"hash_ids\" is number"));
  EXPECT_THAT(
      error_of(
          R"({"timestamp": 0, "input_length": 600, "output_length": 0, "hash_ids": [4, null]})"),
      HasSubstr("\"hash_ids\"[1] is null"));
}

TEST(Trace, NumberBeyondAllReasonIsRefused) {
  EXPECT_THAT(error_of(R"({"timestamp": 0, "input_length": 18446744073709551615,)"
                       R"( "output_length": 0, "hash_ids": []})"),
              HasSubstr("\"input_length\" is 18446744073709551615; at most"));
}

TEST(Trace, BlocksMustCoverTheInput) {
  EXPECT_THAT(
      error_of(R"({"timestamp": 0, "input_length": 513, "output_length": 0, "hash_ids": [1]})"),
      HasSubstr("\"hash_ids\" holds 1 ids; 513 input tokens make 2 blocks of 512"));
  EXPECT_THAT(
      error_of(R"({"timestamp": 0, "input_length": 1024, "output_length": 0, "hash_ids": [1, 1]})"),
      HasSubstr("\"hash_ids\" holds 1 twice"));
}

TEST(Trace, TimeMustNotRunBackwards) {
  EXPECT_THAT(
      error_of(kGood + '\n' +
               R"({"timestamp": 4, "input_length": 0, "output_length": 0, "hash_ids": []})"),
      HasSubstr("trace.jsonl:2: \"timestamp\" 4 is before"));
}

TEST(Trace, EndlessLineIsRefusedInsteadOfKept) {
  EXPECT_THAT(error_of(std::string(5 << 20, '7')), HasSubstr("trace.jsonl:1: the line is longer"));
}

TEST(Trace, FileThatIsNotThereIsNamed) {
  try {
    read_trace("/nonexistent/trace.jsonl", 0);
    FAIL();
  } catch (const TraceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent/trace.jsonl: cannot be opened: No such"));
  }
}

}  // namespace
}  // namespace penstock::workload

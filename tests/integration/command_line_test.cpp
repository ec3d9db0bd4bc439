// What `penstock` says, and how it ends, where somebody asks for what cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/integration/nodes.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  std::string how;  // "exited with 0"
  std::string said;
};

/// Runs `penstock` to its end.
Outcome penstock(const std::string& endpoint, std::vector<std::string> words) {
  app::TemporaryFolder folder;
  std::vector<std::string> argv{std::string(PENSTOCK_BIN_DIR) + "/penstock", "-e", endpoint};
  argv.insert(argv.end(), words.begin(), words.end());
  app::ChildProcess process(argv, folder.path() / "log");
  process.wait(30s);
  return {process.how_it_ended(), process.log_tail(1000)};
}

class CommandLine : public testing::Test {
 protected:
  void SetUp() override {
    nodes["a"].allocate("kv", 1 << 20, "", client::MapMemory::kNo).detach();
    nodes["b"].allocate("kv", 1 << 20, "", client::MapMemory::kNo).detach();
  }
  /// `transfer` of a page of a's region "kv".
  Outcome transfer(const std::string& to, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"transfer", "kv", "--to",         to,
                                   "--pages",  "0",  "--page-bytes", "4096"};
    words.insert(words.end(), more.begin(), more.end());
    return penstock(nodes.endpoint("a"), words);
  }
  /// The id of a transfer that is done.
  static std::uint64_t id_of(const Outcome& outcome) {
    EXPECT_EQ(outcome.how, "exited with 0") << outcome.said;
    const auto told = nlohmann::json::parse(outcome.said, nullptr, false);
    return told.is_discarded() ? 0 : told.at("transfers").at(0).at("id").get<std::uint64_t>();
  }

  Nodes nodes{{"a", "b"}};
};

TEST_F(CommandLine, CancelNamesTheIdsThatTheServiceDoesNotKnow) {
  const auto known = std::to_string(id_of(transfer("b:kv", {"--json"})));
  EXPECT_EQ(penstock(nodes.endpoint("a"), {"cancel", known}).how, "exited with 0");
  const auto outcome = penstock(nodes.endpoint("a"), {"cancel", "12345", known, "12346"});
  EXPECT_EQ(outcome.how, "exited with 1");
  EXPECT_THAT(outcome.said, AllOf(HasSubstr("no transfer 12345, 12346"),
                                  HasSubstr("penstock transfers"), Not(HasSubstr(known))));
}

TEST_F(CommandLine, AKeyIsOneTransferWhoeverRunsTheCommandUnderItsIdentity) {
  const auto asked = [&](const std::string& identity) {
    return id_of(transfer("b:kv", {"--json", "--identity", identity, "--key", "step-1"}));
  };
  const auto first = asked("job-7");
  EXPECT_EQ(asked("job-7"), first);
  EXPECT_NE(asked("job-8"), first);
}

TEST_F(CommandLine, AKeyOfNobodyIsAUsageError) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--key", "step-1"}, {"--key", "step-1", "--identity", ""}}) {
    const auto outcome = transfer("b:kv", more);
    EXPECT_EQ(outcome.how, "exited with 2") << outcome.said;
    EXPECT_THAT(outcome.said, HasSubstr("--identity"));
  }
}

TEST_F(CommandLine, ARefusalByTheOtherNodeNamesThatNode) {
  const auto outcome = transfer("b:kw");
  EXPECT_EQ(outcome.how, "exited with 4");
  EXPECT_THAT(outcome.said, HasSubstr("node 'b' refused: no region 'kw' here"));
}

TEST(CommandLineAlone, WhereNobodyListensItAsksWhetherTheServiceRuns) {
  app::TemporaryFolder folder;
  const auto outcome =
      penstock("ipc://" + (folder.path() / "nobody").string(), {"--timeout", "0.2", "status"});
  EXPECT_EQ(outcome.how, "exited with 3");
  EXPECT_THAT(outcome.said, HasSubstr("is penstockd running there"));
}

}  // namespace
}  // namespace penstock::integration

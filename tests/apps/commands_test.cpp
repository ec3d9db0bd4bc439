// demo, bench and replay as a user runs them: real services, small work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace penstock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Commands : public testing::Test {
 protected:
  void SetUp() override {
    auto pattern = (fs::temp_directory_path() / "commands-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::create_directory(folder_ / "tmp");
  }
  void TearDown() override {
    EXPECT_TRUE(fs::is_empty(folder_ / "tmp")) << "the command left files behind";
    fs::remove_all(folder_);
  }

  fs::path file(const std::string& name) const { return folder_ / name; }

  Outcome penstock(const std::string& arguments) const {
    auto command = "TMPDIR=" + file("tmp").string() + " " PENSTOCK_BIN_DIR "/penstock " +
                   arguments + " >" + file("out").string() + " 2>" + file("err").string();
    int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(file("out")),
            text_of(file("err"))};
  }

  /// Prompts that share their first block, grow, and come again; more blocks than a pool holds.
  std::string write_trace(int requests) const {
    auto path = file("trace.jsonl");
    std::ofstream trace(path);
    for (int i = 0; i < requests; ++i) {
      int blocks = 1 + i % 6;
      json ids = json::array({0});
      for (int block = 1; block < blocks; ++block) ids.push_back(10 * (i % 11) + block);
      trace << json{{"timestamp", 7 * i},
                    {"input_length", 512 * blocks - (i % 3) * 100},
                    {"output_length", 1},
                    {"hash_ids", ids}}
                   .dump()
            << '\n';
    }
    return path.string();
  }

  fs::path folder_;
};

// 2 KiB pages, 16 blocks to a pool.
const std::string kSmallPools =
    " --layers 1 --kv-heads 1 --head-size 64 --tensor-parallel 1 --page-tokens 16 --pool 2MiB "
    "--prefill-pool 2MiB";

TEST_F(Commands, DemoMovesPagesBothWaysAndVerifiesThem) {
  auto report_file = file("demo.json").string();
  auto outcome = penstock("demo --bytes 16MiB --rounds 1 --json " + report_file);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("a -> b"));
  EXPECT_THAT(outcome.out, HasSubstr("verified: 512 of 512 pages"));
  auto report = json::parse(text_of(report_file));
  EXPECT_EQ(report.at("verified"), true);
  EXPECT_GT(report.at("gbps"), 0);
  EXPECT_GT(report.at("ratio"), 0);
  for (const auto& direction : report.at("directions")) {
    EXPECT_EQ(direction.at("bytes"), 16 << 20);
    EXPECT_EQ(direction.at("cards").at(0).at("bytes"), 16 << 20);
  }
}

TEST_F(Commands, BenchMeasuresEachPageSizeBesideTheBareLoop) {
  auto outcome =
      penstock("bench --json --pages 64KiB,1MiB --bytes 8MiB --region 16MiB --pairs 1 --small 5");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  auto report = json::parse(outcome.out);
  ASSERT_EQ(report.at("results").size(), 4u);
  for (const auto& row : report.at("results")) {
    EXPECT_EQ(row.at("verified"), true);
    for (const char* key : {"gbps", "raw_gbps", "ratio", "writes_per_s", "raw_writes_per_s",
                            "cpu_s_per_gb", "raw_cpu_s_per_gb"}) {
      EXPECT_GT(row.at(key), 0) << key;
    }
  }
  EXPECT_EQ(report.at("results").at(0).at("page_bytes"), 65536);
  EXPECT_EQ(report.at("results").at(1).at("direction"), "read");
  EXPECT_EQ(report.at("small").at("count"), 5);
  for (const char* way : {"zmq", "ring", "ring_asleep"})
    for (const char* key : {"accepted", "accepted_alone", "done"})
      EXPECT_GT(report.at("submit").at(way).at(key).at("p50_us"), 0) << way << ' ' << key;
}

TEST_F(Commands, LadderClimbsEveryStepAndDrawsIt) {
  auto chart = file("ladder.svg");
  auto outcome =
      penstock("bench --ladder --json --pages 64KiB --bytes 1MiB --region 2MiB --pairs 1 --svg " +
               chart.string());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  auto report = json::parse(outcome.out);
  EXPECT_EQ(report.at("verified"), true);
  ASSERT_GE(report.at("steps").size(), 6u);
  EXPECT_EQ(report.at("steps").at(0).at("name"), "direct posting");
  for (const auto& step : report.at("steps")) {
    if (step.contains("skipped")) continue;
    EXPECT_GT(step.at("pages").at(0).at("gbps"), 0) << step;
    EXPECT_GT(step.at("first_us"), 0) << step;
  }
  EXPECT_THAT(text_of(chart), HasSubstr("operation queue"));
}

TEST_F(Commands, ReplayVerifiesEveryPageThatItMoves) {
  auto outcome = penstock("replay --json " + write_trace(60) + kSmallPools);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  auto report = json::parse(outcome.out);
  EXPECT_EQ(report.at("requests"), 60);
  EXPECT_EQ(report.at("verified"), true);
  EXPECT_GT(report.at("pages"), 0);
  EXPECT_EQ(report.at("verified_pages"), report.at("pages"));
  EXPECT_EQ(report.at("bytes"), report.at("pages").get<std::uint64_t>() * 2048);
  EXPECT_GT(report.at("decoder_hits"), 0);
  EXPECT_GT(report.at("decoder_evictions"), 0);
}

TEST_F(Commands, ReplayFindsAPageThatWasCorrupted) {
  auto outcome = penstock("replay --json --corrupt-one " + write_trace(20) + kSmallPools);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("different: request on line"));
  auto report = json::parse(outcome.out);
  EXPECT_EQ(report.at("verified"), false);
  EXPECT_EQ(report.at("different_pages"), 1);
}

TEST_F(Commands, ReplayNamesTheLineThatIsNoRequest) {
  auto path = write_trace(2);
  std::ofstream(path, std::ios::app) << "{}\n";
  auto outcome = penstock("replay " + path + kSmallPools);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("trace.jsonl:3: the field \"timestamp\" is missing"));
}

TEST_F(Commands, ReplaySaysWhenAPoolCannotHoldARequest) {
  auto outcome = penstock("replay " + write_trace(6) +
                          " --layers 1 --kv-heads 1 --head-size 64 --tensor-parallel 1 "
                          "--page-tokens 16 --pool 256KiB --prefill-pool 2MiB");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("the smaller pool has 64 pages"));
}

TEST_F(Commands, TopologyOfASavedMachineIsForTheGpusAndCpusNamed) {
  const std::string machine = "topology --json --xml " PENSTOCK_TOPOLOGY_DIR "/p5.48xlarge.xml";
  auto outcome = penstock(machine + " --provider efa --gpus 97:00.0,53:00.0 --cpus 5,6,50");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  auto devices = json::parse(outcome.out).at("devices");
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].at("name"), "gpu0");
  EXPECT_EQ(devices[0].at("poller_cpu"), 5);
  EXPECT_EQ(devices[1].at("name"), "gpu4");
  EXPECT_EQ(devices[1].at("poller_cpu"), 50);
  EXPECT_EQ(devices[1].at("cards").size(), 4u);
  auto hosts = penstock(machine + " --provider efa --gpus none");
  EXPECT_EQ(json::parse(hosts.out).at("devices").at(0).at("name"), "host0");
  EXPECT_EQ(penstock(machine + " --provider efa --cpus 4096").exit_code, 1);
}

TEST_F(Commands, ProviderThatIsNotThereIsAnError) {
  auto outcome = penstock("demo --bytes 1MiB --provider carrier-pigeon");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("carrier-pigeon"));
}

}  // namespace
}  // namespace penstock

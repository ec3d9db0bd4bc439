#include "actors/settings/settings.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "actors/settings/field.hpp"

namespace penstock {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

const std::filesystem::path kSample = std::filesystem::path(PENSTOCK_CONFIG_DIR) / "penstockd.yaml";
const std::filesystem::path kNoFile;

class ConfigurationFile : public testing::Test {
 protected:
  ~ConfigurationFile() override { std::filesystem::remove(path_); }

  Result<Settings> load(const std::string& text, const std::vector<std::string>& overrides = {},
                        const Environment& environment = {}) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
    return load_settings(path_, overrides, environment);
  }

  Settings accepted(const std::string& text) {
    const auto settings = load(text);
    EXPECT_TRUE(settings.has_value()) << settings.error().message;
    return settings.value_or(Settings{});
  }

  /// The error's words after the file's name.
  std::string error_of(const std::string& text) {
    const auto settings = load(text);
    if (settings) return "accepted";
    EXPECT_EQ(settings.error().code, ErrorCode::kInvalidArgument);
    const std::string& message = settings.error().message;
    EXPECT_THAT(message, testing::StartsWith(path_.string() + ":"));
    return message.substr(std::min(message.size(), path_.string().size() + 1));
  }

  std::filesystem::path path_ =
      testing::TempDir() + "settings-" + std::to_string(getpid()) + ".yaml";
};

std::string error_of_option(const std::string& option) {
  const auto settings = load_settings(kNoFile, {option}, {});
  return settings ? "accepted" : settings.error().message;
}

std::string error_of_variable(const std::string& name, const std::string& text) {
  const auto settings = load_settings(kNoFile, {}, {{name, text}});
  return settings ? "accepted" : settings.error().message;
}

// -- the sample ----------------------------------------------------------------------------------

TEST(TheSample, LoadsAndSaysTheDefaults) {
  const auto sample = load_settings(kSample, {}, {});
  ASSERT_TRUE(sample.has_value()) << sample.error().message;
  Settings defaults;
  defaults.node.name = sample->node.name;  // the host name
  EXPECT_EQ(*sample, defaults);
}

TEST(TheSample, SetsEveryKeyThereIs) {
  std::ifstream in(kSample);
  std::string section, line;
  std::vector<std::string> keys;
  while (std::getline(in, line)) {
    const std::size_t begin = line.find_first_not_of(' ');
    const std::size_t colon = line.find(':');
    if (begin == std::string::npos || line[begin] == '#' || colon == std::string::npos) continue;
    if (begin == 0)
      section = line.substr(0, colon);
    else
      keys.push_back(section + "." + line.substr(begin, colon - begin));
  }
  EXPECT_THAT(keys, testing::UnorderedElementsAreArray(setting_keys()));
}

TEST(TheNodeName, IsTheHostNameUnlessSet) {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  EXPECT_EQ(load_settings(kNoFile, {}, {}).value().node.name, host);
  EXPECT_EQ(load_settings(kNoFile, {"node.name=a-1.x_Y"}, {}).value().node.name, "a-1.x_Y");
  EXPECT_THAT(error_of_option("node.name=a b"), HasSubstr("node.name"));
  EXPECT_THAT(error_of_option("node.name=" + std::string(65, 'a')), HasSubstr("1 to 64"));
}

// -- values --------------------------------------------------------------------------------------

TEST_F(ConfigurationFile, SetsWhatItNamesAndLeavesTheRest) {
  const Settings settings = accepted(R"(
request:
  bind: ["tcp://[::1]:0", ipc:///run/penstock.sock]
  max_request_bytes: 1MiB
gossip:
  advertise: fe80::1%eth0
  members: [tcp://node-b:7412]
fabric:
  cards: [{domain: eth0}, {address: 10.0.0.7, device: host1}]
  merge: false
devices:
  pollers: 2
  cpus: [2, 3]
  gpus: [53:00.0, "0000:64:00.0"]
  override: {gpu0: [rdmap79s0, rdmap80s0]}
timeouts:
  fence_ms: 10
limits:
log:
  level: debug
)");
  EXPECT_THAT(settings.request.bind, ElementsAre("tcp://[::1]:0", "ipc:///run/penstock.sock"));
  EXPECT_EQ(settings.request.max_request_bytes, kMib);
  EXPECT_EQ(settings.request.events_kept, RequestSettings{}.events_kept);
  EXPECT_EQ(settings.gossip.advertise, "fe80::1%eth0");
  EXPECT_THAT(settings.fabric.cards,
              ElementsAre(CardSettings{"eth0", "", ""}, CardSettings{"", "10.0.0.7", "host1"}));
  EXPECT_FALSE(settings.fabric.merge);
  EXPECT_EQ(settings.devices.pollers, 2u);
  EXPECT_THAT(settings.devices.cpus, ElementsAre(2, 3));
  EXPECT_EQ(settings.devices.gpu_choice, GpuChoice::kListed);
  EXPECT_THAT(settings.devices.gpus, ElementsAre("0000:53:00.0", "0000:64:00.0"));
  EXPECT_EQ(settings.devices.overrides, (PairingOverride{{"gpu0", {"rdmap79s0", "rdmap80s0"}}}));
  EXPECT_EQ(settings.timeouts.fence, milliseconds(10));
  EXPECT_EQ(settings.log.level, "debug");
}

TEST_F(ConfigurationFile, LabelsAreNamesWithValues) {
  const Settings settings = accepted("node:\n  labels: {rack: r7, zone: a}\n");
  EXPECT_EQ(settings.node.labels,
            (std::map<std::string, std::string>{{"rack", "r7"}, {"zone", "a"}}));
  EXPECT_THAT(error_of("node:\n  labels: [a]\n"), HasSubstr("2: node.labels"));
  EXPECT_THAT(error_of("node:\n  labels: {rack: " + std::string(64, 'x') + "}\n"),
              HasSubstr("63 characters"));
}

TEST_F(ConfigurationFile, IsOverriddenByTheEnvironmentAndThatByFlags) {
  const std::string text = "log: {level: debug}\ncaf: {threads: 2}\nlimits: {regions: 3}\n";
  const auto settings =
      load(text, {"log.level=error"},
           {{"PENSTOCK_LOG_LEVEL", "warn"}, {"PENSTOCK_CAF_THREADS", "4"}, {"HOME", "/root"}});
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  EXPECT_EQ(settings->log.level, "error");
  EXPECT_EQ(settings->caf.threads, 4u);
  EXPECT_EQ(settings->limits.regions, 3u);
}

TEST(HugePagesOfRegions, AreAutoNeverOrAlways) {
  for (const auto& [word, choice] : {std::pair{"auto", HugePages::kAuto},
                                     {"never", HugePages::kNever},
                                     {"always", HugePages::kAlways}}) {
    const auto settings = load_settings(kNoFile, {std::string("memory.huge_pages=") + word}, {});
    ASSERT_TRUE(settings.has_value()) << settings.error().message;
    EXPECT_EQ(settings->memory.huge_pages, choice);
  }
  EXPECT_THAT(error_of_option("memory.huge_pages=yes"), HasSubstr("memory.huge_pages"));
}

TEST(TextOutsideAFile, NeedsNoQuotesAndListsMayBeCommaSeparated) {
  const auto settings = load_settings(
      kNoFile,
      {"gossip.bind=tcp://*:7412", "log.file=", "devices.override={gpu0: [a, b]}",
       "devices.gpus=none", "request.bind=[tcp://127.0.0.1:1]", "security.insecure=true"},
      {{"PENSTOCK_GOSSIP_MEMBERS", "tcp://a:1, tcp://[::1]:2"}, {"PENSTOCK_GOSSIP_ADVERTISE", ""}});
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  EXPECT_EQ(settings->gossip.bind, "tcp://*:7412");
  EXPECT_THAT(settings->gossip.members, ElementsAre("tcp://a:1", "tcp://[::1]:2"));
  EXPECT_EQ(settings->devices.gpu_choice, GpuChoice::kNone);
  EXPECT_EQ(settings->devices.overrides.at("gpu0").size(), 2u);
}

TEST(TheEnvironmentOfTheProcess, IsReadByDefault) {
  setenv("PENSTOCK_LOG_JSON", "true", 1);
  const auto settings = load_settings(kNoFile);
  unsetenv("PENSTOCK_LOG_JSON");
  ASSERT_TRUE(settings.has_value()) << settings.error().message;
  EXPECT_TRUE(settings->log.json);
}

// -- errors: each names the line, the key, and what is wanted ------------------------------------

TEST_F(ConfigurationFile, UnknownKeyIsNamedWithTheNearest) {
  EXPECT_EQ(error_of("request:\n  bind: [tcp://*:1]\n  event_kept: 5\n"),
            "3: request.event_kept: unknown key; did you mean request.events_kept?");
  EXPECT_EQ(error_of("log:\n  fence_ms: 5\n"),
            "2: log.fence_ms: unknown key; did you mean timeouts.fence_ms?");
  EXPECT_EQ(error_of("log:\n  colour_of_the_sky: blue\n"), "2: log.colour_of_the_sky: unknown key");
  EXPECT_EQ(error_of("\nfabrik: {}\n"), "2: fabrik: unknown section; did you mean fabric?");
  EXPECT_EQ(error_of("fabric:\n  cards:\n    - domain: eth0\n      adress: 1.2.3.4\n"),
            "4: fabric.cards[0].adress: unknown key; a card has domain, address and device");
}

TEST_F(ConfigurationFile, WrongTypeIsNamedWithWhatIsWanted) {
  EXPECT_EQ(error_of("limits:\n  regions: many\n"),
            "2: limits.regions: found 'many', wanted a whole number from 1 to 16777216");
  EXPECT_THAT(error_of("limits:\n  regions: 1.5\n"), HasSubstr("2: limits.regions: found '1.5'"));
  EXPECT_THAT(error_of("limits:\n  regions: -1\n"), HasSubstr("found '-1'"));
  EXPECT_EQ(error_of("log:\n  json: yes\n"), "2: log.json: found 'yes', wanted true or false");
  EXPECT_EQ(error_of("log:\n  level: [info]\n"), "2: log.level: found a list, wanted text");
  EXPECT_THAT(error_of("log:\n  level: inf\n"), EndsWith("did you mean info?"));
  EXPECT_EQ(error_of("request:\n  bind: tcp://127.0.0.1:1\n"),
            "2: request.bind: found 'tcp://127.0.0.1:1', wanted a list such as [a, b]");
  EXPECT_THAT(error_of("request:\n  max_request_bytes: 64 MB\n"),
              HasSubstr("found '64 MB', wanted a size such as 65536 or 64 KiB"));
  EXPECT_EQ(error_of("log: info\n"), "1: log: found 'info', wanted a map of keys");
  EXPECT_THAT(error_of("- a\n- b\n"), HasSubstr("wanted sections"));
  EXPECT_THAT(error_of("devices:\n  pollers: all\n"), HasSubstr("wanted auto or 1 to 1024"));
  EXPECT_THAT(error_of("devices:\n  gpus: [zero]\n"), HasSubstr("2: devices.gpus[0]: 'zero'"));
  EXPECT_THAT(error_of("devices:\n  override: {card0: [a]}\n"),
              HasSubstr("'card0' is not a device"));
}

TEST_F(ConfigurationFile, ValueOutOfRangeIsNamedWithTheRange) {
  EXPECT_EQ(error_of("caf:\n  threads: 9\n"), "2: caf.threads: found '9', wanted auto or 1 to 8");
  EXPECT_EQ(error_of("limits:\n  regions: 0\n"),
            "2: limits.regions: 0 is out of range, wanted 1 to 16777216");
  EXPECT_THAT(error_of("limits:\n  regions: 99999999999999999999999\n"),
              HasSubstr("is out of range"));
  EXPECT_THAT(error_of("limits:\n  region_bytes: 99999999999 TiB\n"), HasSubstr("out of range"));
  EXPECT_THAT(error_of("request:\n  max_request_bytes: 1\n"), HasSubstr("wanted 4096 to"));
  EXPECT_THAT(error_of("gossip:\n  bind: tcp://127.0.0.1:65536\n"), HasSubstr("from 0 to 65535"));
}

TEST_F(ConfigurationFile, ValuesThatContradictEachOtherAreNamedTogether) {
  EXPECT_EQ(error_of("fabric:\n  max_chunk_bytes: 9 MiB\n"),
            "2: fabric.max_chunk_bytes 9437184 is more than fabric.link_window_bytes 8388608");
  EXPECT_THAT(error_of("timeouts:\n  grace_max_ms: 1\n"),
              HasSubstr("2: timeouts.grace_min_ms 250 is more than timeouts.grace_max_ms 1"));
  EXPECT_THAT(error_of("gossip:\n  probe_timeout_ms: 201\n"), HasSubstr("gossip.period_ms 200"));
  EXPECT_THAT(error_of("gossip:\n  period_ms: 1001\n"), HasSubstr("gossip.suspicion_ms 1000"));
}

TEST_F(ConfigurationFile, HostWithAPortInsideIsRefusedWhereOnlyAHostIsWanted) {
  for (const char* text : {"10.0.0.7:7412", "node-a:7412", "\"[::1]:7412\""})
    EXPECT_THAT(error_of(std::string("gossip:\n  advertise: ") + text + "\n"),
                AllOf(HasSubstr("2: gossip.advertise: "), HasSubstr("has a port inside")))
        << text;
  EXPECT_THAT(error_of("gossip:\n  advertise: tcp://10.0.0.7:7412\n"), HasSubstr("only a host"));
  EXPECT_THAT(error_of("fabric:\n  cards: [{address: 10.0.0.7:1}]\n"),
              AllOf(HasSubstr("2: fabric.cards[0].address: "), HasSubstr("has a port inside")));
  EXPECT_THAT(error_of("fabric:\n  cards: [{address: node-a}]\n"), HasSubstr("numeric"));
}

TEST_F(ConfigurationFile, WhatIsNoPowerOfTwoIsRefused) {
  EXPECT_THAT(error_of("request:\n  ring_bytes: 100000\n"),
              HasSubstr("2: request.ring_bytes: found"));
  EXPECT_THAT(error_of("request:\n  ring_bytes: 100000\n"), HasSubstr("wanted a power of two"));
}

TEST_F(ConfigurationFile, EmptyValueIsRefused) {
  EXPECT_EQ(error_of("log:\n  level:\n"), "2: log.level: empty value");
  EXPECT_EQ(error_of("log:\n  level: \"\"\n"), "2: log.level: empty value");
  EXPECT_THAT(error_of("log:\n  file:\n"), HasSubstr("2: log.file: empty value"));
  EXPECT_THAT(error_of("gossip:\n  members:\n"), HasSubstr("2: gossip.members: empty value"));
  EXPECT_THAT(error_of("gossip:\n  members: [\"\"]\n"),
              HasSubstr("2: gossip.members[0]: empty value"));
  EXPECT_THAT(error_of("request:\n  bind: []\n"), HasSubstr("2: request.bind: an empty list"));
  EXPECT_THAT(error_of("fabric:\n  cards: [{}]\n"), HasSubstr("needs a domain or an address"));
  EXPECT_THAT(error_of("devices:\n  override:\n"), HasSubstr("2: devices.override: empty value"));
  EXPECT_THAT(error_of("devices:\n  gpus:\n"), HasSubstr("2: devices.gpus: empty value"));
}

TEST_F(ConfigurationFile, DuplicateIsRefused) {
  EXPECT_EQ(error_of("log:\n  level: info\n  json: true\n  level: warn\n"),
            "4: log.level: duplicate key");
  EXPECT_EQ(error_of("log: {}\ncaf: {}\nlog: {}\n"), "3: log: duplicate key");
  EXPECT_EQ(error_of("request:\n  bind:\n    - tcp://*:1\n    - tcp://*:1\n"),
            "4: request.bind[1]: 'tcp://*:1' is given twice");
  EXPECT_THAT(error_of("fabric:\n  cards: [{domain: a, domain: b}]\n"),
              HasSubstr("fabric.cards[0].domain: duplicate key"));
}

TEST_F(ConfigurationFile, EndpointThatNobodyCanUseIsRefused) {
  for (const char* text :
       {"tcp://", "tcp://:1", "tcp://a", "tcp://a:", "tcp://a:x", "tcp://::1:5", "tcp://[::1]",
        "tcp://300.1.1.1:5", "udp://a:1", "a:1", "ipc://", "inproc://x", "tcp://a b:1"})
    EXPECT_THAT(error_of(std::string("request:\n  bind: [\"") + text + "\"]\n"),
                HasSubstr("2: request.bind[0]: "))
        << text;
  for (const char* text : {"tcp://*:7412", "tcp://0.0.0.0:7412", "tcp://a:0", "ipc:///x"})
    EXPECT_THAT(error_of(std::string("gossip:\n  members: [\"") + text + "\"]\n"),
                HasSubstr("2: gossip.members[0]: "))
        << text;
}

TEST_F(ConfigurationFile, ThatIsNotYamlIsAnErrorWithItsLine) {
  EXPECT_THAT(error_of("log:\n  level: [info\n"), HasSubstr("not YAML"));
  EXPECT_THAT(error_of("log: {}\n\tcaf: {}\n"), HasSubstr("not YAML"));
  EXPECT_THAT(error_of("request:\n  bind: [*nobody]\n"), HasSubstr("2: not YAML"));
  EXPECT_THAT(error_of(std::string(100000, '[')), HasSubstr("not YAML"));
  EXPECT_THAT(error_of("log: {}\n---\nlog: {}\n"), HasSubstr("several YAML documents"));
  // yaml-cpp finds documents without end behind the comma.
  EXPECT_THAT(error_of("{},\n"), HasSubstr("comma behind its end"));
  EXPECT_EQ(accepted("# nothing\n").log, LogSettings{});
}

TEST(AConfigurationFile, ThatIsMissingOrNoFileIsAnErrorWithItsPath) {
  const auto missing = load_settings("/nonexistent/penstockd.yaml", {}, {});
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("/nonexistent/penstockd.yaml"));
  EXPECT_FALSE(load_settings(testing::TempDir(), {}, {}).has_value());
}

TEST(AFlag, ThatIsWrongNamesItself) {
  EXPECT_EQ(error_of_option("log.levle=info"),
            "--set: log.levle: unknown key; did you mean log.level?");
  EXPECT_THAT(error_of_option("log.level"), HasSubstr("wanted section.key=value"));
  EXPECT_THAT(error_of_option("=x"), HasSubstr("wanted section.key=value"));
  EXPECT_THAT(error_of_option("caf.threads=x"), HasSubstr("--set: caf.threads: found"));
  EXPECT_THAT(error_of_option("request.bind=[a"), HasSubstr("--set: request.bind: not YAML"));
  EXPECT_THAT(error_of_option("log.level="), HasSubstr("empty value"));
  EXPECT_THAT(error_of_option("request.bind="), HasSubstr("empty value"));
}

TEST(AVariable, ThatIsWrongNamesItself) {
  EXPECT_THAT(error_of_variable("PENSTOCK_CAF_THREADS", "x"),
              HasSubstr("environment PENSTOCK_CAF_THREADS: caf.threads: found 'x'"));
  EXPECT_THAT(error_of_variable("PENSTOCK_LOG_LEVEL", ""), HasSubstr("empty value"));
  EXPECT_EQ(error_of_variable("PENSTOCK_LOG_LEVLE", "info"),
            "environment PENSTOCK_LOG_LEVLE: unknown key; did you mean PENSTOCK_LOG_LEVEL?");
}

TEST(AVariable, OfAnotherProgramWithOurPrefixDoesNoHarm) {
  EXPECT_EQ(error_of_variable("PENSTOCK_ENDPOINT", "tcp://a:1"), "accepted");
  EXPECT_EQ(error_of_variable("PENSTOCK_NODE_SERVICE_HOST", "10.0.0.1"), "accepted");
  EXPECT_EQ(error_of_variable("PENSTOCK_NODE_PORT_7411_TCP", "tcp://10.0.0.1:7411"), "accepted");
}

TEST(TheMetricsEndpoint, IsAnHttpAddressOrAWord) {
  for (const char* good : {"auto", "off", "http://127.0.0.1:0", "http://[::1]:7413"})
    EXPECT_EQ(error_of_option(std::string("metrics.endpoint=") + good), "accepted") << good;
  for (const char* bad : {"7413", "tcp://127.0.0.1:7413", "http://127.0.0.1", "http://:7413"})
    EXPECT_THAT(error_of_option(std::string("metrics.endpoint=") + bad), HasSubstr("wanted auto"))
        << bad;
}

TEST(TheMetricsEndpoint, NeedsAPasswordWhereOtherMachinesReachIt) {
  const std::string open = "metrics.endpoint=http://*:7413";
  EXPECT_THAT(error_of_option(open), HasSubstr("metrics.password_file"));
  EXPECT_TRUE(load_settings(kNoFile, {open, "metrics.password_file=/a/file"}, {}));
  EXPECT_TRUE(load_settings(kNoFile, {open, "security.insecure=true"}, {}));
}

TEST(CafThreads, FollowTheCoresUnlessSet) {
  EXPECT_EQ(caf_threads({}, 2), 1u);
  EXPECT_EQ(caf_threads({}, 0), 1u);
  EXPECT_EQ(caf_threads({}, 32), 4u);
  EXPECT_EQ(caf_threads({}, 192), 8u);
  EXPECT_EQ(caf_threads({3, {}}, 192), 3u);
}

TEST(CafSpin, IsForMachinesWithCoresToSpareUnlessSet) {
  using namespace std::chrono_literals;
  EXPECT_EQ(caf_spin({}, 2), 0us);
  EXPECT_EQ(caf_spin({}, 16), 50us);
  for (const auto& [text, spin] : {std::pair{"auto", caf_spin({}, 2)}, {"0", 0us}, {"70", 70us}}) {
    const auto settings = load_settings(kNoFile, {std::string("caf.spin_us=") + text}, {});
    ASSERT_TRUE(settings);
    EXPECT_EQ(caf_spin(settings->caf, 2), spin) << text;
  }
  EXPECT_THAT(error_of_option("caf.spin_us=x"), HasSubstr("auto or 0 to 1000000"));
}

TEST(Spin, IsLongerThanASmallTransferWhereCoresAreToSpareUnlessSet) {
  using namespace std::chrono_literals;
  EXPECT_EQ(spin_of(std::nullopt, 2), 50us);
  EXPECT_EQ(spin_of(std::nullopt, 16), 500us);
  const auto settings = load_settings(kNoFile, {"fabric.spin_us=70", "request.ring_spin_us=0"}, {});
  ASSERT_TRUE(settings);
  EXPECT_EQ(spin_of(settings->fabric.spin, 16), 70us);
  EXPECT_EQ(spin_of(settings->request.ring_spin, 16), 0us);
  const auto automatic =
      load_settings(kNoFile, {"fabric.spin_us=auto", "request.ring_spin_us=auto"}, {});
  ASSERT_TRUE(automatic);
  EXPECT_EQ(automatic->fabric.spin, std::nullopt);
  EXPECT_EQ(automatic->request.ring_spin, std::nullopt);
}

}  // namespace
}  // namespace penstock

#include "transport/topology/topology.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/transport/topology/machines.hpp"
#include "transport/topology/bus_id.hpp"
#include "transport/topology/hwloc_reader.hpp"

namespace penstock {
namespace {

using testing::HasSubstr;

std::string text_of(const std::string& machine) {
  std::ifstream in(path_of(machine), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A file that is gone when the test is.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(testing::TempDir() + "topology-" + std::to_string(getpid()) + ".xml") {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(ThisMachine, HasCoresThatTheProcessMayUse) {
  const auto topology = Topology::discover();
  ASSERT_TRUE(topology.has_value()) << topology.error().message;
  const auto allowed = process_cpus();
  ASSERT_FALSE(topology->cores.empty());
  for (int cpu : topology->allowed_cpus()) EXPECT_THAT(allowed, testing::Contains(cpu));
}

TEST(ThisMachine, IsNotReplacedByAFileInTheEnvironment) {
  setenv("HWLOC_XMLFILE", path_of("p5.48xlarge").c_str(), 1);
  const auto topology = Topology::discover();
  unsetenv("HWLOC_XMLFILE");
  ASSERT_FALSE(topology.has_value());
  EXPECT_THAT(topology.error().message, HasSubstr("HWLOC_XMLFILE"));
}

TEST(SavedP5, HasTheMachinesNodesCoresGpusAndCards) {
  const Topology p5 = load_machine("p5.48xlarge");
  EXPECT_EQ(p5.machine, "p5.48xlarge");
  ASSERT_EQ(p5.numa_nodes.size(), 2u);
  ASSERT_EQ(p5.cores.size(), 96u);
  for (int core = 0; core < 96; ++core) {
    EXPECT_EQ(p5.cores[core].numa_node, core / 48);
    EXPECT_EQ(p5.cores[core].cpus, (std::vector{core, core + 96}));
  }
  EXPECT_THAT(gpu_buses(p5),
              testing::ElementsAre("0000:53:00.0", "0000:64:00.0", "0000:75:00.0", "0000:86:00.0",
                                   "0000:97:00.0", "0000:a8:00.0", "0000:b9:00.0", "0000:ca:00.0"));
  EXPECT_EQ(p5.network_cards().size(), 33u) << "32 EFA cards and the ENA card";
}

TEST(SavedP5, ShowsTheBridgesAboveADeviceTheNearestFirst) {
  const Topology p5 = load_machine("p5.48xlarge");
  const IoDevice* gpu = p5.find_bus("0000:53:00.0");
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(gpu->bridges, (std::vector<Bridge>{{"0000:46:04.0", false},
                                               {"0000:45:00.0", false},
                                               {"0000:44:00.0", false},
                                               {"0000:[44-54]", true}}));
}

TEST(EveryShippedFile, LoadsAndTellsAnEfaCardFromTheEnaBesideIt) {
  for (const char* machine : {"p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"}) {
    const Topology topology = load_machine(machine);
    int ena = 0;
    for (const IoDevice& card : topology.network_cards())
      if (!card.is_efa()) ++ena;
    EXPECT_EQ(ena, 1) << machine;
  }
  EXPECT_EQ(load_machine("two-nic-server").network_cards().size(), 2u);
}

TEST(ATopologyFile, ThatIsMissingEmptyOrAFolderIsAnErrorWithItsPath) {
  const auto missing = Topology::from_xml("/nonexistent/p5.xml");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("/nonexistent/p5.xml"));
  EXPECT_FALSE(Topology::from_xml(testing::TempDir()).has_value());
  const TemporaryFile empty("");
  EXPECT_FALSE(Topology::from_xml(empty.path()).has_value());
}

TEST(ATopologyFile, ThatIsNotHwlocXmlIsAnErrorThatSaysWhatToDo) {
  for (const std::string text :
       {"<html></html>", "not xml at all", "<topology version=\"2.0\">",
        "<topology version=\"2.0\"><object type=\"Machine\"/></topology>"}) {
    const TemporaryFile file(text);
    const auto topology = Topology::from_xml(file.path());
    ASSERT_FALSE(topology.has_value()) << text;
    EXPECT_EQ(topology.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(topology.error().message, HasSubstr(file.path()));
    EXPECT_THAT(topology.error().message, HasSubstr("lstopo"));
  }
}

std::string damaged(std::string text, unsigned seed) {
  std::mt19937 random(seed);
  for (unsigned edits = 1 + random() % 6; edits > 0; --edits) {
    const std::size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, random() % 40);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), random() % 200));
        break;
      default:
        text.resize(at + 1);
    }
  }
  return text;
}

// hwloc's parser itself dies of about one in ten of these.
TEST(ATopologyFile, ThatIsDamagedNeverCostsMoreThanAnError) {
  const std::string sound = text_of("two-nic-server");
  int refused = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const auto topology = read_xml_isolated(damaged(sound, seed));
    if (topology)
      EXPECT_FALSE(topology->cores.empty()) << "seed " << seed;
    else
      ++refused;
  }
  EXPECT_GT(refused, 100);
}

TEST(AllowedCpus, CanBeNarrowedButNotToNothing) {
  Topology p5 = load_machine("p5.48xlarge");
  ASSERT_TRUE(p5.allow_only({143, 60}).has_value());
  EXPECT_EQ(p5.allowed_cpus(), (std::vector{60, 143}));
  EXPECT_EQ(p5.cores.size(), 2u);
  const auto none = p5.allow_only({5});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(p5.cores.size(), 2u);
}

TEST(BusIds, InEverySpellingBecomeOne) {
  for (const char* text : {"4f:00.0", "4F:00.0", "0000:4f:00.0", "00000000:4F:00.0", "0:4f:0.0"})
    EXPECT_EQ(normal_bus_id(text).value_or("refused"), "0000:4f:00.0") << text;
  EXPECT_EQ(normal_bus_id("10000:e1:1f.7").value_or("refused"), "10000:e1:1f.7");
}

TEST(BusIds, ThatAreBrokenAreRefused) {
  for (const char* text :
       {"", ":", "4f", "4f:00", "4f.0", "4f:00.", "4f:00.8", "4f:20.0", "1ff:00.0", "x:4f:00.0",
        "0:0:4f:00.0", "0000:4f:00.0 ", "-4:00.0", ".:", "4.f:00"})
    EXPECT_FALSE(normal_bus_id(text).has_value()) << text;
}

}  // namespace
}  // namespace penstock

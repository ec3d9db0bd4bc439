// What is a client's own: its keys, its lease, and the regions that it finds after a restart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "client/cpp/core.hpp"
#include "client/cpp/penstock.hpp"
#include "tests/client/fake_service.hpp"

namespace penstock::client {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using testing::ElementsAre;

constexpr auto kPatience = 20s;  // only a failing test waits so long
constexpr std::uint32_t kShortMs = 60;

class OwnTest : public testing::Test {
 protected:
  FakeService service_;
};

TEST_F(OwnTest, ARegionThatIsThereAlreadyAfterARestartIsTaken) {
  std::promise<Restart> restarted;
  auto options = options_for(service_);
  options.restarted = [&](const Restart& restart) { restarted.set_value(restart); };
  service_.on("allocate", [](const Json& request) {
    return Json{{"name", request["name"]}, {"bytes", request["bytes"]}, {"epoch", 1}};
  });
  Client client(options);
  auto a = client.allocate("a", 4096, "", MapMemory::kNo);
  auto b = client.allocate("b", 4096, "", MapMemory::kNo);
  auto c = client.allocate("c", 4096, "", MapMemory::kNo);
  service_.stop();
  service_.set_incarnation(2);
  service_.on("allocate", [](const Json&) {
    return Json{{"error", {{"code", "ALREADY_EXISTS"}, {"message", "the name is taken"}}}};
  });
  service_.on("regions", [](const Json&) {
    return Json{{"regions",
                 {{{"name", "a"}, {"bytes", 4096}, {"epoch", 9}, {"yours", true}},
                  {{"name", "b"}, {"bytes", 8192}, {"epoch", 10}, {"yours", true}},
                  {{"name", "c"}, {"bytes", 4096}, {"epoch", 11}, {"yours", false}}}}};
  });
  service_.start();
  auto future = restarted.get_future();
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  const auto restart = future.get();
  EXPECT_THAT(restart.regions, ElementsAre("a"));
  EXPECT_EQ(a.epoch(), 9u);
  ASSERT_EQ(restart.lost.size(), 2u);  // of another size, and another client's
  for (const auto& lost : restart.lost) EXPECT_EQ(lost.code(), "ALREADY_EXISTS");
}

TEST_F(OwnTest, RenewsItsLeaseAndTakesDetachedRegionsOutOfIt) {
  service_.on("allocate", [](const Json& request) {
    return Json{{"name", request["name"]}, {"bytes", request["bytes"]}, {"epoch", 1}};
  });
  auto options = options_for(service_);
  options.lease_ms = 90;
  Client client(options);
  client.allocate("a", 4096, "", MapMemory::kNo).detach();
  ASSERT_EQ(service_.requests("keep").size(), 1u);
  EXPECT_EQ(service_.requests("keep")[0]["name"], "a");
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (service_.requests("hello").size() < 4 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(5ms);
  const auto hellos = service_.requests("hello");
  ASSERT_GE(hellos.size(), 4u);
  EXPECT_FALSE(hellos[0].contains("lease_ms"));  // a service that knows no leases greets us too
  EXPECT_EQ(hellos[1]["lease_ms"], 90);
}

TEST_F(OwnTest, DoesWhatComesAfterItsEndOnTheThreadThatBringsIt) {
  auto core = Core::open(options_for(service_));
  bool done = false;
  core->close();
  core->do_on_own_thread([&] { done = true; });
  EXPECT_TRUE(done);
}

TEST_F(OwnTest, SaysWhatIsWrongWithItsKeys) {
  Options options{.endpoint = "tcp://127.0.0.1:1", .timeout_ms = kShortMs, .key_file = "/nothing"};
  EXPECT_EQ(code_of([&] { Client client(options); }), "INVALID_ARGUMENT");  // one without the other
  options.server_key = "too short";
  EXPECT_EQ(code_of([&] { Client client(options); }), "INVALID_ARGUMENT");  // no such files
  options.endpoint = service_.endpoint();  // ipc: keys are not for it
  options.timeout_ms = 15000;
  EXPECT_EQ(code_of([&] { Client client(options); }), "nothing");
}

}  // namespace
}  // namespace penstock::client

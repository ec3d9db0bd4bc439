// The client against a service that answers, stays silent, goes away and comes back.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <mutex>

#include "client/cpp/penstock.hpp"
#include "tests/client/fake_service.hpp"

namespace penstock::client {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kPatience = 20s;  // only a failing test waits so long
constexpr std::uint32_t kShortMs = 60;

TransferSpec some_spec(std::string key = "") {
  return {.region = "a",
          .targets = {{"other", "b"}},
          .layout = Ranges{{{0, 0, 4096}}},
          .key = std::move(key)};
}

class ClientTest : public testing::Test {
 protected:
  /// Accepts transfers as 1, 2, 3 ...; one id per target.
  void accept_transfers() {
    service_.on("transfer", [this](const Json& request) {
      Json ids = Json::array();
      for (const auto& spec : request["transfers"]) {
        for (std::size_t i = 0; i < spec["targets"].size(); ++i) ids.push_back(++last_id_);
      }
      return Json{{"ids", ids}};
    });
  }
  /// Answers `transfers` by saying this of each id that is asked for.
  void say_of_transfers(Json body) {
    service_.on("transfers", [body](const Json& request) {
      const auto& bytes = request["ids"].get_binary();
      Json list = Json::array();
      for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
        std::uint64_t id = 0;
        std::memcpy(&id, bytes.data() + i, 8);
        auto one = body;
        one["id"] = id;
        list.push_back(one);
      }
      return Json{{"transfers", list}};
    });
  }

  FakeService service_;
  std::atomic<std::uint64_t> last_id_{0};
};

TEST_F(ClientTest, SaysHelloOnConnectAndKnowsTheNode) {
  Client client(options_for(service_));
  EXPECT_EQ(client.service().node, "fake");
  EXPECT_EQ(client.service().incarnation, 1u);
  EXPECT_EQ(service_.requests("hello").size(), 1u);
}

TEST(ClientWithoutService, FirstContactEndsAtItsDeadlineAndNamesTheEndpoint) {
  Options options{.endpoint = "ipc:///tmp/nobody-listens-here", .timeout_ms = kShortMs};
  try {
    Client client(options);
    FAIL() << "connected to nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "DEADLINE_EXCEEDED");
    EXPECT_THAT(error.message(), HasSubstr("ipc:///tmp/nobody-listens-here"));
    EXPECT_THAT(error.message(), HasSubstr("60 ms"));
    EXPECT_THAT(error.message(), HasSubstr("not connected"));
  }
}

TEST(ClientWithoutService, RefusesAnEndpointThatIsNone) {
  EXPECT_EQ(code_of([] { Client client({.endpoint = "nonsense"}); }), "INVALID_ARGUMENT");
}

TEST_F(ClientTest, ARequestWithoutAnswerEndsAtItsDeadline) {
  service_.on("status", [](const Json&) { return std::nullopt; });
  Client client(options_for(service_));
  try {
    client.call("status", "{}", kShortMs);
    FAIL() << "no deadline";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "DEADLINE_EXCEEDED");
    EXPECT_THAT(error.message(), HasSubstr("'status' within 60 ms"));
  }
}

TEST_F(ClientTest, ALateAnswerDoesNotDisturbTheNextRequest) {
  std::atomic<std::uint64_t> first{0};
  service_.on("status", [&](const Json& request) -> std::optional<Json> {
    if (first == 0) {
      first = request["id"].get<std::uint64_t>();
      return std::nullopt;
    }
    service_.send({{"id", first.load()}, {"ok", true}, {"answer", "late"}});
    return Json{{"answer", "right"}};
  });
  Client client(options_for(service_));
  EXPECT_EQ(code_of([&] { client.call("status", "{}", kShortMs); }), "DEADLINE_EXCEEDED");
  EXPECT_EQ(client.status(), R"({"answer":"right"})");
  EXPECT_EQ(client.status(), R"({"answer":"right"})");
}

TEST_F(ClientTest, ARefusalComesWithTheCodeAndWordsOfTheService) {
  service_.on("release", [](const Json&) {
    return Json{{"error", {{"code", "BUSY"}, {"message", "transfer 7 uses it"}}}};
  });
  Client client(options_for(service_));
  try {
    client.release("a");
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "BUSY");
    EXPECT_EQ(error.message(), "transfer 7 uses it");
    EXPECT_STREQ(error.what(), "BUSY: transfer 7 uses it");
  }
}

TEST_F(ClientTest, MessagesThatAreNoneAreIgnored) {
  Client client(options_for(service_));
  service_.send({{"event", 7}});
  service_.send({{"id", "seven"}, {"ok", true}});
  service_.send({{"event", "transfer"}, {"id", 1}, {"state", "exploded"}});
  service_.on("status", [](const Json&) { return Json{{"well", true}}; });
  EXPECT_EQ(client.status(), R"({"well":true})");
}

TEST_F(ClientTest, TheTerminalEventEndsTheTransfer) {
  accept_transfers();
  Client client(options_for(service_));
  auto transfer = client.transfer(some_spec());
  EXPECT_EQ(transfer.id(), 1u);
  EXPECT_FALSE(transfer.ended());
  service_.send(transfer_event(1, 1, "failed"));
  auto result = transfer.wait_for(kPatience);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->state, TransferResult::State::kFailed);
  EXPECT_EQ(result->error_code, "PEER_LEFT");
  EXPECT_EQ(result->bytes, 4096u);
}

TEST_F(ClientTest, AnEndThatOvertakesTheAcceptanceIsNotLost) {
  Client client(options_for(service_));
  std::atomic<std::uint64_t> request_id{0};
  service_.on("transfer", [&](const Json& request) -> std::optional<Json> {
    service_.send(transfer_event(1, 9, "done"));
    service_.send({{"id", request["id"]}, {"ok", true}, {"ids", {9}}});
    return std::nullopt;
  });
  auto result = client.transfer(some_spec()).wait_for(kPatience);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->done());
  EXPECT_TRUE(service_.requests("transfers").empty());
}

TEST_F(ClientTest, ScatterGivesAHandlePerTargetInOrder) {
  accept_transfers();
  Client client(options_for(service_));
  auto scatter = some_spec();
  scatter.targets = {{"x", "b"}, {"y", "b"}};
  auto transfers = client.transfer(std::vector{scatter, some_spec()});
  ASSERT_EQ(transfers.size(), 3u);
  EXPECT_EQ(transfers[0].id(), 1u);
  EXPECT_EQ(transfers[1].id(), 2u);
  EXPECT_EQ(transfers[2].id(), 3u);
  EXPECT_EQ(code_of([&] { client.transfer(scatter); }), "INVALID_ARGUMENT");
}

TEST_F(ClientTest, ARefusedTransferThrowsOrIsAResultWhenSubmitted) {
  service_.on("transfer", [](const Json&) {
    return Json{{"error", {{"code", "OUT_OF_RANGE"}, {"message", "too far"}}}};
  });
  Client client(options_for(service_));
  EXPECT_EQ(code_of([&] { client.transfer(some_spec()); }), "OUT_OF_RANGE");
  auto submitted = client.submit(some_spec());
  auto result = submitted.wait_for(kPatience);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->state, TransferResult::State::kRefused);
  EXPECT_EQ(result->error_code, "OUT_OF_RANGE");
  EXPECT_EQ(code_of([&] { submitted.id(); }), "OUT_OF_RANGE");
}

TEST_F(ClientTest, OnDoneIsCalledOnceEvenWhenItHasEndedAlready) {
  accept_transfers();
  Client client(options_for(service_));
  auto transfer = client.transfer(some_spec());
  std::atomic<int> calls{0};
  transfer.on_done([&](const TransferResult&) { ++calls; });
  service_.send(transfer_event(1, 1, "done"));
  service_.send(transfer_event(1, 1, "done"));
  ASSERT_TRUE(transfer.wait_for(kPatience));
  transfer.on_done([&](const TransferResult&) { ++calls; });
  client.status();  // the events have been handled
  EXPECT_EQ(calls, 2);
}

TEST_F(ClientTest, ACallThatWouldWaitForItselfIsRefusedInCallbacks) {
  accept_transfers();
  Client client(options_for(service_));
  auto transfer = client.transfer(some_spec());
  std::promise<std::string> code;
  std::promise<Transfer> next;
  transfer.on_done([&](const TransferResult&) {
    code.set_value(code_of([&] { client.status(); }));
    next.set_value(client.submit(some_spec()));
  });
  service_.send(transfer_event(1, 1, "done"));
  EXPECT_EQ(code.get_future().get(), "INVALID_ARGUMENT");
  EXPECT_EQ(next.get_future().get().id(), 2u);
}

TEST_F(ClientTest, AMissedEndIsAskedForWhileConnected) {
  accept_transfers();
  say_of_transfers(transfer_event(0, 0, "done"));
  Client client(options_for(service_));
  auto result = client.transfer(some_spec()).wait_for(kPatience);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->done());
}

TEST_F(ClientTest, ARunningTransferIsAskedForAndGoesOn) {
  accept_transfers();
  say_of_transfers({{"state", "running"}});
  Client client(options_for(service_));
  auto transfer = client.transfer(some_spec());
  ASSERT_TRUE(service_.wait_for("transfers", 2));
  EXPECT_FALSE(transfer.ended());
}

TEST_F(ClientTest, AfterALostConnectionItAsksForTheEndsItMissed) {
  accept_transfers();
  say_of_transfers({{"state", "running"}});
  Client client(options_for(service_));
  auto transfer = client.transfer(some_spec());
  service_.stop();
  say_of_transfers(transfer_event(0, 0, "cancelled"));
  service_.start();
  auto result = transfer.wait_for(kPatience);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->state, TransferResult::State::kCancelled);
  EXPECT_EQ(service_.requests("hello").size(), 2u);
}

TEST_F(ClientTest, ARestartedServiceLosesWhatTheOldOneWasDoing) {
  accept_transfers();
  // Of the same number in its new life the service would say that it is done.
  Client client(options_for(service_));
  auto transfer = client.transfer(some_spec());
  service_.stop();
  service_.set_incarnation(2);
  say_of_transfers(transfer_event(0, 0, "done"));
  service_.start();
  auto result = transfer.wait_for(kPatience);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->state, TransferResult::State::kLost);
  EXPECT_EQ(result->error_code, "PEER_LEFT");
}

TEST_F(ClientTest, ATransferThatTheServiceForgotIsLost) {
  accept_transfers();
  service_.on("transfers", [](const Json&) { return Json{{"transfers", Json::array()}}; });
  Client client(options_for(service_));
  auto result = client.transfer(some_spec()).wait_for(kPatience);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->state, TransferResult::State::kLost);
  EXPECT_EQ(result->error_code, "NOT_FOUND");
}

TEST_F(ClientTest, AServiceThatStaysAwayLosesItsTransfers) {
  accept_transfers();
  auto options = options_for(service_);
  options.lost_after_ms = 1;
  service_.on("transfers", [](const Json&) { return std::nullopt; });
  Client client(options);
  auto transfer = client.transfer(some_spec());
  service_.stop();
  auto result = transfer.wait_for(kPatience);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->state, TransferResult::State::kLost);
  EXPECT_EQ(result->error_code, "PEER_UNREACHABLE");
}

TEST_F(ClientTest, ARequestMadeWhileTheServiceIsAwayIsAnsweredWhenItIsBack) {
  Client client(options_for(service_));
  service_.stop();
  service_.on("status", [](const Json&) { return Json{{"back", true}}; });
  auto answer = std::async(std::launch::async, [&] { return client.status(); });
  service_.start();
  EXPECT_EQ(answer.get(), R"({"back":true})");
}

TEST_F(ClientTest, AfterALostConnectionKeyedTransfersAreAskedAgainAndOthersAreNot) {
  service_.on("transfer", [](const Json&) { return std::nullopt; });
  Client client(options_for(service_));
  auto keyed = client.submit(some_spec("once"));
  auto keyless = client.submit(some_spec());
  ASSERT_TRUE(service_.wait_for("transfer", 2));
  service_.stop();
  service_.on("transfer", [](const Json&) { return Json{{"ids", {5}}}; });
  service_.start();
  EXPECT_EQ(keyed.id(), 5u);
  client.status();
  auto requests = service_.requests("transfer");
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[2]["transfers"][0]["key"], "once");
  EXPECT_FALSE(keyless.ended());
}

TEST_F(ClientTest, AfterALostConnectionItSubscribesSinceTheLastEventItSaw) {
  Client client(options_for(service_));
  std::mutex mutex;
  std::vector<std::uint64_t> seen;
  std::promise<void> first, second;
  auto subscription = client.subscribe({"transfers"}, [&](const Event& event) {
    std::lock_guard lock(mutex);
    seen.push_back(event.sequence);
    if (event.sequence == 7) first.set_value();
    if (event.sequence == 8) second.set_value();
  });
  service_.send(transfer_event(7, 70, "done"));
  first.get_future().get();
  service_.stop();
  service_.on("subscribe", [this](const Json&) {
    service_.send(transfer_event(7, 70, "done"));  // repeated: not new
    service_.send(transfer_event(8, 80, "done"));
    return Json::object();
  });
  service_.start();
  second.get_future().get();
  std::lock_guard lock(mutex);
  EXPECT_THAT(seen, ElementsAre(7, 8));
  auto requests = service_.requests("subscribe");
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_FALSE(requests[0].contains("since"));
  EXPECT_EQ(requests[1]["since"], 7);
  EXPECT_EQ(requests[1]["topics"], Json({"transfers"}));
}

TEST_F(ClientTest, ASubscriptionGetsItsTopicsOnly) {
  accept_transfers();
  Client client(options_for(service_));
  std::promise<Event> got;
  auto subscription =
      client.subscribe({"notify"}, [&](const Event& event) { got.set_value(event); });
  service_.send(transfer_event(1, 1, "done"));
  service_.send({{"event", "notify"},
                 {"seq", 2},
                 {"from", "other"},
                 {"transfer", 9},
                 {"region", "b"},
                 {"bytes", 10},
                 {"data", Json::binary({'h', 'i'})}});
  auto event = got.get_future().get();
  EXPECT_EQ(event.sequence, 2u);
  EXPECT_EQ(std::get<Notification>(event.body).data, "hi");
  EXPECT_THAT(event.json, HasSubstr(R"("data":"6869")"));
}

TEST_F(ClientTest, ACallbackMayUseTheClientWhileAnotherThreadSubscribes) {
  Client client(options_for(service_));
  std::promise<void> running, used;
  auto subscription = client.subscribe({"members"}, [&](const Event&) {
    running.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the other is at it by now
    client.service();
    used.set_value();
  });
  service_.send({{"event", "member_left"}, {"seq", 1}, {"node", "x"}});
  running.get_future().get();
  auto another = client.subscribe({"notify"}, [](const Event&) {});
  EXPECT_EQ(used.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST_F(ClientTest, AStoppedSubscriptionIsCalledNoMore) {
  Client client(options_for(service_));
  std::atomic<int> calls{0};
  auto subscription = client.subscribe({"members"}, [&](const Event&) { ++calls; });
  subscription.stop();
  service_.send({{"event", "member_left"}, {"seq", 1}, {"node", "x"}});
  client.status();
  client.status();
  EXPECT_EQ(calls, 0);
}

TEST_F(ClientTest, AnAllocatedRegionIsMappedAndReleasedWithItsOwner) {
  auto name = "/penstock-client-test-" + std::to_string(::getpid());
  int fd = ::shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, 8192), 0);
  service_.on("allocate", [name](const Json& request) {
    return Json{{"region",
                 {{"name", request["name"]},
                  {"bytes", 8192},
                  {"epoch", 3},
                  {"device", "host0"},
                  {"shared_name", name}}}};
  });
  Client client(options_for(service_));
  {
    auto region = client.allocate("a", 8192);
    ASSERT_EQ(region.data().size(), 8192u);
    region.data()[8191] = std::byte{42};
    EXPECT_EQ(region.epoch(), 3u);
    Region moved = std::move(region);
    EXPECT_TRUE(region.data().empty());  // NOLINT(bugprone-use-after-move): that is the test
    EXPECT_EQ(moved.data()[8191], std::byte{42});
    EXPECT_TRUE(service_.requests("release").empty());
  }
  char last = 0;
  EXPECT_EQ(::pread(fd, &last, 1, 8191), 1);
  EXPECT_EQ(last, 42);
  auto releases = service_.requests("release");
  ASSERT_EQ(releases.size(), 1u);
  EXPECT_EQ(releases[0]["name"], "a");
  client.allocate("a", 8192).detach();
  EXPECT_EQ(service_.requests("release").size(), 1u);
  ::close(fd);
  ::shm_unlink(name.c_str());
}

TEST_F(ClientTest, ARegionThatIsAFileByItsPathIsMappedToo) {
  auto path = testing::TempDir() + "penstock-client-test-" + std::to_string(::getpid());
  int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, 8192), 0);
  service_.on("allocate", [path](const Json& request) {
    return Json{{"region", {{"name", request["name"]}, {"bytes", 8000}, {"shared_name", path}}}};
  });
  Client client(options_for(service_));
  auto region = client.allocate("a", 8000);
  ASSERT_EQ(region.data().size(), 8000u);
  region.data()[7999] = std::byte{42};
  char last = 0;
  EXPECT_EQ(::pread(fd, &last, 1, 7999), 1);
  EXPECT_EQ(last, 42);
  ::close(fd);
  ::unlink(path.c_str());
}

TEST_F(ClientTest, ARegionThatCannotBeMappedIsReleasedAgain) {
  service_.on("allocate", [](const Json& request) {
    return Json{
        {"region", {{"name", request["name"]}, {"bytes", 8192}, {"shared_name", "/not-there"}}}};
  });
  Client client(options_for(service_));
  EXPECT_EQ(code_of([&] { client.allocate("a", 8192); }), "UNSUPPORTED");
  EXPECT_EQ(service_.requests("release").size(), 1u);
}

TEST_F(ClientTest, ARestartedServiceIsAskedForTheRegionsFirst) {
  std::atomic<int> restarts{0};
  auto options = options_for(service_);
  options.restarted = [&](const Restart& restart) {
    EXPECT_THAT(restart.regions, ElementsAre("a", "b"));
    EXPECT_TRUE(restart.lost.empty());
    ++restarts;
  };
  const auto made = [this](const Json& request) {
    return Json{{"name", request["name"]}, {"bytes", request["bytes"]}, {"epoch", ++last_id_}};
  };
  service_.on("allocate", made);
  service_.on("register", made);
  Client client(options);
  auto a = client.allocate("a", 4096, "", MapMemory::kNo);
  auto b = client.register_region("b", "/mine", 4096, 8192, "host0");
  client.allocate("detached", 4096, "", MapMemory::kNo).detach();
  client.allocate("released", 4096, "", MapMemory::kNo).release();
  const auto epoch = b.epoch();
  service_.stop();
  service_.set_incarnation(2);
  // What is asked meanwhile waits for the regions.
  auto status = std::async(std::launch::async, [&] { return client.status(); });
  service_.start();
  status.get();
  EXPECT_EQ(restarts, 1);
  EXPECT_GT(b.epoch(), epoch);
  const auto again = service_.requests("register").back();
  EXPECT_EQ(service_.requests("register").size(), 2u);
  EXPECT_EQ(again["shared_name"], "/mine");
  EXPECT_EQ(again["offset"], 4096);
  EXPECT_EQ(again["device"], "host0");
  EXPECT_EQ(service_.requests("allocate").size(), 4u);  // of three only one again
}

TEST_F(ClientTest, AConnectionThatBreaksWhileRegionsAreMadeAgainStartsThatOver) {
  std::promise<Restart> restarted;
  auto options = options_for(service_);
  options.restarted = [&](const Restart& restart) { restarted.set_value(restart); };
  const auto made = [](const Json& request) {
    return Json{{"name", request["name"]}, {"bytes", request["bytes"]}, {"epoch", 1}};
  };
  service_.on("allocate", made);
  Client client(options);
  auto a = client.allocate("a", 4096, "", MapMemory::kNo);
  service_.stop();
  service_.set_incarnation(2);
  service_.on("allocate", [](const Json&) { return std::nullopt; });
  service_.start();
  ASSERT_TRUE(service_.wait_for("allocate", 2));
  service_.stop();
  service_.on("allocate", made);
  service_.start();
  auto future = restarted.get_future();
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  EXPECT_THAT(future.get().regions, ElementsAre("a"));
}

TEST_F(ClientTest, ClosingEndsWhatWaits) {
  accept_transfers();
  say_of_transfers({{"state", "running"}});
  auto client = std::make_unique<Client>(options_for(service_));
  auto transfer = client->transfer(some_spec());
  client.reset();
  auto result = transfer.wait();
  EXPECT_EQ(result.state, TransferResult::State::kLost);
  EXPECT_EQ(result.error_code, "CANCELLED");
  EXPECT_EQ(code_of([&] { transfer.cancel(); }), "CANCELLED");
}

TEST_F(ClientTest, ManyThreadsMayCallAtOnce) {
  accept_transfers();
  service_.on("status", [](const Json& request) { return Json{{"echo", request["who"]}}; });
  Client client(options_for(service_));
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int who = 0; who < 8; ++who) {
    threads.emplace_back([&, who] {
      for (int i = 0; i < 50; ++i) {
        auto number = std::to_string(who * 1000 + i);
        auto answer = client.call("status", R"({"who":)" + number + "}");
        right += answer == R"({"echo":)" + number + "}";
        client.submit(some_spec());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 400);
}

}  // namespace
}  // namespace penstock::client

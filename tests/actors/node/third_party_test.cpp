// Both sides of third-party transfers: who may have them, and, over a network that loses, repeats
// and delays, that each runs at most once and ends exactly once.
#include "actors/node/third_party.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/actors/protocol/sample_requests.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Outcome = TransferResult::State;

std::shared_ptr<const std::vector<std::byte>> bytes_of(const nlohmann::json& request) {
  const auto packed = nlohmann::json::to_msgpack(request);
  const auto* first = reinterpret_cast<const std::byte*>(packed.data());
  return std::make_shared<const std::vector<std::byte>>(first, first + packed.size());
}

// -- who may ------------------------------------------------------------------------------------

class AnExecutor : public testing::Test {
 protected:
  AnExecutor() {
    publish("open", {});
    publish("for-a", {"a"});
    publish("for-rack", {"rack=r7"});
    publish("for-c", {"c"});
    make(ThirdParty::kMembers);
  }
  void publish(const std::string& name, std::vector<std::string> allow) {
    auto region = std::make_shared<Region>();
    region->name = name;
    region->allow = std::move(allow);
    regions->publish(region);
  }
  void make(ThirdParty takes) {
    ThirdPartyOptions options;
    options.takes = takes;
    node.emplace(
        ThirdPartyTransfers::Setup{"b", options, regions, std::make_shared<LiveShadows>(), audit},
        ThirdPartyTransfers::Port{
            .ask = [](const std::string&, std::uint64_t, Question, TimePoint) {},
            .labels =
                [this](const std::string&) {
                  return std::map<std::string, std::string>{{"rack", rack}};
                },
            .run = [this](const TransferRequest& request, const ClientId& client,
                          const Asker& asker, TransferId shadow) -> Result<TransferId> {
              for_shadow = shadow;
              ran = request.transfers.front();
              for_client = client;
              for_asker = asker;
              return next_id++;
            },
            .cancel = [](TransferId) {},
            .ended = [](TransferResult) {}});
  }
  static nlohmann::json spec(const std::string& region, const std::string& target_node = "c",
                             const std::string& target = "in") {
    auto one = test::transfer_spec(test::ranges_layout());
    one["region"] = region;
    one["targets"] = {{{"node", target_node}, {"region", target}}};
    return one;
  }
  /// None: it was accepted.
  std::optional<Error> ask(const nlohmann::json& one, bool admin = false) {
    Delegate part;
    part.transfer = next_asked++;
    part.client = "trainer";
    part.admin = admin;
    part.deadline_ms = 1234;
    const auto bytes = bytes_of(test::request(0, "transfer", {{"transfers", {one}}}));
    part.part.bytes = *bytes;
    part.total = static_cast<std::uint32_t>(bytes->size());
    const Answer answer = node->asked("a", 9, part, TimePoint(1h));
    const auto* refused = std::get_if<Refused>(&answer);
    return refused != nullptr ? std::optional(refused->error) : std::nullopt;
  }

  std::shared_ptr<RegionTable> regions = std::make_shared<RegionTable>();
  std::shared_ptr<Audit> audit = std::make_shared<Audit>(0);
  std::string rack = "r7";
  std::optional<ThirdPartyTransfers> node;
  TransferId next_id = 100;
  TransferId next_asked = 1;
  TransferSpec ran;
  ClientId for_client;
  TransferId for_shadow = 0;
  Asker for_asker;
};

TEST_F(AnExecutor, RunsItAsOneOfItsOwnForTheClientThatItsAskerNames) {
  auto one = spec("open");
  one["weight"] = 7;
  one["verify"] = true;
  one["key"] = "again";
  one["deadline_ms"] = 99999;
  EXPECT_EQ(ask(one), std::nullopt);
  EXPECT_EQ(for_asker.who, "trainer");
  EXPECT_EQ(for_asker.role, Role::kTransfer);
  EXPECT_EQ(for_client, client_of_node("a"));
  EXPECT_EQ(ran.weight, 7u);
  EXPECT_TRUE(ran.verify);
  EXPECT_EQ(ran.deadline_ms, 1234u) << "what was left at the asker";
  EXPECT_EQ(ran.key, "") << "keys are the asker's";
  EXPECT_EQ(for_shadow, 0u) << "the other end is a third node";
  ask(one, true);
  EXPECT_EQ(for_asker.role, Role::kAdmin);
}

TEST_F(AnExecutor, TellsAnAskerThatIsTheOtherEndForWhatItComes) {
  EXPECT_EQ(ask(spec("open", "a")), std::nullopt);
  EXPECT_NE(for_shadow, 0u);
}

TEST_F(AnExecutor, RefusesForRegionsThatAreNotForTheAskersNode) {
  EXPECT_EQ(ask(spec("for-a")), std::nullopt);
  EXPECT_EQ(ask(spec("for-rack")), std::nullopt);
  EXPECT_EQ(audit->count(), 0u);
  EXPECT_EQ(ask(spec("for-c"), true)->code, ErrorCode::kDenied) << "whatever the client's role";
  rack = "r8";
  EXPECT_EQ(ask(spec("for-rack"))->code, ErrorCode::kDenied);
  EXPECT_EQ(ask(spec("open", "b", "for-c"))->code, ErrorCode::kDenied) << "a copy here";
  EXPECT_EQ(ask(spec("open", "", "for-c"))->code, ErrorCode::kDenied);
  EXPECT_EQ(ask(spec("open", "c", "for-c")), std::nullopt) << "node c's region is its to refuse";
  EXPECT_EQ(audit->count(), 4u);
}

TEST_F(AnExecutor, ThatTakesNothingForOthersSaysSo) {
  make(ThirdParty::kNone);
  const auto refused = ask(spec("open"), true);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::kDenied);
  EXPECT_THAT(refused->message, HasSubstr("security.third_party"));
  EXPECT_EQ(audit->count(), 1u);
}

TEST_F(AnExecutor, RefusesWhatIsNoRequestOfOneTransfer) {
  Delegate odd;
  odd.transfer = next_asked++;
  odd.client = "a\nb";
  const Answer answer = node->asked("a", 9, odd, TimePoint(1h));
  EXPECT_EQ(std::get<Refused>(answer).error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(std::get<Refused>(answer).error.message, HasSubstr("name"));
  auto passed_on = spec("open");
  passed_on["on"] = "d";
  EXPECT_THAT(ask(passed_on)->message, HasSubstr("not passed on twice"));
  auto scatter = spec("open");
  scatter["targets"].push_back({{"node", "d"}, {"region", "in"}});
  EXPECT_EQ(ask(scatter)->code, ErrorCode::kInvalidArgument);
  auto unknown = spec("open");
  unknown["of the future"] = 1;
  EXPECT_THAT(ask(unknown)->message, HasSubstr("of the future"));
}

// -- over a bad network --------------------------------------------------------------------------

/// Two nodes, a and b: clients of a have b carry out transfers. Questions come once, twice or never
/// and are repeated until they are answered, as Peer does it.
class BadNetwork {
 public:
  explicit BadNetwork(std::uint64_t seed) : random_(seed) {
    make("a");
    make("b");
  }

  void step() {
    now += Milliseconds(chance(30) + 1);
    if (chance(3) == 0 && next_asked_ < 200) start();
    if (chance(8) == 0 && next_asked_ > 1) {
      const TransferId id = 1 + chance(next_asked_ - 1);
      nodes_.at("a")->shadows().cancel(id, now);
    }
    if (chance(200) == 0) outage_ = now + Milliseconds(chance(4000));
    deliver();
    finish_some();
    nodes_.at("a")->shadows().tick(now);
  }
  bool settled() const {
    return nodes_.at("a")->shadows().size() == 0 && nodes_.at("b")->delegations().unfinished() == 0;
  }
  /// b is gone for a, and a for b.
  void part() {
    nodes_.at("a")->node_lost("b", {ErrorCode::kPeerDead, "node 'b' is dead"}, false, now);
    nodes_.at("b")->node_lost("a", {ErrorCode::kPeerDead, "node 'a' is dead"}, false, now);
    questions_.clear();
    nodes_.at("b")->node_back("a", now);
  }

  TimePoint now{1h};
  std::map<TransferId, std::vector<TransferResult>> ended;  // at a
  std::map<TransferId, int> asked;                          // of a's clients
  std::map<TransferId, int> runs;                           // at b, by a's id
  std::map<TransferId, Outcome> ends_at_b;                  // the same

 private:
  struct Pending {
    std::string from, to;
    std::uint64_t token;
    Question question;
    TimePoint deadline;
  };
  struct Running {
    TransferId asked_as;
    TimePoint end;
    bool cancelled = false;
  };

  std::uint64_t chance(std::uint64_t of) { return random_() % of; }

  void make(const std::string& name) {
    ThirdPartyOptions options;
    auto regions = std::make_shared<RegionTable>();
    nodes_[name] = std::make_unique<ThirdPartyTransfers>(
        ThirdPartyTransfers::Setup{name, options, regions, std::make_shared<LiveShadows>(),
                                   nullptr},
        ThirdPartyTransfers::Port{
            .ask =
                [this, name](const std::string& node, std::uint64_t token, Question question,
                             TimePoint deadline) {
                  questions_.push_back({name, node, token, std::move(question), deadline});
                },
            .labels = [](const std::string&) { return std::map<std::string, std::string>(); },
            .run = [this](const TransferRequest& request, const ClientId&, const Asker&,
                          TransferId) -> Result<TransferId> {
              const TransferSpec& spec = request.transfers.front();
              const TransferId asked_as = std::stoull(spec.notify);
              ++runs[asked_as];
              if (asked_as % 10 == 0) return fail(ErrorCode::kNotFound, "no region");
              const auto deadline = now + Milliseconds(spec.deadline_ms);
              running_[next_run_] = {asked_as,
                                     std::min(now + Milliseconds(chance(3000)), deadline)};
              return next_run_++;
            },
            .cancel = [this](TransferId id) { running_.at(id).cancelled = true; },
            .ended = [this](TransferResult result) { ended[result.id].push_back(result); }});
  }

  void start() {
    Shadows::Asked one;
    one.id = next_asked_++;
    one.on = "b";
    auto spec = test::transfer_spec(test::ranges_layout());
    spec["notify"] = std::to_string(one.id);
    // Some are long.
    if (one.id % 4 == 0)
      spec["layout"]["ranges"] = test::blob(std::vector<std::uint64_t>(3 * 1000, 8));
    one.request = bytes_of(test::request(0, "transfer", {{"transfers", {spec}}}));
    one.received = one.accepted = now;
    one.deadline = now + Milliseconds(500 + chance(5000));
    ++asked[one.id];
    nodes_.at("a")->shadows().start(std::move(one), now);
  }

  /// Each pending question may arrive any number of times, and so may answers get lost.
  void deliver() {
    const bool cut = now < outage_;
    for (std::size_t i = 0; i < questions_.size();) {
      const Pending pending = questions_[i];
      if (pending.deadline <= now) {
        take(i);
        nodes_.at(pending.from)
            ->answered(pending.token, fail(ErrorCode::kPeerUnreachable, "no answer"), now);
        continue;
      }
      if (cut || chance(3) == 0) {
        ++i;
        continue;
      }
      const Answer answer = ask(pending);
      if (chance(3) == 0) {  // lost: it is asked again
        ++i;
        continue;
      }
      take(i);
      const auto* refused = std::get_if<Refused>(&answer);
      nodes_.at(pending.from)
          ->answered(pending.token,
                     refused != nullptr ? Result<Answer>(tl::unexpected(refused->error))
                                        : Result<Answer>(answer),
                     now);
      if (chance(4) == 0) ask(pending);  // a copy of it was late
    }
  }
  Answer ask(const Pending& pending) {
    ThirdPartyTransfers& node = *nodes_.at(pending.to);
    const auto* look = std::get_if<LookAtDelegated>(&pending.question);
    if (look == nullptr) return node.asked(pending.from, 9, pending.question, now);
    DelegatedSeen seen;
    for (const TransferId id : look->transfers) {
      const auto place = node.delegations().place_of(pending.from, 9, id, now);
      seen.transfers.push_back({place.running != 0 ? "running" : place.state, 1, 2});
    }
    return seen;
  }
  void take(std::size_t place) {
    questions_.erase(questions_.begin() + static_cast<std::ptrdiff_t>(place));
  }

  void finish_some() {
    for (auto run = running_.begin(); run != running_.end();) {
      if (!run->second.cancelled && run->second.end > now) {
        ++run;
        continue;
      }
      TransferResult result;
      result.id = run->first;
      result.state = run->second.cancelled ? Outcome::kCancelled : Outcome::kDone;
      result.bytes = 1000 + run->second.asked_as;
      ends_at_b[run->second.asked_as] = result.state;
      nodes_.at("b")->delegations().ended(result, now);
      run = running_.erase(run);
    }
  }

  std::mt19937_64 random_;
  std::map<std::string, std::unique_ptr<ThirdPartyTransfers>> nodes_;
  std::vector<Pending> questions_;
  std::map<TransferId, Running> running_;
  TransferId next_asked_ = 1;
  TransferId next_run_ = 1000;
  TimePoint outage_{};
};

TEST(ThirdPartyTransfers, RunAtMostOnceAndEndExactlyOnceWhateverGetsLost) {
  std::map<Outcome, int> outcomes;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    BadNetwork network(seed);
    for (int i = 0; i < 1500 || (!network.settled() && i < 60000); ++i) {
      network.step();
      if (i == 700 && seed % 4 == 0) network.part();
    }
    ASSERT_TRUE(network.settled()) << "seed " << seed;
    for (const auto& [id, times] : network.asked) {
      ASSERT_THAT(network.ended[id], SizeIs(1)) << "seed " << seed << " transfer " << id;
      const TransferResult& result = network.ended[id].front();
      ++outcomes[result.state];
      ASSERT_LE(network.runs[id], 1) << "seed " << seed << " transfer " << id;
      if (result.state == Outcome::kDone) {
        ASSERT_EQ(network.ends_at_b.at(id), Outcome::kDone) << "seed " << seed;
        ASSERT_EQ(result.bytes, 1000 + id);
      }
      // Who says that nothing happens any more must know it.
      if (result.remote == TransferResult::Remote::kQuiet && network.runs[id] == 1 &&
          id % 10 != 0) {
        ASSERT_TRUE(network.ends_at_b.contains(id)) << "seed " << seed << " transfer " << id;
      }
    }
  }
  for (const auto outcome :
       {Outcome::kDone, Outcome::kFailed, Outcome::kCancelled, Outcome::kExpired})
    EXPECT_GT(outcomes[outcome], 20) << name_of(outcome);
}

}  // namespace
}  // namespace penstock

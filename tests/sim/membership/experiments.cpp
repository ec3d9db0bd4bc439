#include "tests/sim/membership/experiments.hpp"

#include <algorithm>
#include <limits>
#include <set>

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr int kPatience = 100;  // periods

/// Waits until every node that runs and is not slow has told something of the subject.
class Spread {
 public:
  Spread(Cluster& cluster, std::size_t nodes, Clock::duration period)
      : cluster_(cluster), nodes_(nodes), period_(period) {}

  void expect(std::size_t subject, bool alive) {
    heard_.assign(nodes_, false);
    subject_ = subject;
    incarnation_ = cluster_.incarnation(subject);
    since_ = cluster_.now();
    first_ = last_ = -1;
    missing_ = 0;
    for (std::size_t i = 0; i < nodes_; ++i)
      if (i != subject && cluster_.runs(i) && !cluster_.slow(i)) ++missing_;
    cluster_.changed = [this, alive](std::size_t observer, std::size_t about,
                                     const MemberChange& change) {
      const bool fits =
          alive ? change.state == MemberState::kAlive : change.state >= MemberState::kLeft;
      if (about != subject_ || !fits || change.record.incarnation != incarnation_ ||
          heard_[observer] || cluster_.slow(observer) || observer == subject_)
        return;
      heard_[observer] = true;
      --missing_;
      last_ = periods(cluster_.now() - since_);
      if (first_ < 0) first_ = last_;
    };
  }
  bool wait() {
    for (int i = 0; i < kPatience * 20 && missing_ > 0; ++i) cluster_.run(period_ / 20);
    return missing_ == 0;
  }
  double first() const { return first_; }
  double last() const { return last_; }

 private:
  double periods(Clock::duration time) const {
    return std::chrono::duration<double>(time) / std::chrono::duration<double>(period_);
  }

  Cluster& cluster_;
  std::size_t nodes_;
  Clock::duration period_;
  std::size_t subject_ = 0;
  Incarnation incarnation_ = 0;
  TimePoint since_;
  std::vector<char> heard_;
  std::size_t missing_ = 0;
  double first_ = -1;
  double last_ = -1;
};

}  // namespace

Convergence measure_convergence(Cluster::Options options, std::size_t rounds) {
  Cluster cluster(options);
  std::mt19937_64 random(options.seed + 1);
  Spread spread(cluster, options.nodes, options.swim.period);
  Convergence result;
  const auto healthy = [&] {
    return options.slow_nodes + random() % (options.nodes - options.slow_nodes);
  };
  const auto come_back = [&](std::size_t node, std::size_t seed) {
    cluster.start(node, seed);
    spread.expect(node, true);
    result.complete &= spread.wait();
    result.join_all.push_back(spread.last());
    cluster.run(Milliseconds(10'000 + static_cast<int>(random() % 1000)));
  };
  cluster.run(20s);
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::size_t node = healthy();
    std::size_t seed = healthy();
    while (seed == node) seed = healthy();
    cluster.kill(node);
    spread.expect(node, false);
    result.complete &= spread.wait();
    result.death_first.push_back(spread.first());
    result.death_all.push_back(spread.last());
    result.death_told.push_back(spread.last() - spread.first());
    cluster.run(10s);
    come_back(node, seed);
    cluster.leave(node);
    spread.expect(node, false);
    result.complete &= spread.wait();
    result.leave_all.push_back(spread.last());
    cluster.kill(node);
    cluster.run(5s);
    come_back(node, seed);
  }
  return result;
}

Peace measure_peace(Cluster::Options options, Clock::duration time) {
  const auto started = Clock::now();
  Cluster cluster(options);
  cluster.run(20s);
  cluster.take_traffic();
  Peace result;
  const auto accusations = [&] {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < options.nodes; ++i) sum += cluster.swim(i).counters().accusations;
    return sum;
  };
  const std::uint64_t accused_before = accusations();
  std::set<std::pair<std::size_t, TimePoint::rep>> victims;
  cluster.changed = [&](std::size_t, std::size_t subject, const MemberChange& change) {
    if (change.state != MemberState::kDead) return;
    if (cluster.slow(subject)) {
      ++result.slow_deaths;
      return;
    }
    ++result.false_deaths;
    // Within half a minute it is the same story.
    victims.insert({subject, cluster.now().time_since_epoch() / 30s});
  };
  cluster.run(time);
  result.false_victims = victims.size();
  result.accusations = accusations() - accused_before;
  const Cluster::Traffic traffic = cluster.take_traffic();
  const double node_seconds =
      static_cast<double>(options.nodes) * std::chrono::duration<double>(time).count();
  result.frames = static_cast<double>(traffic.frames) / node_seconds;
  result.bytes = traffic.bytes / node_seconds;
  result.events = cluster.events();
  result.wall_s = std::chrono::duration<double>(Clock::now() - started).count();
  return result;
}

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double largest(const std::vector<double>& values) {
  return values.empty() ? std::numeric_limits<double>::quiet_NaN()
                        : *std::max_element(values.begin(), values.end());
}

}  // namespace penstock

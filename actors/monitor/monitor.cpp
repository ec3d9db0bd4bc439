#include "actors/monitor/monitor.hpp"

namespace penstock {
namespace {

constexpr std::size_t kTroubles = 50;

std::int64_t nanoseconds(std::chrono::nanoseconds time) { return time.count(); }

std::int64_t unix_ms(std::chrono::system_clock::time_point wall) {
  return std::chrono::duration_cast<Milliseconds>(wall.time_since_epoch()).count();
}

nlohmann::json to_json(const Histogram& histogram) {
  return {
      {"counts", histogram.counts()}, {"count", histogram.count()}, {"sum_s", histogram.sum_s()}};
}

}  // namespace

nlohmann::json trace_report(const TransferResult& result, std::string_view state, TimePoint now,
                            std::chrono::system_clock::time_point wall) {
  const Stages& stages = result.stages;
  const TimePoint end = stages.finished() ? stages.end() : now;
  const auto total = stages.spans().empty() ? Clock::duration{} : end - stages.begin();
  nlohmann::json spans = nlohmann::json::array();
  for (std::size_t i = 0; i < stages.spans().size(); ++i)
    spans.push_back({{"stage", name_of(stages.spans()[i].stage)},
                     {"at_ns", nanoseconds(stages.spans()[i].begin - stages.begin())},
                     {"ns", nanoseconds(stages.length(i, now))}});
  nlohmann::json cards = nlohmann::json::array();
  for (const auto& [name, share] : result.cards) {
    nlohmann::json card = {{"name", name}, {"bytes", share.bytes}, {"writes", share.writes}};
    if (share.last != TimePoint()) card["last_ns"] = nanoseconds(share.last - stages.begin());
    cards.push_back(std::move(card));
  }
  const auto started = wall - std::chrono::duration_cast<std::chrono::microseconds>(
                                  now - (stages.spans().empty() ? now : stages.begin()));
  nlohmann::json report = {
      {"transfer", result.id},
      {"state", state},
      {"node", result.node},
      {"region", result.region},
      {"remote_region", result.remote_region},
      {"direction", result.direction},
      {"lane", result.lane},
      {"path", result.path},
      {"bytes", result.bytes},
      {"writes", result.writes},
      {"started_unix_us",
       std::chrono::duration_cast<std::chrono::microseconds>(started.time_since_epoch()).count()},
      {"total_ns", nanoseconds(total)},
      {"stages", std::move(spans)},
      {"cards", std::move(cards)}};
  if (!result.on.empty()) {
    report["on"] = result.on;
    if (result.on_as != 0) report["on_as"] = result.on_as;
  }
  if (result.stream != 0) {
    report["stream"] = result.stream;
    report["part"] = result.part;
  }
  if (result.parts) {
    report["parts"] = result.parts->appended;
    report["parts_done"] = result.parts->done;
  }
  return report;
}

// What may happen is there from the start, as 0: only so can the first time be seen as a change.
Monitor::Monitor(std::size_t traces) : most_traces_(traces) {
  using State = TransferResult::State;
  for (State state : {State::kDone, State::kFailed, State::kCancelled, State::kExpired}) {
    const std::string name(name_of(state));
    for (const char* priority : {"bulk", "urgent"}) ended_[{name, priority}] = 0;
    streams_[name] = 0;
  }
  for (const char* priority : {"bulk", "urgent"}) durations_[priority];
}

void Monitor::transfer_ended(TransferResult& result, WallClock::time_point wall) {
  if (result.parts) {
    ++streams_[std::string(name_of(result.state))];
    return keep_trace(result, wall);
  }
  ++ended_[{std::string(name_of(result.state)), result.lane}];
  // The bytes of one that another node carried out are counted there.
  if (result.on.empty()) {
    Tally& tally = paths_[{result.direction, result.path}];
    ++tally.count;
    tally.bytes += result.bytes;
  }
  std::array<bool, kStages> passed{};
  for (const auto& span : result.stages.spans())
    passed[static_cast<std::size_t>(span.stage)] = true;
  const auto totals = result.stages.totals(result.stages.end());
  for (std::size_t i = 0; i < kTransferStages; ++i)
    if (passed[i]) stages_[i].add(totals[i]);
  if (!result.stages.spans().empty())
    durations_[result.lane].add(result.stages.end() - result.stages.begin());
  if (result.state == TransferResult::State::kFailed ||
      result.state == TransferResult::State::kExpired)
    trouble("transfer",
            fmt::format("{} to {}: {}: {}", result.id, result.node, name_of(result.error.code),
                        result.error.message),
            wall);
  keep_trace(result, wall);
}

void Monitor::keep_trace(TransferResult& result, WallClock::time_point wall) {
  const Stages stages = std::exchange(result.stages, {});
  if (most_traces_ == 0) return;
  decltype(traces_)::node_type oldest;  // its memory is the new one's
  if (traced_.size() >= most_traces_) {
    oldest = traces_.extract(traced_.front());
    traced_.pop_front();
  }
  traced_.push_back(result.id);
  if (oldest) {
    oldest.key() = result.id;
    traces_.insert(std::move(oldest));
  }
  Trace& kept = traces_[result.id];
  auto landed = std::exchange(result.landed, {});
  kept.result = result;
  kept.result.stages = stages;
  kept.ended = wall;
  result.landed = std::move(landed);
}

nlohmann::json Monitor::trace(std::uint64_t transfer) const {
  const auto found = traces_.find(transfer);
  if (found == traces_.end()) return nullptr;
  const auto& [result, ended] = found->second;
  return trace_report(result, name_of(result.state), result.stages.end(), ended);
}

void Monitor::trouble(const std::string& what, const std::string& words,
                      WallClock::time_point wall) {
  troubles_.push_front({{"unix_ms", unix_ms(wall)}, {"what", what}, {"words", words}});
  if (troubles_.size() > kTroubles) troubles_.pop_back();
}

nlohmann::json Monitor::counts() const {
  nlohmann::json ended = nlohmann::json::array();
  for (const auto& [kind, count] : ended_)
    ended.push_back({{"state", kind.first}, {"priority", kind.second}, {"count", count}});
  nlohmann::json paths = nlohmann::json::array();
  for (const auto& [kind, tally] : paths_)
    paths.push_back({{"direction", kind.first},
                     {"path", kind.second},
                     {"count", tally.count},
                     {"bytes", tally.bytes}});
  nlohmann::json durations = nlohmann::json::array();
  for (const auto& [priority, histogram] : durations_) {
    durations.push_back(to_json(histogram));
    durations.back()["priority"] = priority;
  }
  nlohmann::json stages = nlohmann::json::array();
  for (std::size_t i = 0; i < kTransferStages; ++i) {
    stages.push_back(to_json(stages_[i]));
    stages.back()["stage"] = name_of(static_cast<Stage>(i));
  }
  nlohmann::json streams = nlohmann::json::array();
  for (const auto& [state, count] : streams_)
    streams.push_back({{"state", state}, {"count", count}});
  return {{"ended", std::move(ended)},
          {"paths", std::move(paths)},
          {"durations", std::move(durations)},
          {"stages", std::move(stages)},
          {"streams", std::move(streams)}};
}

nlohmann::json Monitor::troubles() const { return troubles_; }

}  // namespace penstock

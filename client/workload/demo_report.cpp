#include "client/workload/demo_report.hpp"

namespace penstock::workload {
namespace {

nlohmann::json cards_json(const DemoDirection& direction) {
  double seconds = 0;
  for (const auto& round : direction.rounds) seconds += round.ours.seconds;
  auto cards = nlohmann::json::array();
  for (const auto& card : direction.cards) {
    Measurement sum{.bytes = card.bytes, .writes = card.writes, .seconds = seconds};
    cards.push_back({{"name", card.name},
                     {"bytes", card.bytes},
                     {"gbps", sum.gbps()},
                     {"writes_per_s", sum.writes_per_s()}});
  }
  return cards;
}

nlohmann::json rates_json(const BenchRow& row) {
  return {{"gbps", row.gbps.median},         {"writes_per_s", row.writes_per_s},
          {"raw_gbps", row.raw_gbps.median}, {"raw_writes_per_s", row.raw_writes_per_s},
          {"ratio", row.ratio.median},       {"ratio_min", row.ratio.min},
          {"ratio_max", row.ratio.max}};
}

}  // namespace

nlohmann::json to_json(const DemoReport& report) {
  auto rates = [&report](const std::vector<MeasuredPair>& rounds) {
    return rates_json(bench_row(report.page_bytes, "write", rounds, report.verified()));
  };
  nlohmann::json json = rates(report.together);
  json["verified"] = report.verified();
  json["verified_pages"] = report.verified_pages;
  json["different_pages"] = report.different_pages;
  json["region_bytes"] = report.region_bytes;
  json["page_bytes"] = report.page_bytes;
  json["provider"] = report.provider;
  json["rounds"] = report.together.size();
  json["directions"] = nlohmann::json::array();
  for (const auto& direction : report.directions) {
    auto one = rates(direction.rounds);
    std::uint64_t bytes = 0;
    for (const auto& round : direction.rounds) bytes += round.ours.bytes;
    one["from"] = direction.from;
    one["to"] = direction.to;
    one["bytes"] = bytes;
    one["cards"] = cards_json(direction);
    json["directions"].push_back(std::move(one));
  }
  json["small"] = to_json_us(report.small_us);
  json["small"]["bytes"] = report.small_bytes;
  return json;
}

}  // namespace penstock::workload

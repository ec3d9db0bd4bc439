#include "client/cli/transfer_arguments.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "client/cli/page_list.hpp"
#include "client/cli/quantity.hpp"
#include "client/cli/usage_error.hpp"

namespace penstock::cli {
namespace {

std::uint64_t bytes_or(const std::string& text, std::uint64_t fallback) {
  return text.empty() ? fallback : parse_bytes(text);
}

/// The three ways to say a layout exclude each other.
void check_layout(const TransferArguments& arguments) {
  bool paged = !arguments.pages.empty();
  bool strided = !arguments.row_bytes.empty();
  if (!arguments.ranges.empty() && (paged || strided)) {
    throw UsageError("give --ranges, or --pages, not both");
  }
  if (arguments.ranges.empty() && !paged) {
    throw UsageError("what to move? give --ranges FILE, or --pages LIST with --page-bytes SIZE");
  }
  if (paged && strided == !arguments.page_bytes.empty()) {
    throw UsageError("--pages needs --page-bytes SIZE, or for strided pages --row-bytes SIZE");
  }
}

std::uint32_t deadline_ms(double seconds) {
  double ms = std::ceil(seconds * 1000);
  if (!(ms >= 0 && ms <= UINT32_MAX)) throw UsageError("--deadline is too long");
  return static_cast<std::uint32_t>(ms);
}

client::Packing packing(const std::string& word) {
  if (word == "always") return client::Packing::kAlways;
  if (word == "never") return client::Packing::kNever;
  if (word.empty() || word == "auto") return client::Packing::kAuto;
  throw UsageError(fmt::format("--packing {}: wanted auto, always or never", word));
}

std::string path(const std::string& word) {
  if (word.empty() || word == "auto") return "";
  if (word == "staged" || word == "gpudirect") return word;
  throw UsageError(fmt::format("--path {}: wanted auto, staged or gpudirect", word));
}

}  // namespace

ParsedTransfer::ParsedTransfer(const TransferArguments& arguments) {
  check_layout(arguments);
  spec_.direction = arguments.read ? client::Direction::kRead : client::Direction::kWrite;
  spec_.region = arguments.region;
  for (const auto& target : arguments.targets) spec_.targets.push_back(parse_target(target));
  if (spec_.targets.empty()) throw UsageError("where to? give --to NODE:REGION");
  spec_.deadline_ms = deadline_ms(arguments.deadline_s);
  spec_.lane = arguments.urgent ? client::Lane::kUrgent : client::Lane::kBulk;
  spec_.weight = arguments.weight;
  spec_.key = arguments.key;
  spec_.notify = arguments.notify;
  spec_.packing = packing(arguments.packing);
  spec_.path = path(arguments.path);
  spec_.verify = arguments.verify;
  spec_.on = arguments.on;
  if (arguments.ranges.empty()) {
    spec_.layout = paged_layout(arguments);
    return;
  }
  try {
    spec_.layout = client::Ranges{parse_ranges(read_text(arguments.ranges))};
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("ranges {}: {}", arguments.ranges, error.what()));
  }
}

client::Layout ParsedTransfer::paged_layout(const TransferArguments& arguments) {
  source_pages_ = page_list_or_file(arguments.pages);
  destination_pages_ = arguments.destination_pages.empty()
                           ? source_pages_
                           : page_list_or_file(arguments.destination_pages);
  if (source_pages_.size() != destination_pages_.size()) {
    throw UsageError(fmt::format("--pages lists {} pages, --to-pages {}; give as many of both",
                                 source_pages_.size(), destination_pages_.size()));
  }
  auto bases = arguments.bases.empty() ? std::vector<client::BasePair>{{0, 0}}
                                       : parse_bases(arguments.bases);
  if (arguments.row_bytes.empty()) {
    return client::Pages{.page_bytes = parse_bytes(arguments.page_bytes),
                         .source_stride = bytes_or(arguments.source_stride, 0),
                         .destination_stride = bytes_or(arguments.destination_stride, 0),
                         .source_pages = source_pages_,
                         .destination_pages = destination_pages_,
                         .bases = std::move(bases)};
  }
  return client::Strided{.row_bytes = parse_bytes(arguments.row_bytes),
                         .rows = arguments.rows,
                         .source_pitch = bytes_or(arguments.source_pitch, 0),
                         .destination_pitch = bytes_or(arguments.destination_pitch, 0),
                         .source_stride = bytes_or(arguments.source_stride, 0),
                         .destination_stride = bytes_or(arguments.destination_stride, 0),
                         .source_pages = source_pages_,
                         .destination_pages = destination_pages_,
                         .bases = std::move(bases)};
}

std::string to_json(const client::TransferResult& result) {
  using Json = nlohmann::ordered_json;
  bool quiet = result.remote == client::TransferResult::Remote::kQuiet;
  Json json{{"id", result.id},
            {"state", client::name_of(result.state)},
            {"remote", quiet ? "quiet" : "unreachable"},
            {"node", result.node},
            {"region", result.region},
            {"remote_region", result.remote_region},
            {"direction", result.direction},
            {"lane", result.lane},
            {"bytes", result.bytes},
            {"writes", result.writes},
            {"elapsed_us", result.elapsed_us},
            {"path", result.path},
            {"cards", Json::array()}};
  for (const auto& card : result.cards) {
    json["cards"].push_back({{"name", card.name}, {"bytes", card.bytes}, {"writes", card.writes}});
  }
  if (!result.on.empty()) {
    json["on"] = result.on;
    if (result.on_as != 0) json["on_as"] = result.on_as;
  }
  if (!result.done()) {
    json["error"] = {{"code", result.error_code}, {"message", result.error_message}};
    json["landed"] = Json::array();
    for (const auto& range : result.landed) {
      json["landed"].push_back(
          Json::array({range.source_offset, range.destination_offset, range.length}));
    }
    json["landed_truncated"] = result.landed_truncated;
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace penstock::cli

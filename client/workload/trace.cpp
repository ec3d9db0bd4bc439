#include "client/workload/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>

namespace penstock::workload {
namespace {

using Json = nlohmann::json;

// Far above the longest request of any model; keeps a file that is no trace from filling memory.
constexpr std::size_t kMaxLineBytes = 4 << 20;
constexpr std::size_t kFirstBufferBytes = 16 << 10;
constexpr std::uint64_t kMaxTokens = 1ULL << 40;
constexpr std::uint64_t kMaxTimestampMs = 1ULL << 50;

}  // namespace

TraceReader::TraceReader(std::istream& input, std::string name)
    : input_(input), name_(std::move(name)), buffer_(kFirstBufferBytes) {}

void TraceReader::refuse(const std::string& what) const {
  throw TraceError(fmt::format("{}:{}: {}", name_, line_, what));
}

bool TraceReader::read_line() {
  ++line_;
  length_ = 0;
  for (;;) {
    // The last byte of the room is for the 0 that getline writes.
    input_.getline(buffer_.data() + length_,
                   static_cast<std::streamsize>(buffer_.size() - length_));
    if (input_.bad()) refuse("the file cannot be read further");
    length_ += static_cast<std::size_t>(input_.gcount());
    if (input_.eof()) return length_ > 0;
    if (!input_.fail()) {
      --length_;  // the newline was counted
      return true;
    }
    if (length_ >= kMaxLineBytes)
      refuse(fmt::format("the line is longer than {} bytes", kMaxLineBytes));
    buffer_.resize(std::min(2 * buffer_.size(), kMaxLineBytes + 1));
    input_.clear();
  }
}

std::optional<TraceRequest> TraceReader::next() {
  while (read_line()) {
    std::string_view text(buffer_.data(), length_);
    if (text.find_first_not_of(" \t\r") != std::string_view::npos) return decode();
    if (input_.eof()) break;
  }
  return std::nullopt;
}

TraceRequest TraceReader::decode() {
  Json json;
  try {
    json = Json::parse(buffer_.data(), buffer_.data() + length_);
  } catch (const Json::parse_error& error) {
    refuse(fmt::format("no JSON at byte {}; each line is one JSON object", error.byte));
  } catch (const Json::exception&) {  // a number that no double holds
    refuse("it holds a number that is out of range; each line is one JSON object");
  }
  if (!json.is_object()) {
    refuse(fmt::format("found {}; each line is one JSON object", json.type_name()));
  }

  auto number = [&](const Json& value, const std::string& what, std::uint64_t maximum) {
    if (!value.is_number_unsigned()) {
      refuse(fmt::format("{} is {}; expected a whole number of 0 or more", what,
                         value.is_number() ? value.dump() : value.type_name()));
    }
    auto result = value.get<std::uint64_t>();
    if (result > maximum)
      refuse(fmt::format("{} is {}; at most {} is read", what, result, maximum));
    return result;
  };
  auto field = [&](const char* key) -> const Json& {
    auto found = json.find(key);
    if (found == json.end()) refuse(fmt::format("the field \"{}\" is missing", key));
    return *found;
  };

  TraceRequest request;
  request.line = line_;
  request.timestamp_ms = number(field("timestamp"), "\"timestamp\"", kMaxTimestampMs);
  request.input_tokens = number(field("input_length"), "\"input_length\"", kMaxTokens);
  request.output_tokens = number(field("output_length"), "\"output_length\"", kMaxTokens);
  const Json& ids = field("hash_ids");
  if (!ids.is_array()) {
    refuse(fmt::format("\"hash_ids\" is {}; expected an array of numbers", ids.type_name()));
  }
  auto expected = (request.input_tokens + kTraceBlockTokens - 1) / kTraceBlockTokens;
  if (ids.size() != expected) {
    refuse(fmt::format("\"hash_ids\" holds {} ids; {} input tokens make {} blocks of {}",
                       ids.size(), request.input_tokens, expected, kTraceBlockTokens));
  }
  std::unordered_set<std::uint64_t> seen;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    auto id = number(ids[i], fmt::format("\"hash_ids\"[{}]", i), UINT64_MAX);
    if (!seen.insert(id).second) {
      refuse(
          fmt::format("\"hash_ids\" holds {} twice; a block of a prompt cannot recur in it", id));
    }
    request.blocks.push_back(id);
  }
  if (request.timestamp_ms < latest_ms_) {
    refuse(fmt::format("\"timestamp\" {} is before that of an earlier line, {}; sort the trace",
                       request.timestamp_ms, latest_ms_));
  }
  latest_ms_ = request.timestamp_ms;
  return request;
}

std::vector<TraceRequest> read_trace(const std::string& path, std::uint64_t limit) {
  std::ifstream input(path);
  if (!input) throw TraceError(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  TraceReader reader(input, path);
  std::vector<TraceRequest> requests;
  while (limit == 0 || requests.size() < limit) {
    auto request = reader.next();
    if (!request) break;
    requests.push_back(std::move(*request));
  }
  if (requests.empty()) throw TraceError(path + ": holds no request");
  return requests;
}

}  // namespace penstock::workload

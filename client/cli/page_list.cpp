#include "client/cli/page_list.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "client/cli/quantity.hpp"
#include "client/cli/usage_error.hpp"

namespace penstock::cli {
namespace {

/// Calls with each line, its number, and without its comment.
template <class Callback>
void for_each_line(std::string_view text, Callback&& callback) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    auto end = text.find('\n');
    auto line = text.substr(0, end);
    callback(line.substr(0, line.find('#')), number);
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> words;
  for (;;) {
    auto begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return words;
    text.remove_prefix(begin);
    auto end = text.find_first_of(separators);
    words.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return words;
    text.remove_prefix(end);
  }
}

std::uint32_t parse_page(std::string_view text) {
  auto page = parse_u64(text, "page");
  if (page > UINT32_MAX) throw UsageError(fmt::format("page {} is beyond 32 bits", text));
  return static_cast<std::uint32_t>(page);
}

void append_run(std::vector<std::uint32_t>& pages, std::uint32_t first, std::uint32_t last) {
  std::uint64_t count = std::uint64_t{first < last ? last - first : first - last} + 1;
  if (count > kMaxPages - pages.size()) {
    throw UsageError(fmt::format("the list holds more than {} pages; split it", kMaxPages));
  }
  for (std::uint32_t page = first;; first < last ? ++page : --page) {
    pages.push_back(page);
    if (page == last) return;
  }
}

}  // namespace

std::vector<std::uint32_t> parse_page_list(std::string_view text) {
  std::vector<std::uint32_t> pages;
  for_each_line(text, [&](std::string_view line, std::size_t) {
    for (auto word : split(line, ", \t\r")) {
      auto dash = word.find('-');
      auto first = parse_page(word.substr(0, dash));
      auto last = dash == std::string_view::npos ? first : parse_page(word.substr(dash + 1));
      append_run(pages, first, last);
    }
  });
  return pages;
}

std::vector<std::uint32_t> page_list_or_file(const std::string& argument) {
  bool literal = !argument.empty() && argument[0] >= '0' && argument[0] <= '9';
  if (literal) return parse_page_list(argument);
  try {
    return parse_page_list(read_text(argument));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("page list {}: {}", argument, error.what()));
  }
}

std::vector<client::Range> parse_ranges(std::string_view text) {
  std::vector<client::Range> ranges;
  for_each_line(text, [&](std::string_view line, std::size_t number) {
    auto words = split(line, ", \t\r");
    if (words.empty()) return;
    if (words.size() != 3) {
      throw UsageError(fmt::format("line {}: a range is SOURCE DESTINATION LENGTH, found {} words",
                                   number, words.size()));
    }
    try {
      ranges.push_back({parse_bytes(words[0]), parse_bytes(words[1]), parse_bytes(words[2])});
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("line {}: {}", number, error.what()));
    }
  });
  return ranges;
}

std::vector<client::BasePair> parse_bases(std::string_view text) {
  std::vector<client::BasePair> bases;
  for (auto word : split(text, ", ")) {
    auto colon = word.find(':');
    if (colon == std::string_view::npos) {
      throw UsageError(fmt::format("base '{}': write SOURCE:DESTINATION", word));
    }
    bases.push_back({parse_bytes(word.substr(0, colon)), parse_bytes(word.substr(colon + 1))});
  }
  if (bases.empty()) throw UsageError("an empty list of bases; write SOURCE:DESTINATION,...");
  return bases;
}

client::Target parse_target(std::string_view text) {
  auto colon = text.find(':');
  client::Target target;
  if (colon != std::string_view::npos) {
    target.node = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  target.region = text;
  if (target.region.empty() || text.find(':') != std::string_view::npos) {
    throw UsageError("a target is NODE:REGION, or REGION on the service's own node");
  }
  return target;
}

std::string read_text(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UsageError(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace penstock::cli

// What a transfer is made of, as typed: page lists, ranges, base pairs, targets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/layout.hpp"
#include "client/cpp/transfer.hpp"

namespace penstock::cli {

/// "0-9,12,40-31": indexes and runs, both ends included, a run may go down; separated by commas or
/// white space; '#' starts a comment. Throws UsageError. A run may not make the list longer than
/// kMaxPages.
std::vector<std::uint32_t> parse_page_list(std::string_view text);
inline constexpr std::size_t kMaxPages = std::size_t{1} << 28;

/// A page list itself when it starts with a digit, else the file that it names ("-": standard
/// input).
std::vector<std::uint32_t> page_list_or_file(const std::string& argument);

/// Lines "SOURCE DESTINATION LENGTH", sizes as in parse_bytes; '#' starts a comment. Throws
/// UsageError that names the line.
std::vector<client::Range> parse_ranges(std::string_view text);
/// "SOURCE:DESTINATION,..." base pairs.
std::vector<client::BasePair> parse_bases(std::string_view text);
/// "NODE:REGION", or "REGION" or ":REGION" for the service's own node.
client::Target parse_target(std::string_view text);

/// The whole file; "-": standard input. Throws UsageError.
std::string read_text(const std::string& path);

}  // namespace penstock::cli

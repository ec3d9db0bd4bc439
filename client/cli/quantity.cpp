#include "client/cli/quantity.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "client/cli/usage_error.hpp"

namespace penstock::cli {
namespace {

constexpr std::string_view kUnits = "KMGT";

/// The factor of a unit such as "", "B", "K", "kB" or "KiB"; 0 when it is none.
std::uint64_t factor_of(std::string_view unit) {
  if (unit.empty() || unit == "B") return 1;
  char letter = unit[0] == 'k' ? 'K' : unit[0];
  auto place = kUnits.find(letter);
  auto rest = unit.substr(1);
  if (place == std::string_view::npos || !(rest.empty() || rest == "B" || rest == "iB")) return 0;
  return std::uint64_t{1} << (10 * (place + 1));
}

[[noreturn]] void refuse_size(std::string_view text) {
  throw UsageError(
      fmt::format("'{}' is no size; write bytes, or a number with K, M, G or T", text));
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text) {
  auto digits_end = text.find_first_not_of("0123456789.");
  auto digits = text.substr(0, digits_end);
  auto unit = digits_end == std::string_view::npos ? std::string_view{} : text.substr(digits_end);
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  auto factor = factor_of(unit);
  if (digits.empty() || factor == 0) refuse_size(text);
  const char* end = digits.data() + digits.size();
  std::uint64_t whole = 0;
  if (auto [stop, problem] = std::from_chars(digits.data(), end, whole);
      problem == std::errc() && stop == end) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(whole, factor, &bytes)) refuse_size(text);
    return bytes;
  }
  double number = 0;
  auto [stop, problem] = std::from_chars(digits.data(), end, number);
  double bytes = number * static_cast<double>(factor);
  // Beyond 2^53 a double no longer holds every byte.
  if (problem != std::errc() || stop != end || bytes != std::floor(bytes) || bytes > 0x1p53) {
    refuse_size(text);
  }
  return static_cast<std::uint64_t>(bytes);
}

std::uint64_t parse_duration_ms(std::string_view text) {
  const auto digits_end = text.find_first_not_of("0123456789.");
  const auto digits = text.substr(0, digits_end);
  const auto unit =
      digits_end == std::string_view::npos ? std::string_view("s") : text.substr(digits_end);
  const double factor = unit == "ms"  ? 1
                        : unit == "s" ? 1e3
                        : unit == "m" ? 60e3
                        : unit == "h" ? 3600e3
                                      : 0;
  double number = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, problem] = std::from_chars(digits.data(), end, number);
  const double ms = number * factor;
  if (digits.empty() || factor == 0 || problem != std::errc() || stop != end || ms > 0x1p53)
    throw UsageError(
        fmt::format("'{}' is no duration; write seconds, or a number with ms, s, m or h", text));
  return static_cast<std::uint64_t>(std::llround(ms));
}

std::uint64_t parse_u64(std::string_view text, std::string_view what) {
  int base = 10;
  auto digits = text;
  if (digits.starts_with("0x")) {
    base = 16;
    digits.remove_prefix(2);
  }
  std::uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  auto [stop, problem] = std::from_chars(digits.data(), end, value, base);
  if (problem != std::errc() || stop != end) {
    throw UsageError(fmt::format("{} '{}' is no whole number of 64 bits", what, text));
  }
  return value;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 7> kNames{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kNames[unit]);
}

std::string format_gbps(std::uint64_t bytes, std::uint64_t elapsed_us) {
  if (elapsed_us == 0) return "0.0";
  return fmt::format("{:.1f}", static_cast<double>(bytes) * 8e-3 / static_cast<double>(elapsed_us));
}

std::string format_time_us(std::uint64_t us) {
  if (us < 1000) return fmt::format("{} us", us);
  if (us < 1000000) return fmt::format("{:.1f} ms", static_cast<double>(us) / 1e3);
  return fmt::format("{:.2f} s", static_cast<double>(us) / 1e6);
}

}  // namespace penstock::cli

// Sizes, rates and times as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::cli {

/// "4096", "64K", "64KiB", "1.5G": K, M, G, T are powers of 1024, with or without "iB" or "B".
/// Throws UsageError, also for more than 64 bits and for a fraction of a byte.
std::uint64_t parse_bytes(std::string_view text);
/// Milliseconds: "1500ms", "60s", "2m", "1h"; without a unit seconds. Throws UsageError.
std::uint64_t parse_duration_ms(std::string_view text);
/// A whole number in decimal, or in hex with 0x. Throws UsageError that names `what`.
std::uint64_t parse_u64(std::string_view text, std::string_view what);

/// "512 B", "64.0 KiB", "1.5 GiB".
std::string format_bytes(std::uint64_t bytes);
/// Gigabits per second, "0.0" when no time passed.
std::string format_gbps(std::uint64_t bytes, std::uint64_t elapsed_us);
/// "850 us", "12.3 ms", "4.56 s".
std::string format_time_us(std::uint64_t us);

}  // namespace penstock::cli

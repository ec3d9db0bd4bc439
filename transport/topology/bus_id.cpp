#include "transport/topology/bus_id.hpp"

#include <charconv>
#include <optional>

namespace penstock {
namespace {

std::optional<unsigned> hex_number(std::string_view digits, std::size_t at_most) {
  if (digits.empty() || digits.size() > at_most) return std::nullopt;
  unsigned value = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, value, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

}  // namespace

std::string format_bus_id(unsigned domain, unsigned bus, unsigned slot, unsigned function) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, slot, function);
}

Result<std::string> normal_bus_id(std::string_view text) {
  const auto wrong = [&] {
    return fail(ErrorCode::kInvalidArgument,
                "'{}' is not a PCI bus id; write it as lspci -D does: 0000:4f:00.0", text);
  };
  std::string_view rest = text;
  std::optional<unsigned> domain = 0;
  const std::size_t last_colon = rest.rfind(':');
  if (last_colon == std::string_view::npos) return wrong();
  if (const std::size_t first_colon = rest.find(':'); first_colon != last_colon) {
    domain = hex_number(rest.substr(0, first_colon), 8);
    rest.remove_prefix(first_colon + 1);
  }
  const std::size_t colon = rest.find(':');
  const std::size_t dot = rest.find('.', colon);
  if (colon != rest.rfind(':') || dot == std::string_view::npos) return wrong();
  const auto bus = hex_number(rest.substr(0, colon), 2);
  const auto slot = hex_number(rest.substr(colon + 1, dot - colon - 1), 2);
  const auto function = hex_number(rest.substr(dot + 1), 1);
  if (!domain || !bus || !slot || !function || *slot > 31 || *function > 7) return wrong();
  return format_bus_id(*domain, *bus, *slot, *function);
}

}  // namespace penstock

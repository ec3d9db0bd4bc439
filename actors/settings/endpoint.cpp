#include "actors/settings/endpoint.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

namespace penstock {
namespace {

constexpr std::size_t kLongestHost = 253;
constexpr std::size_t kLongestIpcPath = 107;  // sun_path, with its terminating zero
constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kIpc = "ipc://";

bool is_ipv4(std::string_view text) {
  in_addr address;
  return inet_pton(AF_INET, std::string(text).c_str(), &address) == 1;
}

bool is_ipv6(std::string_view text) {
  const std::size_t percent = text.find('%');
  if (percent != std::string_view::npos && percent + 1 == text.size()) return false;
  in6_addr address;
  return inet_pton(AF_INET6, std::string(text.substr(0, percent)).c_str(), &address) == 1;
}

bool is_host_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  };
  const bool numeric = text.find_first_not_of("0123456789.") == std::string_view::npos;
  return !text.empty() && text.size() <= kLongestHost && !numeric && text.front() != '.' &&
         text.front() != '-' && std::all_of(text.begin(), text.end(), allowed);
}

Result<void> check_port(std::string_view port, EndpointUse use, std::string_view endpoint) {
  if (use == EndpointUse::kBind && port == "*") return {};
  unsigned number = 0;
  const char* end = port.data() + port.size();
  const auto parsed = std::from_chars(port.data(), end, number);
  const unsigned smallest = use == EndpointUse::kBind ? 0 : 1;
  if (port.empty() || parsed.ec != std::errc() || parsed.ptr != end || number < smallest ||
      number > 65535)
    return fail(ErrorCode::kInvalidArgument, "'{}': the port '{}' is not a number from {} to 65535",
                endpoint, port, smallest);
  return {};
}

Result<void> check_tcp(std::string_view endpoint, EndpointUse use) {
  const std::string_view rest = endpoint.substr(kTcp.size());
  const std::size_t colon = rest.rfind(':');
  const std::size_t bracket = rest.rfind(']');
  if (colon == std::string_view::npos || (bracket != std::string_view::npos && colon < bracket))
    return fail(ErrorCode::kInvalidArgument, "'{}': no port; write tcp://host:port", endpoint);
  std::string_view host = rest.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool wildcard = host == "*" || host == "0.0.0.0" || host == "::";
  if (use == EndpointUse::kConnect && wildcard)
    return fail(ErrorCode::kInvalidArgument, "'{}': nobody can connect to '{}'; name a host",
                endpoint, host);
  if (bracketed ? !is_ipv6(host) : !(host == "*" || is_ipv4(host) || is_host_name(host)))
    return fail(ErrorCode::kInvalidArgument,
                "'{}': '{}' is not a host name or address (IPv6 goes in brackets)", endpoint, host);
  return check_port(rest.substr(colon + 1), use, endpoint);
}

}  // namespace

Result<void> check_endpoint(std::string_view endpoint, EndpointUse use, bool allow_ipc) {
  if (endpoint.starts_with(kTcp)) return check_tcp(endpoint, use);
  if (!allow_ipc || !endpoint.starts_with(kIpc))
    return fail(ErrorCode::kInvalidArgument, "'{}' is not an endpoint; write tcp://host:port{}",
                endpoint, allow_ipc ? " or ipc:///path" : "");
  const std::string_view path = endpoint.substr(kIpc.size());
  if (path.empty())
    return fail(ErrorCode::kInvalidArgument, "'{}' has no path; write ipc:///path", endpoint);
  if (path.front() == '@')
    return fail(ErrorCode::kInvalidArgument,
                "'{}': an abstract socket has no file whose mode would guard it; write ipc:///path",
                endpoint);
  if (path.size() > kLongestIpcPath)
    return fail(ErrorCode::kInvalidArgument, "'{}': the path has {} characters; 1 to {} fit",
                endpoint, path.size(), kLongestIpcPath);
  return {};
}

bool is_local(std::string_view endpoint) {
  if (!endpoint.starts_with(kTcp)) return endpoint.starts_with(kIpc);
  std::string_view host = endpoint.substr(kTcp.size());
  host = host.substr(0, host.rfind(':'));
  if (host == "localhost" || host == "[::1]") return true;
  return is_ipv4(host) && host.starts_with("127.");
}

Result<void> check_host(std::string_view host) {
  if (is_ipv4(host) || is_ipv6(host) || is_host_name(host)) return {};
  if (host.find("://") != std::string_view::npos)
    return fail(ErrorCode::kInvalidArgument, "'{}' is an endpoint; only a host is wanted here",
                host);
  if (host.find(':') != std::string_view::npos)
    return fail(ErrorCode::kInvalidArgument,
                "'{}' has a port inside or is a broken address; only a host is wanted here "
                "(IPv6 without brackets)",
                host);
  return fail(ErrorCode::kInvalidArgument, "'{}' is not a host name or address", host);
}

Result<void> check_numeric_address(std::string_view address) {
  if (is_ipv4(address) || is_ipv6(address)) return {};
  if (is_host_name(address))
    return fail(ErrorCode::kInvalidArgument, "'{}' is a name; a numeric address is wanted here",
                address);
  const auto host = check_host(address);
  return host ? fail(ErrorCode::kInvalidArgument, "'{}' is not an address", address) : host;
}

}  // namespace penstock

#include "actors/protocol/scan.hpp"

#include <fmt/format.h>

#include <msgpack.hpp>
#include <string_view>

namespace penstock {
namespace {

class ScanVisitor : public msgpack::null_visitor {
 public:
  explicit ScanVisitor(std::size_t message_bytes) : message_bytes_(message_bytes) {}

  Scan take(std::size_t parsed_bytes, bool whole) {
    if (whole && parsed_bytes != message_bytes_)
      refuse(fmt::format("{} bytes follow the request's map; send one map per message",
                         message_bytes_ - parsed_bytes));
    if (!whole) refuse("the message is not msgpack");  // unless a reason is known already
    return std::move(scan_);
  }

  bool start_array(std::uint32_t elements) { return enter(elements); }
  bool start_map(std::uint32_t pairs) { return enter(2 * std::uint64_t{pairs}); }
  bool end_array() { return leave(); }
  bool end_map() { return leave(); }

  bool start_map_key() {
    if (depth_ == 1) in_top_key_ = true, key_is_id_ = false;
    return true;
  }
  bool end_map_key() {
    if (depth_ == 1) in_top_key_ = false;
    return true;
  }
  bool visit_str(const char* text, std::uint32_t size) {
    if (depth_ == 1 && in_top_key_) key_is_id_ = std::string_view(text, size) == "id";
    return true;
  }
  bool visit_positive_integer(std::uint64_t value) {
    if (depth_ == 1 && !in_top_key_ && key_is_id_ && !id_seen_) {
      scan_.id = value;
      id_seen_ = true;
    }
    return true;
  }
  bool visit_negative_integer(std::int64_t value) {
    return value < 0 || visit_positive_integer(static_cast<std::uint64_t>(value));
  }
  bool visit_ext(const char*, std::uint32_t) {
    return refuse("the message holds a msgpack extension type; this protocol uses none");
  }

  void parse_error(std::size_t, std::size_t offset) {
    refuse(fmt::format("the message is not msgpack: byte {} starts no value", offset));
  }
  void insufficient_bytes(std::size_t, std::size_t offset) {
    if (message_bytes_ == 0)
      refuse("the message is empty; a request is one msgpack map");
    else
      refuse(fmt::format("the message is truncated: the value at byte {} of {} goes on", offset,
                         message_bytes_));
  }

 private:
  bool enter(std::uint64_t elements) {
    if (++depth_ > kMaxDepth)
      return refuse(fmt::format("the message is nested deeper than {}", kMaxDepth));
    elements_ += elements;
    if (elements_ > message_bytes_)
      return refuse(fmt::format("the message declares at least {} values but has only {} bytes",
                                elements_, message_bytes_));
    if (elements_ > kMaxElements)
      return refuse(
          fmt::format("the message holds more than {} values; send lists as BIN", kMaxElements));
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }
  bool refuse(std::string why) {
    if (!scan_.error) scan_.error = Error{ErrorCode::kInvalidArgument, std::move(why)};
    return false;
  }

  Scan scan_;
  std::size_t message_bytes_;
  std::size_t depth_ = 0;
  std::uint64_t elements_ = 0;
  bool in_top_key_ = false;
  bool key_is_id_ = false;
  bool id_seen_ = false;
};

}  // namespace

Scan scan_message(std::span<const std::byte> message) {
  ScanVisitor visitor(message.size());
  std::size_t parsed = 0;
  bool whole = msgpack::parse(reinterpret_cast<const char*>(message.data()), message.size(), parsed,
                              visitor);
  return visitor.take(parsed, whole);
}

}  // namespace penstock

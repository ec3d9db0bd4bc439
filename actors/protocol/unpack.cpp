#include "actors/protocol/unpack.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace penstock {
namespace {

/// Puts each value where it belongs; every function is false once the message is refused.
class Builder : public msgpack::null_visitor {
 public:
  Builder(std::size_t message_bytes, msgpack::zone& zone)
      : message_bytes_(message_bytes), zone_(zone) {}

  Unpacked take(std::size_t parsed_bytes, bool whole) {
    if (whole && parsed_bytes != message_bytes_)
      refuse(fmt::format("{} bytes follow the request's map; send one map per message",
                         message_bytes_ - parsed_bytes));
    if (!whole) refuse("the message is not msgpack");  // unless a reason is known already
    return std::move(unpacked_);
  }

  // -- values ------------------------------------------------------------------------------------

  bool visit_nil() {
    here_->type = msgpack::type::NIL;
    return true;
  }
  bool visit_boolean(bool value) {
    here_->type = msgpack::type::BOOLEAN;
    here_->via.boolean = value;
    return true;
  }
  bool visit_positive_integer(std::uint64_t value) {
    here_->type = msgpack::type::POSITIVE_INTEGER;
    here_->via.u64 = value;
    return true;
  }
  bool visit_negative_integer(std::int64_t value) {
    if (value >= 0) return visit_positive_integer(static_cast<std::uint64_t>(value));
    here_->type = msgpack::type::NEGATIVE_INTEGER;
    here_->via.i64 = value;
    return true;
  }
  bool visit_float32(float value) {
    here_->type = msgpack::type::FLOAT32;
    here_->via.f64 = value;
    return true;
  }
  bool visit_float64(double value) {
    here_->type = msgpack::type::FLOAT64;
    here_->via.f64 = value;
    return true;
  }
  bool visit_str(const char* text, std::uint32_t size) {
    here_->type = msgpack::type::STR;
    here_->via.str = {size, text};
    return true;
  }
  bool visit_bin(const char* bytes, std::uint32_t size) {
    here_->type = msgpack::type::BIN;
    here_->via.bin = {size, bytes};
    return true;
  }
  bool visit_ext(const char*, std::uint32_t) {
    return refuse("the message holds a msgpack extension type; this protocol uses none");
  }

  // -- containers --------------------------------------------------------------------------------

  bool start_array(std::uint32_t items) {
    if (!may_hold(items)) return false;
    auto* array = memory<msgpack::object>(items);
    here_->type = msgpack::type::ARRAY;
    here_->via.array = {items, array};
    inside_.at(depth_++).item = array;
    return true;
  }
  bool start_array_item() {
    here_ = inside().item++;
    return true;
  }
  bool end_array() { return leave(); }
  bool start_map(std::uint32_t pairs) {
    if (!may_hold(2 * std::uint64_t{pairs})) return false;
    auto* map = memory<msgpack::object_kv>(pairs);
    here_->type = msgpack::type::MAP;
    here_->via.map = {pairs, map};
    inside_.at(depth_++).pair = map;
    return true;
  }
  bool start_map_key() {
    here_ = &inside().pair->key;
    return true;
  }
  bool start_map_value() {
    here_ = &inside().pair->val;
    return true;
  }
  bool end_map_value() {
    const msgpack::object_kv& pair = *inside().pair++;
    if (depth_ == 1 && !id_seen_) note_id(pair);
    return true;
  }
  bool end_map() { return leave(); }

  // -- what is wrong -----------------------------------------------------------------------------

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
  /// Of a container: where its next value goes.
  union Place {
    msgpack::object* item;
    msgpack::object_kv* pair;
  };

  Place& inside() { return inside_[depth_ - 1]; }
  bool leave() {
    --depth_;
    return true;
  }
  /// A container of so many values.
  bool may_hold(std::uint64_t values) {
    if (depth_ == kMaxDepth)
      return refuse(fmt::format("the message is nested deeper than {}", kMaxDepth));
    values_ += values;
    if (values_ > message_bytes_)
      return refuse(fmt::format("the message declares at least {} values but has only {} bytes",
                                values_, message_bytes_));
    if (values_ > kMaxElements)
      return refuse(
          fmt::format("the message holds more than {} values; send lists as BIN", kMaxElements));
    return true;
  }
  template <class T>
  T* memory(std::size_t count) {
    if (count == 0) return nullptr;
    return static_cast<T*>(zone_.allocate_align(count * sizeof(T), alignof(T)));
  }
  void note_id(const msgpack::object_kv& pair) {
    if (pair.key.type != msgpack::type::STR || pair.val.type != msgpack::type::POSITIVE_INTEGER ||
        std::string_view(pair.key.via.str.ptr, pair.key.via.str.size) != "id")
      return;
    unpacked_.id = pair.val.via.u64;
    id_seen_ = true;
  }
  bool refuse(std::string why) {
    if (!unpacked_.error) unpacked_.error = Error{ErrorCode::kInvalidArgument, std::move(why)};
    return false;
  }

  const std::size_t message_bytes_;
  msgpack::zone& zone_;
  Unpacked unpacked_;
  msgpack::object* here_ = &unpacked_.value;
  std::array<Place, kMaxDepth> inside_{};
  std::size_t depth_ = 0;
  std::uint64_t values_ = 0;  // that containers have declared
  bool id_seen_ = false;
};

}  // namespace

Unpacked unpack_message(std::span<const std::byte> message, msgpack::zone& zone) {
  Builder builder(message.size(), zone);
  std::size_t parsed = 0;
  const bool whole = msgpack::parse(reinterpret_cast<const char*>(message.data()), message.size(),
                                    parsed, builder);
  return builder.take(parsed, whole);
}

}  // namespace penstock

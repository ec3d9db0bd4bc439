// Structures as msgpack, described once and used in both directions:
//
//   template <class Archive>
//   void fields(Archive& archive, typename Archive::template Ref<Fin> m) {
//     archive(m.transfer, m.device);
//   }
//
// A structure is an array of its fields, a variant is [alternative, value], an optional is nil or
// the value. A longer array than expected is one of a newer version: the rest is ignored.
// Alternatives and fields are therefore only ever added at the end.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <msgpack.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "actors/wire/inline_bytes.hpp"
#include "actors/wire/msgpack_cursor.hpp"
#include "transport/error.hpp"
#include "transport/fabric/nic.hpp"

namespace penstock {

/// Longest text, address and list that is written or read.
inline constexpr std::size_t kMaxTextBytes = 4096;
inline constexpr std::size_t kMaxAddressBytes = 1024;
inline constexpr std::size_t kMaxListEntries = 1024;

/// The last value of an enumeration that travels as a number.
template <class E>
inline constexpr E kLastOf = E{};
template <>
inline constexpr Direction kLastOf<Direction> = Direction::kRead;

/// A field that messages of earlier versions do not have: it keeps its value when it is missing.
/// Behind all others.
template <class T>
struct Added {
  T& value;
};
template <class T>
Added<T> added(T& value) {
  return {value};
}
template <class T>
inline constexpr bool kIsAdded = false;
template <class T>
inline constexpr bool kIsAdded<Added<T>> = true;

class ArchiveWriter {
 public:
  template <class T>
  using Ref = const T&;

  ArchiveWriter() : packer_(sink_) { sink_.bytes.reserve(kUsualBytes); }

  template <class... Fields>
  void operator()(const Fields&... values) {
    packer_.pack_array(sizeof...(Fields));
    (value(values), ...);
  }

  template <class T>
  requires std::is_class_v<T>
  void value(const T& structure) { fields(*this, structure); }
  template <class T>
  void value(const Added<T>& field) {
    value(field.value);
  }
  template <std::unsigned_integral T>
  void value(T number) {
    packer_.pack(number);
  }
  template <class E>
  requires std::is_enum_v<E>
  void value(E e) { packer_.pack(static_cast<std::uint64_t>(e)); }
  void value(const std::string& text) {
    check_length("text", text.size(), kMaxTextBytes);
    packer_.pack_str(static_cast<std::uint32_t>(text.size()));
    packer_.pack_str_body(text.data(), static_cast<std::uint32_t>(text.size()));
  }
  void value(const FabricAddress& address) {
    check_length("address", address.size(), kMaxAddressBytes);
    packer_.pack_bin(static_cast<std::uint32_t>(address.size()));
    packer_.pack_bin_body(reinterpret_cast<const char*>(address.data()),
                          static_cast<std::uint32_t>(address.size()));
  }
  void value(const InlineBytes& data) {
    check_length("inline data", data.bytes.size(), kMaxInlineBytes);
    sink_.bytes.reserve(sink_.bytes.size() + data.bytes.size() + 2 * kUsualBytes);
    packer_.pack_bin(static_cast<std::uint32_t>(data.bytes.size()));
    packer_.pack_bin_body(reinterpret_cast<const char*>(data.bytes.data()),
                          static_cast<std::uint32_t>(data.bytes.size()));
  }
  void value(const Error& error) { (*this)(std::string(name_of(error.code)), error.message); }
  template <class T>
  void value(const std::vector<T>& list) {
    check_length("list", list.size(), kMaxListEntries);
    packer_.pack_array(static_cast<std::uint32_t>(list.size()));
    for (const T& entry : list) value(entry);
  }
  template <class T>
  void value(const std::optional<T>& maybe) {
    if (maybe)
      value(*maybe);
    else
      packer_.pack_nil();
  }
  template <class... Alternatives>
  void value(const std::variant<Alternatives...>& variant) {
    packer_.pack_array(2);
    packer_.pack(static_cast<std::uint32_t>(variant.index()));
    std::visit([this](const auto& alternative) { this->value(alternative); }, variant);
  }

  std::vector<std::byte> take() {
    sink_.flush();
    return std::move(sink_.bytes);
  }
  /// Names the first thing that is too long for any reader; empty: none.
  const std::string& problem() const { return problem_; }

 private:
  static constexpr std::size_t kUsualBytes = 256;

  /// What msgpack writes comes in pieces of a few bytes, which are gathered before they are put at
  /// the vector's end.
  struct Sink {
    std::vector<std::byte> bytes;
    std::array<std::byte, kUsualBytes> gathered;
    std::size_t used = 0;

    void write(const char* data, std::size_t size) {
      if (size == 0) return;  // `data` may be null
      if (size > gathered.size() - used) flush();
      const auto* first = reinterpret_cast<const std::byte*>(data);
      if (size > gathered.size()) {
        bytes.insert(bytes.end(), first, first + size);
        return;
      }
      std::memcpy(gathered.data() + used, first, size);
      used += size;
    }
    void flush() {
      bytes.insert(bytes.end(), gathered.begin(), gathered.begin() + used);
      used = 0;
    }
  };

  void check_length(std::string_view what, std::size_t size, std::size_t most) {
    if (size > most && problem_.empty())
      problem_ = fmt::format("a {} of {} (at most {})", what, size, most);
  }

  Sink sink_;
  msgpack::packer<Sink> packer_;
  std::string problem_;
};

/// Reads values from where `in` stands. After the first problem the rest is left as it is.
class ArchiveReader {
 public:
  template <class T>
  using Ref = T&;

  /// `only_start`: what comes behind the fields of the outermost structure is not looked at.
  explicit ArchiveReader(std::span<const std::byte> bytes, bool only_start = false)
      : in_(bytes), only_start_(only_start) {}

  template <class... Fields>
  void operator()(Fields&&... values) {
    constexpr std::size_t kRequired = (std::size_t{!kIsAdded<Fields>} + ... + 0);
    const auto count = array("an array");
    if (!count) return;
    if (*count < kRequired) return refuse(fmt::format("{} fields of {}", *count, kRequired));
    const bool leave_the_rest = std::exchange(only_start_, false);
    [[maybe_unused]] std::uint64_t position = 0;  // of a structure without fields
    (field(*count, position, values), ...);
    if (!leave_the_rest && good() && *count > position && !in_.skip(*count - position)) broken();
  }

  template <class T>
  requires std::is_class_v<T>
  void value(T& structure) { fields(*this, structure); }
  template <std::unsigned_integral T>
  void value(T& number) {
    if constexpr (std::is_same_v<T, bool>) {
      const auto item = take(Kind::kTruth, "true or false");
      if (good()) number = item.number != 0;
    } else {
      const auto item = take(Kind::kNumber, "a whole number, not negative");
      if (!good()) return;
      if (item.number > std::numeric_limits<T>::max())
        return refuse(fmt::format("{} is above {}", item.number, std::numeric_limits<T>::max()));
      number = static_cast<T>(item.number);
    }
  }
  template <class E>
  requires std::is_enum_v<E>
  void value(E& e) {
    std::uint64_t number = 0;
    value(number);
    if (number > static_cast<std::uint64_t>(kLastOf<E>))
      return refuse(fmt::format("{} is no value of this enumeration", number));
    e = static_cast<E>(number);
  }
  void value(std::string& text) {
    const auto item = take(Kind::kText, "text");
    if (!good()) return;
    if (item.number > kMaxTextBytes) return refuse(fmt::format("a text of {} bytes", item.number));
    text.assign(reinterpret_cast<const char*>(item.body.data()), item.body.size());
  }
  void value(FabricAddress& address) { binary(address, kMaxAddressBytes); }
  void value(InlineBytes& data) { binary(data.bytes, kMaxInlineBytes); }
  void value(Error& error) {
    std::string name;
    (*this)(name, error.message);
    error.code = error_code_of(name);
  }
  template <class T>
  void value(std::vector<T>& list) {
    const auto count = array("a list");
    if (!count) return;
    if (*count > kMaxListEntries) return refuse(fmt::format("a list of {}", *count));
    list.resize(*count);
    for (std::size_t i = 0; i < list.size() && good(); ++i) value(list[i]);
  }
  template <class T>
  void value(std::optional<T>& maybe) {
    maybe.reset();
    auto behind = in_;
    if (behind.next().kind != Kind::kNil) return value(maybe.emplace());
    in_ = behind;
  }
  template <class... Alternatives>
  void value(std::variant<Alternatives...>& variant) {
    const auto count = array("[kind, value]");
    if (!count) return;
    if (*count < 2) return refuse("expected [kind, value]");
    std::uint32_t kind = 0;
    value(kind);
    if (good() && kind >= sizeof...(Alternatives))
      return refuse(fmt::format("unknown kind {}", kind));
    if (good()) alternative(variant, kind, std::index_sequence_for<Alternatives...>());
    if (good() && !in_.skip(*count - 2)) broken();
  }

  /// What is wrong; empty: nothing.
  const std::string& problem() const { return problem_; }
  std::size_t bytes_left() const { return in_.left().size(); }

 private:
  using Kind = MsgpackCursor::Kind;

  bool good() const { return problem_.empty(); }
  MsgpackCursor::Item take(Kind kind, std::string_view expected) {
    if (!good()) return {};
    const auto item = in_.next();
    if (item.kind == Kind::kBroken)
      broken();
    else if (item.kind != kind)
      refuse(fmt::format("expected {}", expected));
    return item;
  }
  std::optional<std::uint64_t> array(std::string_view expected) {
    const auto item = take(Kind::kArray, expected);
    return good() ? std::optional(item.number) : std::nullopt;
  }
  void binary(std::vector<std::byte>& bytes, std::size_t most) {
    const auto item = take(Kind::kBinary, "binary");
    if (!good()) return;
    if (item.number > most)
      return refuse(fmt::format("binary of {} bytes, at most {}", item.number, most));
    bytes.assign(item.body.begin(), item.body.end());
  }
  template <class T>
  void field(std::uint64_t count, std::uint64_t& position, T& into) {
    if (!good() || position >= count) return;  // without the last ones: they were added later
    if constexpr (kIsAdded<T>)
      value(into.value);
    else
      value(into);
    if (!good()) problem_ = fmt::format("field {}: {}", position, problem_);
    ++position;
  }
  template <class Variant, std::size_t... I>
  void alternative(Variant& variant, std::size_t kind, std::index_sequence<I...>) {
    ((I == kind ? value(variant.template emplace<I>()) : void()), ...);
  }
  void broken() { refuse("not msgpack, or cut off"); }
  void refuse(std::string why) {
    if (good()) problem_ = std::move(why);
  }

  MsgpackCursor in_;
  bool only_start_;
  std::string problem_;
};

/// The structure that these bytes are; they allocate at most in proportion to their number.
/// kInvalidArgument for anything else, also for more behind it.
template <class T>
Result<T> unarchive(std::span<const std::byte> bytes, std::size_t most) {
  if (bytes.size() > most)
    return fail(ErrorCode::kInvalidArgument, "{} bytes, at most {}", bytes.size(), most);
  Result<T> structure;
  ArchiveReader reader(bytes);
  reader.value(*structure);
  if (!reader.problem().empty()) return fail(ErrorCode::kInvalidArgument, "{}", reader.problem());
  if (reader.bytes_left() > 0)
    return fail(ErrorCode::kInvalidArgument, "{} bytes after the end", reader.bytes_left());
  return structure;
}

/// The first fields of a structure that may be of another version: the rest is not looked at.
template <class T>
Result<T> unarchive_start(std::span<const std::byte> bytes) {
  T start;
  ArchiveReader reader(bytes, true);
  reader.value(start);
  if (!reader.problem().empty()) return fail(ErrorCode::kInvalidArgument, "{}", reader.problem());
  return start;
}

}  // namespace penstock

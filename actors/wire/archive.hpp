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

#include <concepts>
#include <cstddef>
#include <cstdint>
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
#include "transport/error.hpp"
#include "transport/fabric/nic.hpp"

namespace penstock {

/// Longest text, address and list that is written or read.
inline constexpr std::size_t kMaxTextBytes = 4096;
inline constexpr std::size_t kMaxAddressBytes = 1024;
inline constexpr std::size_t kMaxListEntries = 1024;
/// Nesting that any of our structures stays well below.
inline constexpr std::size_t kMaxNesting = 16;

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
    sink_.bytes.reserve(sink_.bytes.size() + data.bytes.size() + kUsualBytes);
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

  std::vector<std::byte> take() { return std::move(sink_.bytes); }
  /// Names the first thing that is too long for any reader; empty: none.
  const std::string& problem() const { return problem_; }

 private:
  static constexpr std::size_t kUsualBytes = 256;

  struct Sink {
    std::vector<std::byte> bytes;
    void write(const char* data, std::size_t size) {
      const auto* first = reinterpret_cast<const std::byte*>(data);
      bytes.insert(bytes.end(), first, first + size);
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

/// Reads one msgpack object. After the first problem the rest is left as it is.
class ArchiveReader {
 public:
  template <class T>
  using Ref = T&;

  ArchiveReader(const msgpack::object& object, std::string& problem)
      : object_(object), problem_(problem) {}

  template <class... Fields>
  void operator()(Fields&&... values) {
    constexpr std::size_t kRequired = (std::size_t{!kIsAdded<Fields>} + ... + 0);
    if (object_.type != msgpack::type::ARRAY) return refuse("expected an array");
    const msgpack::object_array& array = object_.via.array;
    if (array.size < kRequired)
      return refuse(fmt::format("{} fields of {}", array.size, kRequired));
    [[maybe_unused]] std::uint32_t position = 0;  // of a structure without fields
    (field_of(array, position, values), ...);
  }

  template <class T>
  requires std::is_class_v<T>
  void value(T& structure) { fields(*this, structure); }
  template <std::unsigned_integral T>
  void value(T& number) {
    if constexpr (std::is_same_v<T, bool>) {
      if (object_.type != msgpack::type::BOOLEAN) return refuse("expected true or false");
      number = object_.via.boolean;
    } else {
      if (object_.type != msgpack::type::POSITIVE_INTEGER)
        return refuse("expected a whole number, not negative");
      if (object_.via.u64 > std::numeric_limits<T>::max())
        return refuse(
            fmt::format("{} is above {}", object_.via.u64, std::numeric_limits<T>::max()));
      number = static_cast<T>(object_.via.u64);
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
    if (object_.type != msgpack::type::STR) return refuse("expected text");
    if (object_.via.str.size > kMaxTextBytes)
      return refuse(fmt::format("a text of {} bytes", object_.via.str.size));
    text.assign(object_.via.str.ptr, object_.via.str.size);
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
    if (object_.type != msgpack::type::ARRAY) return refuse("expected a list");
    const msgpack::object_array& array = object_.via.array;
    if (array.size > kMaxListEntries) return refuse(fmt::format("a list of {}", array.size));
    list.resize(array.size);
    for (std::uint32_t i = 0; i < array.size && problem_.empty(); ++i)
      ArchiveReader(array.ptr[i], problem_).value(list[i]);
  }
  template <class T>
  void value(std::optional<T>& maybe) {
    maybe.reset();
    if (object_.type == msgpack::type::NIL) return;
    value(maybe.emplace());
  }
  template <class... Alternatives>
  void value(std::variant<Alternatives...>& variant) {
    if (object_.type != msgpack::type::ARRAY || object_.via.array.size < 2)
      return refuse("expected [kind, value]");
    std::uint32_t kind = 0;
    ArchiveReader(object_.via.array.ptr[0], problem_).value(kind);
    if (problem_.empty() && kind >= sizeof...(Alternatives))
      return refuse(fmt::format("unknown kind {}", kind));
    if (problem_.empty())
      alternative(variant, kind, object_.via.array.ptr[1],
                  std::index_sequence_for<Alternatives...>());
  }

 private:
  void binary(std::vector<std::byte>& bytes, std::size_t most) {
    if (object_.type != msgpack::type::BIN) return refuse("expected binary");
    if (object_.via.bin.size > most)
      return refuse(fmt::format("binary of {} bytes, at most {}", object_.via.bin.size, most));
    const auto* first = reinterpret_cast<const std::byte*>(object_.via.bin.ptr);
    bytes.assign(first, first + object_.via.bin.size);
  }
  template <class T>
  void field_of(const msgpack::object_array& array, std::uint32_t& position, T& into) {
    field(array.ptr[position], position, into);
  }
  template <class T>
  void field_of(const msgpack::object_array& array, std::uint32_t& position, Added<T>& into) {
    if (position < array.size) field(array.ptr[position], position, into.value);
  }
  template <class T>
  void field(const msgpack::object& object, std::uint32_t& position, T& into) {
    if (!problem_.empty()) return;
    ArchiveReader(object, problem_).value(into);
    if (!problem_.empty()) problem_ = fmt::format("field {}: {}", position, problem_);
    ++position;
  }
  template <class Variant, std::size_t... I>
  void alternative(Variant& variant, std::size_t kind, const msgpack::object& object,
                   std::index_sequence<I...>) {
    ((I == kind ? ArchiveReader(object, problem_).value(variant.template emplace<I>()) : void()),
     ...);
  }
  void refuse(std::string why) {
    if (problem_.empty()) problem_ = std::move(why);
  }

  const msgpack::object& object_;
  std::string& problem_;
};

/// One complete msgpack object, taken apart but not yet read; refers to the bytes.
class ArchiveDocument {
 public:
  /// Allocates at most in proportion to the bytes; anything before or after one object is an error.
  static Result<ArchiveDocument> parse(std::span<const std::byte> bytes, std::size_t most) {
    if (bytes.size() > most)
      return fail(ErrorCode::kInvalidArgument, "{} bytes, at most {}", bytes.size(), most);
    try {
      const msgpack::unpack_limit limit(bytes.size(), bytes.size(), bytes.size(), bytes.size(),
                                        bytes.size(), kMaxNesting);
      std::size_t offset = 0;
      ArchiveDocument document;
      document.handle_ = msgpack::unpack(
          reinterpret_cast<const char*>(bytes.data()), bytes.size(), offset,
          [](msgpack::type::object_type, std::size_t, void*) { return true; }, nullptr, limit);
      if (offset != bytes.size())
        return fail(ErrorCode::kInvalidArgument, "{} bytes after the end", bytes.size() - offset);
      return document;
    } catch (const std::exception& e) {
      return fail(ErrorCode::kInvalidArgument, "not msgpack: {}", e.what());
    }
  }

  template <class T>
  Result<T> read() const {
    T structure;
    std::string problem;
    ArchiveReader(handle_.get(), problem).value(structure);
    if (!problem.empty()) return fail(ErrorCode::kInvalidArgument, "{}", problem);
    return structure;
  }

 private:
  msgpack::object_handle handle_;
};

}  // namespace penstock

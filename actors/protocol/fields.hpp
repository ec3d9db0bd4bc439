// One msgpack map of a request, read key by key. Every key that is asked for becomes known; when
// the reading ends, a key that nobody asked for is an error, so that a typo is never ignored.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <msgpack.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/error.hpp"
#include "transport/plan/layout.hpp"

namespace penstock {

/// What all maps of one message share. The first error wins; after it every reader does nothing.
struct Decoding {
  std::shared_ptr<const void> owner;
  std::optional<Error> error;
};

/// Where a map is inside the message. Spelled out ("transfers[3].layout") only for an error.
struct Place {
  const Place* parent = nullptr;
  std::string_view key;
  std::optional<std::size_t> index;

  std::string path() const;
  std::string path_of(std::string_view child) const;
};

enum class Presence : unsigned char { kRequired, kOptional };

/// Ids in one list: each may cost an object in the reply.
inline constexpr std::size_t kMaxIds = 100'000;

/// Client text as an error may quote it: printable, cut when long.
std::string quoted(std::string_view text);

class Fields {
 public:
  /// Checks that `object` is a map of distinct string keys. `place` must outlive the Fields.
  Fields(const msgpack::object& object, const Place& place, Decoding& decoding);

  // -- readers: leave `value` alone when the key is absent or anything failed --------------------

  void u64(std::string_view key, std::uint64_t& value, Presence presence, std::uint64_t minimum = 0,
           std::uint64_t maximum = UINT64_MAX) {
    if (const auto* found = find(key, presence)) read_number(key, *found, value, minimum, maximum);
  }
  void u32(std::string_view key, std::uint32_t& value, Presence presence, std::uint32_t minimum = 0,
           std::uint32_t maximum = UINT32_MAX) {
    if (const auto* found = find(key, presence)) read_number(key, *found, value, minimum, maximum);
  }
  void flag(std::string_view key, bool& value) {
    if (const auto* found = find(key, Presence::kOptional)) read_flag(key, *found, value);
  }
  /// A name of [A-Za-z0-9._/-], at most kMaxNameBytes; empty only where it is optional.
  void name(std::string_view key, std::string& value, Presence presence) {
    if (const auto* found = find(key, presence)) read_name(key, *found, value, presence);
  }
  /// Printable ASCII, at most kMaxNameBytes.
  void words(std::string_view key, std::string& value);
  /// BIN or str, any bytes.
  void bytes(std::string_view key, std::string& value, std::size_t maximum) {
    if (const auto* found = find(key, Presence::kOptional)) read_bytes(key, *found, value, maximum);
  }
  /// One of `choices`; returns its place in them.
  std::optional<std::size_t> choice(std::string_view key, std::span<const std::string_view> choices,
                                    Presence presence) {
    const auto* found = find(key, presence);
    return found ? place_in(choices, key, *found) : std::nullopt;
  }
  void choices_list(std::string_view key, std::span<const std::string_view> choices,
                    std::vector<std::string>& values);
  /// A BIN of little-endian T, referred to in place.
  template <class T>
  void list(std::string_view key, BlobList<T>& value, Presence presence, std::string_view element) {
    if (auto blob = blob_of(key, presence, sizeof(T), element))
      value = BlobList<T>(*blob, decoding_.owner);
  }
  /// An array of at most `maximum` printable str of 1 to kMaxNameBytes.
  void texts(std::string_view key, std::vector<std::string>& values, std::size_t maximum);
  /// An array of integers or a BIN of little-endian u64, at most kMaxIds.
  void ids(std::string_view key, std::vector<std::uint64_t>& values, Presence presence);
  /// An array of [source, destination] or a BIN of u64 pairs.
  void base_pairs(std::string_view key, std::vector<BasePair>& pairs);
  /// A nested map: calls read(Fields&), then checks its keys.
  template <class Read>
  void map(std::string_view key, Read&& read) {
    const msgpack::object* found = find(key, Presence::kRequired);
    if (!found) return;
    Place place{&place_, key, std::nullopt};
    Fields fields(*found, place, decoding_);
    if (!decoding_.error) read(fields);
    fields.finish();
  }
  /// An array of 1 to `maximum` maps: calls read(Fields&) for each.
  template <class Read>
  void maps(std::string_view key, std::size_t maximum, Read&& read) {
    auto items = array_of(key, maximum);
    for (std::size_t i = 0; i < items.size() && !decoding_.error; ++i) {
      Place place{&place_, key, i};
      Fields fields(items[i], place, decoding_);
      if (!decoding_.error) read(fields);
      fields.finish();
    }
  }

  /// The map as it came, as msgpack, but for these keys.
  void pack_without(std::initializer_list<std::string_view> left_out,
                    msgpack::packer<msgpack::sbuffer>& packer) const;

  // -- outcome -----------------------------------------------------------------------------------

  /// Reports a key that no reader asked for, else a required one that is missing.
  void finish();
  bool failed() const { return decoding_.error.has_value(); }
  void refuse(ErrorCode code, std::string message);

 private:
  /// Here, since most keys of most maps are asked for in vain.
  const msgpack::object* find(std::string_view key, Presence presence) {
    if (failed()) return nullptr;
    if (known_count_ < kMaxKeys) known_[known_count_++] = {key.data(), key.size()};
    if ((tags_there_ >> tag_of(key) & 1) != 0)
      if (const auto* found = look_up(key)) return found;
    if (presence == Presence::kRequired && missing_.empty()) missing_ = key;
    return nullptr;
  }
  const msgpack::object* look_up(std::string_view key);
  /// One of 64: most keys of a map have one of their own.
  static std::uint8_t tag_of(std::string_view key) {
    const std::size_t first = key.empty() ? 0 : static_cast<unsigned char>(key.front());
    return static_cast<std::uint8_t>((first + 8 * key.size()) % 64);
  }
  void wrong_type(std::string_view key, std::string_view expected, const msgpack::object& found);
  template <class Number>
  void read_number(std::string_view key, const msgpack::object& found, Number& value,
                   std::uint64_t minimum, std::uint64_t maximum);
  void read_flag(std::string_view key, const msgpack::object& found, bool& value);
  void read_name(std::string_view key, const msgpack::object& found, std::string& value,
                 Presence presence);
  void read_bytes(std::string_view key, const msgpack::object& found, std::string& value,
                  std::size_t maximum);
  std::optional<std::size_t> place_in(std::span<const std::string_view> choices,
                                      std::string_view key, const msgpack::object& found);
  std::optional<std::string_view> text(std::string_view key, const msgpack::object& found);
  std::optional<std::span<const std::byte>> blob_of(std::string_view key, Presence presence,
                                                    std::size_t element_bytes,
                                                    std::string_view element);
  std::optional<std::span<const std::byte>> whole_elements(std::string_view key,
                                                           const msgpack::object& bin,
                                                           std::size_t element_bytes,
                                                           std::string_view element);
  std::span<const msgpack::object> array_of(std::string_view key, std::size_t maximum);
  void open(const msgpack::object& object);
  std::string here() const;
  std::string known_keys() const;

  static constexpr std::size_t kMaxKeys = 24;
  /// A text that is not cleared before it is there, as all of them would be for each map.
  struct Key {
    const char* text;
    std::size_t size;
  };

  const Place& place_;
  Decoding& decoding_;
  std::span<const msgpack::object_kv> pairs_;
  std::array<std::uint8_t, kMaxKeys> tags_;  // of the pairs' keys
  std::uint64_t tags_there_ = 0;             // a bit for each
  std::bitset<kMaxKeys> asked_for_;          // of the pairs
  std::array<Key, kMaxKeys> known_;          // each asked for once
  std::size_t known_count_ = 0;
  std::string_view missing_;
};

}  // namespace penstock

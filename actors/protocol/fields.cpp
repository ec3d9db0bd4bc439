#include "actors/protocol/fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "actors/protocol/request.hpp"

namespace penstock {
namespace {

std::string_view text_of(const msgpack::object& object) {
  return {object.via.str.ptr, object.via.str.size};
}

std::string found_as(const msgpack::object& object) {
  switch (object.type) {
    case msgpack::type::NIL:
      return "nil";
    case msgpack::type::BOOLEAN:
      return object.via.boolean ? "true" : "false";
    case msgpack::type::POSITIVE_INTEGER:
      return fmt::format("the integer {}", object.via.u64);
    case msgpack::type::NEGATIVE_INTEGER:
      return fmt::format("the negative integer {}", object.via.i64);
    case msgpack::type::FLOAT32:
    case msgpack::type::FLOAT64:
      return fmt::format("the float {}", object.via.f64);
    case msgpack::type::STR:
      return fmt::format("the str {}", quoted(text_of(object)));
    case msgpack::type::BIN:
      return fmt::format("a BIN of {} bytes", object.via.bin.size);
    case msgpack::type::ARRAY:
      return fmt::format("an array of {}", object.via.array.size);
    case msgpack::type::MAP:
      return "a map";
    case msgpack::type::EXT:
      return "an extension type";
  }
  return "an unknown type";
}

bool name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '/' || c == '-';
}

bool printable(char c) { return c >= 0x20 && c < 0x7f; }

std::uint64_t u64_at(std::span<const std::byte> bytes, std::size_t index) {
  std::uint64_t value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

}  // namespace

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 48;
  std::string out = "'";
  for (char c : text.substr(0, kShown)) {
    if (printable(c))
      out += c;
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  out += text.size() > kShown ? "...'" : "'";
  return out;
}

std::string Place::path() const {
  std::string out = parent ? parent->path_of(key) : std::string(key);
  if (index) out += fmt::format("[{}]", *index);
  return out;
}

std::string Place::path_of(std::string_view child) const {
  std::string out = path();
  return out.empty() ? std::string(child) : out + "." + std::string(child);
}

Fields::Fields(const msgpack::object& object, const Place& place, Decoding& decoding)
    : place_(place), decoding_(decoding) {
  if (!failed()) open(object);
}

std::string Fields::here() const { return place_.parent ? place_.path() : "the request"; }

void Fields::open(const msgpack::object& object) {
  if (object.type != msgpack::type::MAP)
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("{}: expected a map, found {}", here(), found_as(object)));
  if (object.via.map.size > 0) pairs_ = {object.via.map.ptr, object.via.map.size};
  if (pairs_.size() > kMaxKeys)
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("{} has {} keys; no map of this protocol has more than {}", here(),
                              pairs_.size(), kMaxKeys));
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const msgpack::object& key = pairs_[i].key;
    if (key.type != msgpack::type::STR)
      return refuse(ErrorCode::kInvalidArgument,
                    fmt::format("{}: keys are str, found {}", here(), found_as(key)));
    tags_[i] = tag_of(text_of(key));
    const std::uint64_t bit = std::uint64_t{1} << tags_[i];
    const bool may_be_there = (tags_there_ & bit) != 0;
    tags_there_ |= bit;
    for (std::size_t j = 0; may_be_there && j < i; ++j)
      if (text_of(pairs_[j].key) == text_of(key))
        return refuse(ErrorCode::kInvalidArgument,
                      fmt::format("the key {} appears twice in {}", quoted(text_of(key)), here()));
  }
}

void Fields::pack_without(std::initializer_list<std::string_view> left_out,
                          msgpack::packer<msgpack::sbuffer>& packer) const {
  const auto stays = [&](const msgpack::object_kv& pair) {
    return std::ranges::find(left_out, text_of(pair.key)) == left_out.end();
  };
  packer.pack_map(static_cast<std::uint32_t>(std::ranges::count_if(pairs_, stays)));
  for (const msgpack::object_kv& pair : pairs_)
    if (stays(pair)) packer.pack(pair.key).pack(pair.val);
}

void Fields::refuse(ErrorCode code, std::string message) {
  if (!failed()) decoding_.error = Error{code, std::move(message)};
}

void Fields::wrong_type(std::string_view key, std::string_view expected,
                        const msgpack::object& found) {
  refuse(ErrorCode::kInvalidArgument,
         fmt::format("{}: expected {}, found {}", place_.path_of(key), expected, found_as(found)));
}

const msgpack::object* Fields::look_up(std::string_view key) {
  const std::uint8_t tag = tag_of(key);
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (tags_[i] != tag || text_of(pairs_[i].key) != key) continue;
    asked_for_[i] = true;
    return &pairs_[i].val;
  }
  return nullptr;
}

std::string Fields::known_keys() const {
  std::vector<std::string_view> keys;
  for (const Key& key : std::span(known_).first(known_count_))
    keys.emplace_back(key.text, key.size);
  return fmt::format("{}", fmt::join(keys, ", "));
}

void Fields::finish() {
  if (failed()) return;
  for (std::size_t i = 0; asked_for_.count() < pairs_.size() && i < pairs_.size(); ++i)
    if (!asked_for_[i])
      return refuse(ErrorCode::kInvalidArgument,
                    fmt::format("unknown key {} in {}; known are {}",
                                quoted(text_of(pairs_[i].key)), here(), known_keys()));
  if (!missing_.empty())
    refuse(ErrorCode::kInvalidArgument, fmt::format("{} is missing", place_.path_of(missing_)));
}

template <class Number>
void Fields::read_number(std::string_view key, const msgpack::object& found, Number& value,
                         std::uint64_t minimum, std::uint64_t maximum) {
  if (found.type != msgpack::type::POSITIVE_INTEGER)
    return wrong_type(key, "an unsigned integer", found);
  const std::uint64_t number = found.via.u64;
  if (number < minimum || number > maximum)
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("{}: expected {} to {}, found {}", place_.path_of(key), minimum,
                              maximum, number));
  value = static_cast<Number>(number);
}
template void Fields::read_number(std::string_view, const msgpack::object&, std::uint64_t&,
                                  std::uint64_t, std::uint64_t);
template void Fields::read_number(std::string_view, const msgpack::object&, std::uint32_t&,
                                  std::uint64_t, std::uint64_t);

void Fields::read_flag(std::string_view key, const msgpack::object& found, bool& value) {
  if (found.type != msgpack::type::BOOLEAN) return wrong_type(key, "true or false", found);
  value = found.via.boolean;
}

/// At most kMaxNameBytes.
std::optional<std::string_view> Fields::text(std::string_view key, const msgpack::object& found) {
  if (found.type != msgpack::type::STR) {
    wrong_type(key, "a str", found);
    return std::nullopt;
  }
  if (found.via.str.size > kMaxNameBytes) {
    refuse(ErrorCode::kInvalidArgument,
           fmt::format("{}: expected at most {} bytes, found {}", place_.path_of(key),
                       kMaxNameBytes, found.via.str.size));
    return std::nullopt;
  }
  return text_of(found);
}

void Fields::read_name(std::string_view key, const msgpack::object& found, std::string& value,
                       Presence presence) {
  const auto name = text(key, found);
  if (!name) return;
  if (name->empty() && presence == Presence::kRequired)
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("{}: expected a name, found ''", place_.path_of(key)));
  if (!std::all_of(name->begin(), name->end(), name_character))
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("{}: a name is made of A-Z a-z 0-9 . _ / -, found {}",
                              place_.path_of(key), quoted(*name)));
  value = *name;
}

void Fields::words(std::string_view key, std::string& value) {
  const msgpack::object* found = find(key, Presence::kOptional);
  if (!found) return;
  const auto words = text(key, *found);
  if (!words) return;
  if (!std::all_of(words->begin(), words->end(), printable))
    return refuse(ErrorCode::kInvalidArgument, fmt::format("{}: expected printable ASCII, found {}",
                                                           place_.path_of(key), quoted(*words)));
  value = *words;
}

void Fields::read_bytes(std::string_view key, const msgpack::object& found, std::string& value,
                        std::size_t maximum) {
  std::string_view content;
  if (found.type == msgpack::type::STR)
    content = text_of(found);
  else if (found.type == msgpack::type::BIN)
    content = {found.via.bin.ptr, found.via.bin.size};
  else
    return wrong_type(key, "a BIN or a str", found);
  if (content.size() > maximum)
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("{}: expected at most {} bytes, found {}", place_.path_of(key),
                              maximum, content.size()));
  value = content;
}

std::optional<std::size_t> Fields::place_in(std::span<const std::string_view> choices,
                                            std::string_view key, const msgpack::object& found) {
  const auto choice = text(key, found);
  if (!choice) return std::nullopt;
  const auto place = std::find(choices.begin(), choices.end(), *choice);
  if (place != choices.end()) return static_cast<std::size_t>(place - choices.begin());
  refuse(ErrorCode::kInvalidArgument,
         fmt::format("{}: expected one of {}, found {}", place_.path_of(key),
                     fmt::join(choices, ", "), quoted(*choice)));
  return std::nullopt;
}

void Fields::choices_list(std::string_view key, std::span<const std::string_view> choices,
                          std::vector<std::string>& values) {
  const msgpack::object* found = find(key, Presence::kOptional);
  if (!found) return;
  if (found->type != msgpack::type::ARRAY) return wrong_type(key, "an array of str", *found);
  for (std::size_t i = 0; i < found->via.array.size; ++i) {
    const msgpack::object& item = found->via.array.ptr[i];
    std::string item_key = fmt::format("{}[{}]", key, i);
    if (item.type != msgpack::type::STR) return wrong_type(item_key, "a str", item);
    if (std::find(choices.begin(), choices.end(), text_of(item)) == choices.end())
      return refuse(ErrorCode::kInvalidArgument,
                    fmt::format("{}: expected one of {}, found {}", place_.path_of(item_key),
                                fmt::join(choices, ", "), quoted(text_of(item))));
    if (std::find(values.begin(), values.end(), text_of(item)) == values.end())
      values.emplace_back(text_of(item));
  }
}

void Fields::texts(std::string_view key, std::vector<std::string>& values, std::size_t maximum) {
  const msgpack::object* found = find(key, Presence::kOptional);
  if (!found) return;
  if (found->type != msgpack::type::ARRAY) return wrong_type(key, "an array of str", *found);
  if (found->via.array.size > maximum)
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("{}: expected at most {} of them, found {}", place_.path_of(key),
                              maximum, found->via.array.size));
  for (std::size_t i = 0; i < found->via.array.size; ++i) {
    const msgpack::object& item = found->via.array.ptr[i];
    const std::string item_key = fmt::format("{}[{}]", key, i);
    if (item.type != msgpack::type::STR) return wrong_type(item_key, "a str", item);
    const std::string_view text = text_of(item);
    if (text.empty() || text.size() > kMaxNameBytes ||
        !std::all_of(text.begin(), text.end(), printable))
      return refuse(ErrorCode::kInvalidArgument,
                    fmt::format("{}: expected 1 to {} printable ASCII characters, found {}",
                                place_.path_of(item_key), kMaxNameBytes, quoted(text)));
    values.emplace_back(text);
  }
}

std::optional<std::span<const std::byte>> Fields::whole_elements(std::string_view key,
                                                                 const msgpack::object& bin,
                                                                 std::size_t element_bytes,
                                                                 std::string_view element) {
  std::size_t size = bin.via.bin.size;
  if (size % element_bytes != 0) {
    refuse(ErrorCode::kInvalidArgument,
           fmt::format("{}: a BIN of {} bytes is not a whole number of {} ({} bytes each)",
                       place_.path_of(key), size, element, element_bytes));
    return std::nullopt;
  }
  if (size == 0) return std::span<const std::byte>();
  return std::span(reinterpret_cast<const std::byte*>(bin.via.bin.ptr), size);
}

std::optional<std::span<const std::byte>> Fields::blob_of(std::string_view key, Presence presence,
                                                          std::size_t element_bytes,
                                                          std::string_view element) {
  const msgpack::object* found = find(key, presence);
  if (!found) return std::nullopt;
  if (found->type == msgpack::type::BIN) return whole_elements(key, *found, element_bytes, element);
  wrong_type(key, fmt::format("a BIN of {}", element), *found);
  return std::nullopt;
}

void Fields::ids(std::string_view key, std::vector<std::uint64_t>& values, Presence presence) {
  const msgpack::object* found = find(key, presence);
  if (!found) return;
  if (found->type == msgpack::type::BIN) {
    auto bytes = whole_elements(key, *found, sizeof(std::uint64_t), "u64");
    if (!bytes) return;
    values.resize(bytes->size() / sizeof(std::uint64_t));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = u64_at(*bytes, i);
  } else if (found->type == msgpack::type::ARRAY) {
    values.reserve(found->via.array.size);
    for (std::size_t i = 0; i < found->via.array.size; ++i) {
      const msgpack::object& item = found->via.array.ptr[i];
      if (item.type != msgpack::type::POSITIVE_INTEGER)
        return wrong_type(fmt::format("{}[{}]", key, i), "an unsigned integer", item);
      values.push_back(item.via.u64);
    }
  } else {
    return wrong_type(key, "an array of integers or a BIN of u64", *found);
  }
  if (values.size() > kMaxIds)
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("{}: expected at most {} of them, found {}", place_.path_of(key),
                              kMaxIds, values.size()));
  if (values.empty() && presence == Presence::kRequired)
    refuse(ErrorCode::kInvalidArgument,
           fmt::format("{}: expected at least one, found none", place_.path_of(key)));
}

void Fields::base_pairs(std::string_view key, std::vector<BasePair>& pairs) {
  const msgpack::object* found = find(key, Presence::kOptional);
  if (!found) return;
  pairs.clear();
  if (found->type == msgpack::type::BIN) {
    auto bytes = whole_elements(key, *found, sizeof(BasePair), "u64 pairs");
    if (!bytes) return;
    for (std::size_t i = 0; i < bytes->size() / sizeof(std::uint64_t); i += 2)
      pairs.push_back({u64_at(*bytes, i), u64_at(*bytes, i + 1)});
    return;
  }
  if (found->type != msgpack::type::ARRAY)
    return wrong_type(key, "an array of [source, destination] or a BIN of u64 pairs", *found);
  for (std::size_t i = 0; i < found->via.array.size; ++i) {
    const msgpack::object& item = found->via.array.ptr[i];
    const msgpack::object_array& pair = item.via.array;
    if (item.type != msgpack::type::ARRAY || pair.size != 2 ||
        pair.ptr[0].type != msgpack::type::POSITIVE_INTEGER ||
        pair.ptr[1].type != msgpack::type::POSITIVE_INTEGER)
      return wrong_type(fmt::format("{}[{}]", key, i), "[source, destination] as unsigned integers",
                        item);
    pairs.push_back({pair.ptr[0].via.u64, pair.ptr[1].via.u64});
  }
}

std::span<const msgpack::object> Fields::array_of(std::string_view key, std::size_t maximum) {
  const msgpack::object* found = find(key, Presence::kRequired);
  if (!found) return {};
  if (found->type != msgpack::type::ARRAY) {
    wrong_type(key, "an array of maps", *found);
    return {};
  }
  std::size_t size = found->via.array.size;
  if (size == 0 || size > maximum) {
    refuse(ErrorCode::kInvalidArgument, fmt::format("{}: expected 1 to {} of them, found {}",
                                                    place_.path_of(key), maximum, size));
    return {};
  }
  return {found->via.array.ptr, size};
}

}  // namespace penstock

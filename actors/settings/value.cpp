#include "actors/settings/value.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <optional>
#include <set>

namespace penstock {
namespace {

constexpr std::size_t kLongestQuote = 60;

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return number;
}

bool is_number_too_large(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// Splits "64 MiB" into its number and the factor of its unit; factor 0: no such unit.
std::pair<std::string_view, std::uint64_t> split_unit(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, int>, 5> kUnits = {
      {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};
  const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit = trim(text.substr(end));
  for (const auto& [name, shift] : kUnits)
    if (unit == name) return {text.substr(0, end), std::uint64_t{1} << shift};
  return {text, 0};
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

Value::Value(std::string key, YAML::Node node, Source source)
    : Value(std::move(key), node, std::move(source), node.Mark().line) {}

Value::Value(std::string key, YAML::Node node, Source source, int line)
    : key_(std::move(key)), node_(node), source_(std::move(source)), line_(line) {}

std::string Value::where() const {
  return source_.has_lines ? fmt::format("{}:{}", source_.name, line_ + 1) : source_.name;
}

std::string Value::found() const {
  if (node_.IsSequence()) return "a list";
  if (node_.IsMap()) return "a map";
  if (!node_.IsScalar() || node_.Scalar().empty()) return "nothing";
  const std::string& text = node_.Scalar();
  return text.size() <= kLongestQuote ? "'" + text + "'"
                                      : "'" + text.substr(0, kLongestQuote) + "...'";
}

Result<std::string> Value::text_or_empty() const {
  if (is_null()) return fail("empty value; write \"\" to mean none");
  if (!node_.IsScalar()) return fail("found {}, wanted text", found());
  return node_.Scalar();
}

Result<std::string> Value::text() const {
  if (is_null() || (node_.IsScalar() && node_.Scalar().empty())) return fail("empty value");
  return text_or_empty();
}

Result<bool> Value::boolean() const {
  const auto word = text();
  if (!word) return tl::unexpected(word.error());
  if (*word != "true" && *word != "false") return fail("found {}, wanted true or false", found());
  return *word == "true";
}

Result<std::uint64_t> Value::integer(std::uint64_t smallest, std::uint64_t largest) const {
  const auto word = text();
  if (!word) return tl::unexpected(word.error());
  const auto number = whole_number(*word);
  if (number && *number >= smallest && *number <= largest) return *number;
  if (number || is_number_too_large(*word))
    return fail("{} is out of range, wanted {} to {}", *word, smallest, largest);
  return fail("found {}, wanted a whole number from {} to {}", found(), smallest, largest);
}

Result<std::uint64_t> Value::bytes(std::uint64_t smallest, std::uint64_t largest) const {
  const auto word = text();
  if (!word) return tl::unexpected(word.error());
  const auto [digits, factor] = split_unit(*word);
  const auto number = whole_number(digits);
  if (factor == 0 || (!number && !is_number_too_large(digits)))
    return fail("found {}, wanted a size such as 65536 or 64 KiB", found());
  if (!number || *number > largest / factor || *number * factor < smallest)
    return fail("{} is out of range, wanted {} to {} bytes", *word, smallest, largest);
  return *number * factor;
}

Result<std::string> Value::one_of(const std::vector<std::string>& choices) const {
  auto word = text();
  if (!word || std::find(choices.begin(), choices.end(), *word) != choices.end()) return word;
  const std::string near = nearest_name(*word, choices);
  return fail("found {}, wanted one of {}{}", found(), fmt::join(choices, ", "),
              near.empty() ? "" : "; did you mean " + near + "?");
}

Result<std::vector<Value>> Value::list() const {
  std::vector<Value> values;
  if (node_.IsSequence()) {
    for (std::size_t i = 0; i < node_.size(); ++i)
      values.emplace_back(fmt::format("{}[{}]", key_, i), node_[i], source_);
    return values;
  }
  const auto word = text();
  if (is_null() || (!word && node_.IsScalar()))
    return fail("empty value; write [] for an empty list");
  if (source_.has_lines || !word) return fail("found {}, wanted a list such as [a, b]", found());
  std::string_view rest = *word;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    values.emplace_back(fmt::format("{}[{}]", key_, values.size()),
                        YAML::Node(std::string(trim(rest.substr(0, comma)))), source_);
    if (more) rest.remove_prefix(comma + 1);
  }
  return values;
}

Result<std::vector<std::pair<std::string, Value>>> Value::entries() const {
  if (is_null()) return fail("empty value; write {{}} for an empty map");
  if (!node_.IsMap()) return fail("found {}, wanted a map of keys", found());
  std::vector<std::pair<std::string, Value>> entries;
  std::set<std::string> seen;
  for (const auto& entry : node_) {
    if (!entry.first.IsScalar()) return fail("found a list or map as a key, wanted a name");
    const std::string& name = entry.first.Scalar();
    // The value's own mark may be lines further down (an empty one, a list): say the key's line.
    Value value(key_.empty() ? name : key_ + "." + name, entry.second, source_,
                entry.first.Mark().line);
    if (!seen.insert(name).second) return value.fail("duplicate key");
    entries.emplace_back(name, std::move(value));
  }
  return entries;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  std::string nearest;
  std::size_t best = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    // The lengths alone make that much: a name of a megabyte is not compared letter by letter.
    const auto [shorter, longer] = std::minmax({name.size(), candidate.size()});
    if (longer - shorter >= best) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace penstock

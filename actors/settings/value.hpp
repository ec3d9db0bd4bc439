// A value of the configuration on its way from text to a typed setting, with where it was given, so
// that every error can say so.
#pragma once

#include <yaml-cpp/yaml.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/error.hpp"

namespace penstock {

/// Where values come from: decides how lists may be written and how a place is named.
struct Source {
  std::string name;       // "penstockd.yaml", "environment PENSTOCK_X", "--set"
  bool has_lines = true;  // a file: a place is name and line
};

class Value {
 public:
  Value(std::string key, YAML::Node node, Source source);
  /// `line` counts from 0: the key's, where that says more than the value's own.
  Value(std::string key, YAML::Node node, Source source, int line);

  const std::string& key() const { return key_; }
  /// "penstockd.yaml:12" or the source's name.
  std::string where() const;

  template <class... Args>
  tl::unexpected<Error> fail(fmt::format_string<Args...> text, Args&&... args) const {
    return penstock::fail(ErrorCode::kInvalidArgument, "{}: {}: {}", where(), key_,
                          fmt::format(text, std::forward<Args>(args)...));
  }

  bool is_null() const { return node_.IsNull(); }
  /// "the list", "the map", "'abc'": what was found.
  std::string found() const;

  // -- typed readings: the error names key, place, what was found and what is wanted -------------
  Result<std::string> text() const;  // not empty
  Result<std::string> text_or_empty() const;
  Result<bool> boolean() const;
  Result<std::uint64_t> integer(std::uint64_t smallest, std::uint64_t largest) const;
  /// An integer, or one with KiB, MiB, GiB or TiB: "64 MiB".
  Result<std::uint64_t> bytes(std::uint64_t smallest, std::uint64_t largest) const;
  Result<std::string> one_of(const std::vector<std::string>& choices) const;
  /// The elements. Outside a file also "a,b".
  Result<std::vector<Value>> list() const;
  /// The entries of a map; a duplicate key is an error.
  Result<std::vector<std::pair<std::string, Value>>> entries() const;

 private:
  std::string key_;
  YAML::Node node_;
  Source source_;
  int line_;
};

/// The candidate that `name` was most likely meant to be; "" when none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace penstock

// The table of all keys: how each is read, checked and where it goes. A new key is one line there,
// one member in Settings and one paragraph in config/penstockd.yaml.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "actors/settings/settings.hpp"
#include "actors/settings/value.hpp"

namespace penstock {

struct Field {
  std::string key;  // "request.max_request_bytes"
  std::function<Result<void>(const Value&, Settings&)> read;
};

const std::vector<Field>& all_fields();
const Field* find_field(std::string_view key);
/// "request", "gossip" ...
const std::vector<std::string>& section_names();

/// kInvalidArgument unless `name` fits a node: 1 to 64 of A-Z a-z 0-9 . _ -
Result<void> check_node_name(std::string_view name);

}  // namespace penstock

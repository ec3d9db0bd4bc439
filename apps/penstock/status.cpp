// penstock status
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/penstock/commands.hpp"
#include "apps/penstock/table.hpp"

namespace penstock::app {
namespace {

/// A scalar as a person reads it; lists and maps as compact JSON.
std::string words_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool is_list_of_maps(const nlohmann::json& value) {
  return value.is_array() && !value.empty() && value.front().is_object();
}

/// The keys of all maps, "name" first, without those that hold lists of maps themselves.
std::vector<std::string> columns_of(const nlohmann::json& list) {
  std::vector<std::string> keys;
  for (const auto& item : list) {
    for (const auto& [key, value] : item.items()) {
      if (is_list_of_maps(value)) continue;
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      keys.insert(key == "name" ? keys.begin() : keys.end(), key);
    }
  }
  return keys;
}

/// A table with a row per map, then a table for each list of maps inside of them.
void print_list(const std::string& title, const nlohmann::json& list) {
  auto keys = columns_of(list);
  Table table(keys);
  for (const auto& item : list) {
    std::vector<std::string> row;
    for (const auto& key : keys) row.push_back(item.contains(key) ? words_of(item[key]) : "-");
    table.add(std::move(row));
  }
  std::printf("\n%s\n%s", title.c_str(), table.text().c_str());
  for (const auto& item : list) {
    for (const auto& [key, value] : item.items()) {
      if (is_list_of_maps(value))
        print_list(key + " of " + item.value("name", std::string("?")), value);
    }
  }
}

/// Maps inside are flattened: "transfers.running".
void print_scalars(const std::string& prefix, const nlohmann::json& map) {
  for (const auto& [key, value] : map.items()) {
    if (value.is_object()) {
      print_scalars(prefix + key + ".", value);
    } else if (!is_list_of_maps(value)) {
      std::printf("%-24s %s\n", (prefix + key).c_str(), words_of(value).c_str());
    }
  }
}

void print_status(const std::string& text) {
  auto status = nlohmann::json::parse(text);
  print_scalars("", status);
  for (const auto& [key, value] : status.items()) {
    if (is_list_of_maps(value)) print_list(key, value);
  }
}

void run_status(const Globals& globals) {
  auto client = globals.connect();
  auto text = client.status();
  globals.json ? print_json(text) : print_status(text);
}

}  // namespace

void add_status(CLI::App& app, Globals& globals) {
  auto* status = app.add_subcommand("status", "What the service is, has and does");
  status->footer("Example: penstock status --json");
  status->callback([&globals] { run_status(globals); });
}

}  // namespace penstock::app

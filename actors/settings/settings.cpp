#include "actors/settings/settings.hpp"

#include <unistd.h>
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <sstream>

#include "actors/settings/endpoint.hpp"
#include "actors/settings/field.hpp"
#include "actors/settings/value.hpp"

extern char** environ;

namespace penstock {
namespace {

constexpr std::string_view kPrefix = "PENSTOCK_";
constexpr std::uintmax_t kLargestFile = 1u << 20;

/// Where each key was last given, for the checks between keys.
using Origins = std::map<std::string, std::string>;

struct Loading {
  Settings settings;
  Origins origins;

  Result<void> set(const Field& field, const Value& value) {
    origins[field.key] = value.where();
    return field.read(value, settings);
  }
};

tl::unexpected<Error> unknown_key(const Value& value) {
  const std::string& key = value.key();
  const std::string name = key.substr(key.rfind('.') + 1);
  std::string near = nearest_name(key, setting_keys());
  for (const std::string& known : setting_keys())  // the right key in the wrong section
    if (known.ends_with("." + name)) near = known;
  return value.fail("unknown key{}", near.empty() ? "" : "; did you mean " + near + "?");
}

// -- the file ------------------------------------------------------------------------------------

Result<std::string> read_file(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error))
    return fail(ErrorCode::kNotFound, "configuration {}: no such file", file.string());
  if (!std::filesystem::is_regular_file(file, error))
    return fail(ErrorCode::kInvalidArgument, "configuration {}: not a regular file", file.string());
  const auto size = std::filesystem::file_size(file, error);
  if (error || size > kLargestFile)
    return fail(ErrorCode::kInvalidArgument, "configuration {}: larger than {} bytes",
                file.string(), kLargestFile);
  std::ifstream in(file, std::ios::binary);
  std::string text(size, '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(size)))
    return fail(ErrorCode::kDenied, "configuration {}: cannot be read; check its permissions",
                file.string());
  return text;
}

/// Looks no further than the second document: behind "[a]," yaml-cpp finds empty documents without
/// end, and YAML::LoadAll keeps them all.
class CountDocuments final : public YAML::EventHandler {
 public:
  std::size_t count = 0;

  void OnDocumentStart(const YAML::Mark&) override { ++count; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

bool holds_several_documents(const std::string& text) {
  std::istringstream input(text);
  YAML::Parser parser(input);
  CountDocuments documents;
  for (int looks = 0; looks < 2 && parser.HandleNextDocument(documents);) ++looks;
  return documents.count > 1;
}

Result<YAML::Node> parse_yaml(const std::string& text, const std::string& source, bool has_lines) {
  try {
    if (holds_several_documents(text))
      return fail(ErrorCode::kInvalidArgument,
                  "{}: holds several YAML documents, or a comma behind its end; wanted one",
                  source);
    return YAML::Load(text);
  } catch (const YAML::Exception& e) {
    const std::string line = has_lines ? fmt::format(":{}", e.mark.line + 1) : "";
    return fail(ErrorCode::kInvalidArgument, "{}{}: not YAML: {}", source, line, e.msg);
  }
}

Result<void> load_section(const std::string& name, const Value& section, Loading& loading) {
  if (section.is_null()) return {};  // all its keys are commented out
  const auto entries = section.entries();
  if (!entries) return tl::unexpected(entries.error());
  for (const auto& [key, value] : *entries) {
    const Field* field = find_field(fmt::format("{}.{}", name, key));
    if (field == nullptr) return unknown_key(value);
    if (auto set = loading.set(*field, value); !set) return set;
  }
  return {};
}

Result<void> load_file(const std::filesystem::path& file, Loading& loading) {
  const auto text = read_file(file);
  if (!text) return tl::unexpected(text.error());
  const auto root = parse_yaml(*text, file.string(), true);
  if (!root) return tl::unexpected(root.error());
  if (root->IsNull()) return {};
  const auto sections = Value("", *root, {file.string(), true}).entries();
  if (!sections)
    return root->IsMap() ? tl::unexpected(sections.error())
                         : fail(ErrorCode::kInvalidArgument,
                                "{}:1: wanted sections such as request:", file.string());
  for (const auto& [name, section] : *sections) {
    const auto& known = section_names();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const std::string near = nearest_name(name, known);
      return section.fail("unknown section{}", near.empty() ? "" : "; did you mean " + near + "?");
    }
    if (auto loaded = load_section(name, section, loading); !loaded) return loaded;
  }
  return {};
}

// -- environment and flags -----------------------------------------------------------------------

/// A value that came as plain text: YAML when it looks like a list or map, else taken literally, so
/// that no colon or star in an address needs quoting.
Result<Value> value_of_text(const std::string& key, const std::string& text,
                            const std::string& source) {
  if (!text.starts_with('[') && !text.starts_with('{'))
    return Value(key, YAML::Node(text), {source, false});
  auto node = parse_yaml(text, source + ": " + key, false);
  if (!node) return tl::unexpected(node.error());
  return Value(key, *node, {source, false});
}

Result<void> set_text(const std::string& key, const std::string& text, const std::string& source,
                      Loading& loading) {
  const auto value = value_of_text(key, text, source);
  if (!value) return tl::unexpected(value.error());
  const Field* field = find_field(key);
  return field == nullptr ? unknown_key(*value) : loading.set(*field, *value);
}

std::string variable_of(const std::string& key) {
  std::string name = std::string(kPrefix) + key;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '.' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

/// Kubernetes sets PENSTOCK_X_SERVICE_HOST, PENSTOCK_X_PORT and the like for a service that is
/// named penstock-x: not ours.
bool is_from_kubernetes(std::string_view name) {
  return name.ends_with("_PORT") || name.find("_PORT_") != std::string_view::npos ||
         name.ends_with("_SERVICE_HOST");
}

/// Only what starts as one of our sections: a misspelt key must not pass, but other programs may
/// have variables of this prefix too.
bool is_meant_for_us(std::string_view name) {
  const auto starts_section = [&](const std::string& section) {
    return name.starts_with(variable_of(section) + "_");
  };
  return std::any_of(section_names().begin(), section_names().end(), starts_section) &&
         !is_from_kubernetes(name);
}

Result<void> load_environment(const Environment& environment, Loading& loading) {
  if (environment.empty()) return {};
  Environment unread = environment;
  for (const Field& field : all_fields()) {
    const auto found = unread.find(variable_of(field.key));
    if (found == unread.end()) continue;
    auto set = set_text(field.key, found->second, "environment " + found->first, loading);
    if (!set) return set;
    unread.erase(found);
  }
  std::vector<std::string> known;
  for (const Field& field : all_fields()) known.push_back(variable_of(field.key));
  for (const auto& [name, text] : unread) {
    if (!is_meant_for_us(name)) continue;
    const std::string near = nearest_name(name, known);
    return fail(ErrorCode::kInvalidArgument, "environment {}: unknown key{}", name,
                near.empty() ? "" : "; did you mean " + near + "?");
  }
  return {};
}

Result<void> load_overrides(const std::vector<std::string>& overrides, Loading& loading) {
  for (const std::string& text : overrides) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(ErrorCode::kInvalidArgument, "--set {}: wanted section.key=value", text);
    const std::string key = text.substr(0, equals);
    auto set = set_text(key, text.substr(equals + 1), "--set", loading);
    if (!set) return set;
  }
  return {};
}

// -- the whole -----------------------------------------------------------------------------------

struct Order {
  const char* smaller_key;
  std::uint64_t smaller;
  const char* larger_key;
  std::uint64_t larger;
};

std::uint64_t count(std::chrono::milliseconds time) {
  return static_cast<std::uint64_t>(time.count());
}

Result<void> check_order(const Loading& loading) {
  const FabricSettings& fabric = loading.settings.fabric;
  const GossipSettings& gossip = loading.settings.gossip;
  const TimeoutSettings& timeouts = loading.settings.timeouts;
  const std::array<Order, 6> orders = {{
      {"fabric.max_chunk_bytes", fabric.max_chunk_bytes, "fabric.link_window_bytes",
       fabric.link_window_bytes},
      {"fabric.link_window_bytes", fabric.link_window_bytes, "fabric.window_bytes",
       fabric.window_bytes},
      {"fabric.link_window_operations", fabric.link_window_operations, "fabric.window_operations",
       fabric.window_operations},
      {"gossip.probe_timeout_ms", count(gossip.probe_timeout), "gossip.period_ms",
       count(gossip.period)},
      {"gossip.period_ms", count(gossip.period), "gossip.suspicion_ms", count(gossip.suspicion)},
      {"timeouts.grace_min_ms", count(timeouts.grace_min), "timeouts.grace_max_ms",
       count(timeouts.grace_max)},
  }};
  for (const Order& order : orders) {
    if (order.smaller <= order.larger) continue;
    auto place = loading.origins.find(order.smaller_key);
    if (place == loading.origins.end()) place = loading.origins.find(order.larger_key);
    return fail(ErrorCode::kInvalidArgument, "{}: {} {} is more than {} {}", place->second,
                order.smaller_key, order.smaller, order.larger_key, order.larger);
  }
  return {};
}

/// What other machines reach needs keys, or the operator's word that it needs none.
Result<void> check_security(const Loading& loading) {
  const Settings& settings = loading.settings;
  const SecuritySettings& security = settings.security;
  if (security.key_file.empty() != security.allow_list.empty())
    return fail(ErrorCode::kInvalidArgument,
                "security.key_file and security.allow_list belong together: only {} is set",
                security.key_file.empty() ? "security.allow_list" : "security.key_file");
  const auto open = [&](const char* key, const std::string& endpoint, const char* wanted) {
    const auto place = loading.origins.find(key);
    return fail(ErrorCode::kInvalidArgument,
                "{}: {}: '{}' is reached from other machines and has no keys: set {} (penstock "
                "keygen makes keys, docs/security.md tells how), bind loopback or ipc, or write "
                "security.insecure: true",
                place == loading.origins.end() ? "default" : place->second, key, endpoint, wanted);
  };
  if (security.insecure) return {};
  if (security.key_file.empty())
    for (const std::string& endpoint : settings.request.bind)
      if (!is_local(endpoint))
        return open("request.bind", endpoint, "security.key_file and security.allow_list");
  if (security.cluster_key_file.empty() && !is_local(settings.gossip.bind))
    return open("gossip.bind", settings.gossip.bind, "security.cluster_key_file");
  const std::string& page = settings.metrics.endpoint;
  if (page.starts_with("http://") && settings.metrics.password_file.empty() &&
      !is_local("tcp://" + page.substr(7)))
    return open("metrics.endpoint", page, "metrics.password_file");
  return {};
}

Result<void> fill_node_name(Settings& settings) {
  if (!settings.node.name.empty()) return {};
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  settings.node.name = name.data();
  if (auto good = check_node_name(settings.node.name); !good)
    return fail(ErrorCode::kInvalidArgument,
                "node.name: not set, and the host name does not serve: {}", good.error().message);
  return {};
}

}  // namespace

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with(kPrefix) && equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

Result<Settings> load_settings(const std::filesystem::path& file,
                               const std::vector<std::string>& overrides,
                               const Environment& environment) {
  Loading loading;
  Result<void> done;
  if (!file.empty()) done = load_file(file, loading);
  if (done) done = load_environment(environment, loading);
  if (done) done = load_overrides(overrides, loading);
  if (done) done = check_order(loading);
  if (done) done = check_security(loading);
  if (done) done = fill_node_name(loading.settings);
  if (!done) return tl::unexpected(done.error());
  return std::move(loading.settings);
}

std::vector<std::string> setting_keys() {
  std::vector<std::string> keys;
  for (const Field& field : all_fields()) keys.push_back(field.key);
  return keys;
}

bool has_few(std::size_t cores) { return cores < 8; }

std::size_t caf_threads(const CafSettings& settings, std::size_t cores) {
  return settings.threads > 0 ? settings.threads : std::clamp<std::size_t>(cores / 8, 1, 8);
}

std::chrono::microseconds caf_spin(const CafSettings& settings, std::size_t cores) {
  return settings.spin.value_or(std::chrono::microseconds(has_few(cores) ? 0 : 50));
}

std::chrono::microseconds spin_of(std::optional<std::chrono::microseconds> set, std::size_t cores) {
  return set.value_or(std::chrono::microseconds(has_few(cores) ? 50 : 500));
}

}  // namespace penstock

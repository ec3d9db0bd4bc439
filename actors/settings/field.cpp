#include "actors/settings/field.hpp"

#include <algorithm>
#include <bit>

#include "actors/settings/endpoint.hpp"
#include "actors/wire/message.hpp"
#include "transport/topology/bus_id.hpp"

namespace penstock {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kGib = 1024 * kMib;
constexpr std::uint64_t kDayMs = 24ull * 3600 * 1000;
constexpr std::size_t kLongestNodeName = 64;
constexpr std::size_t kMostLabels = 16;
constexpr std::size_t kLongestLabel = 63;

// -- how a value is read -------------------------------------------------------------------------

template <class T>
auto integer(std::uint64_t smallest, std::uint64_t largest) {
  return [=](const Value& value) -> Result<T> {
    return value.integer(smallest, largest).map([](std::uint64_t n) { return T(n); });
  };
}

auto bytes(std::uint64_t smallest, std::uint64_t largest) {
  return [=](const Value& value) { return value.bytes(smallest, largest); };
}

auto power_of_two(std::uint64_t smallest, std::uint64_t largest) {
  return [=](const Value& value) -> Result<std::uint64_t> {
    auto number = value.bytes(smallest, largest);
    if (number && !std::has_single_bit(*number))
      return value.fail("found {}, wanted a power of two", value.found());
    return number;
  };
}

auto timeout_ms(std::uint64_t smallest = 1) { return integer<milliseconds>(smallest, kDayMs); }

/// A number, or a word that stands for 0.
auto integer_or_auto(std::uint64_t largest) {
  return [=](const Value& value) -> Result<std::size_t> {
    if (value.text().value_or("") == "auto") return std::size_t{0};
    auto number = value.integer(1, largest);
    if (!number) return value.fail("found {}, wanted auto or 1 to {}", value.found(), largest);
    return static_cast<std::size_t>(*number);
  };
}

auto microseconds_or_auto(std::uint64_t largest) {
  return [=](const Value& value) -> Result<std::optional<microseconds>> {
    if (value.text().value_or("") == "auto") return std::nullopt;
    auto number = value.integer(0, largest);
    if (!number) return value.fail("found {}, wanted auto or 0 to {}", value.found(), largest);
    return microseconds(*number);
  };
}

auto boolean() {
  return [](const Value& value) { return value.boolean(); };
}

auto one_of(std::vector<std::string> choices) {
  return [=](const Value& value) { return value.one_of(choices); };
}

auto path_or_empty() {
  return [](const Value& value) -> Result<std::filesystem::path> {
    return value.text_or_empty().map([](std::string text) { return std::filesystem::path(text); });
  };
}

/// Text that `check` accepts; "" too where `may_be_empty`.
template <class Check>
auto checked_text(Check check, bool may_be_empty) {
  return [=](const Value& value) -> Result<std::string> {
    auto text = may_be_empty ? value.text_or_empty() : value.text();
    if (!text || text->empty()) return text;
    if (auto good = check(*text); !good) return value.fail("{}", good.error().message);
    return text;
  };
}

template <class Read>
auto list_of(Read read, std::size_t fewest = 0) {
  using Element = typename decltype(read(std::declval<const Value&>()))::value_type;
  return [=](const Value& value) -> Result<std::vector<Element>> {
    const auto values = value.list();
    if (!values) return tl::unexpected(values.error());
    if (values->size() < fewest) return value.fail("an empty list, wanted at least {}", fewest);
    std::vector<Element> elements;
    for (const Value& v : *values) {
      auto element = read(v);
      if (!element) return tl::unexpected(element.error());
      if (std::find(elements.begin(), elements.end(), *element) != elements.end())
        return v.fail("{} is given twice", v.found());
      elements.push_back(std::move(*element));
    }
    return elements;
  };
}

auto endpoint(EndpointUse use, bool allow_ipc) {
  const auto check = [=](const std::string& text) { return check_endpoint(text, use, allow_ipc); };
  return checked_text(check, false);
}

Result<void> check_device_name(std::string_view name) {
  for (std::string_view kind : {"gpu", "host"})
    if (name.starts_with(kind) && name.size() > kind.size() && name.size() <= kind.size() + 4 &&
        name.find_first_not_of("0123456789", kind.size()) == std::string_view::npos)
      return {};
  return fail(ErrorCode::kInvalidArgument, "'{}' is not a device; wanted gpu0, gpu1 .. or host0 ..",
              name);
}

/// "http://host:port", or what the words "auto" and "off" mean.
Result<std::string> read_metrics_endpoint(const Value& value) {
  auto text = value.text();
  if (!text || *text == "auto" || *text == "off") return text;
  if (text->starts_with("http://"))
    if (auto good = check_endpoint("tcp://" + text->substr(7), EndpointUse::kBind, false); good)
      return text;
  return value.fail("found {}, wanted auto, off or http://address:port (port 0: any free one)",
                    value.found());
}

auto any_text() {
  return [](const Value& value) { return value.text(); };
}

Result<CardSettings> read_card(const Value& value) {
  const auto entries = value.entries();
  if (!entries) return tl::unexpected(entries.error());
  CardSettings card;
  for (const auto& [name, v] : *entries) {
    Result<std::string> text;
    if (name == "domain")
      text = v.text_or_empty();
    else if (name == "address")
      text = checked_text(check_numeric_address, true)(v);
    else if (name == "device")
      text = checked_text(check_device_name, true)(v);
    else
      return v.fail("unknown key; a card has domain, address and device");
    if (!text) return tl::unexpected(text.error());
    (name == "domain" ? card.domain : name == "address" ? card.address : card.device) = *text;
  }
  if (card.domain.empty() && card.address.empty())
    return value.fail("a card needs a domain or an address");
  return card;
}

Result<PairingOverride> read_overrides(const Value& value) {
  const auto entries = value.entries();
  if (!entries) return tl::unexpected(entries.error());
  PairingOverride overrides;
  for (const auto& [device, cards] : *entries) {
    if (auto good = check_device_name(device); !good) return cards.fail("{}", good.error().message);
    auto names = list_of(any_text(), 1)(cards);
    if (!names) return tl::unexpected(names.error());
    overrides.emplace(device, std::move(*names));
  }
  return overrides;
}

Result<std::string> read_bus(const Value& value) {
  auto text = value.text();
  if (!text) return text;
  auto bus = normal_bus_id(*text);
  return bus ? bus : value.fail("{}", bus.error().message);
}

Result<std::map<std::string, std::string>> read_labels(const Value& value) {
  const auto entries = value.entries();
  if (!entries) return tl::unexpected(entries.error());
  if (entries->size() > kMostLabels)
    return value.fail("{} labels, at most {}", entries->size(), kMostLabels);
  std::map<std::string, std::string> labels;
  for (const auto& [name, v] : *entries) {
    auto text = v.text_or_empty();
    if (!text) return tl::unexpected(text.error());
    if (name.empty() || name.size() > kLongestLabel || text->size() > kLongestLabel)
      return v.fail("a label has a name of 1 to {} characters and a value of at most {}",
                    kLongestLabel, kLongestLabel);
    labels.emplace(name, std::move(*text));
  }
  return labels;
}

Result<HugePages> read_huge_pages(const Value& value) {
  return value.one_of({"auto", "never", "always"}).map([](const std::string& word) {
    if (word == "auto") return HugePages::kAuto;
    return word == "never" ? HugePages::kNever : HugePages::kAlways;
  });
}

Result<std::uint32_t> read_wire_version(const Value& value) {
  if (value.text().value_or("") == "newest") return std::uint32_t{0};
  auto number = value.integer(kWireVersion - 1, kWireVersion);
  if (!number)
    return value.fail("found {}, wanted newest, {} or {}", value.found(), kWireVersion - 1,
                      kWireVersion);
  return static_cast<std::uint32_t>(*number);
}

Result<ThirdParty> read_third_party(const Value& value) {
  return value.one_of({"members", "none"}).map([](const std::string& word) {
    return word == "none" ? ThirdParty::kNone : ThirdParty::kMembers;
  });
}

Result<PackingMode> read_packing(const Value& value) {
  return value.one_of({"auto", "always", "never"}).map([](const std::string& word) {
    if (word == "auto") return PackingMode::kAuto;
    return word == "never" ? PackingMode::kNever : PackingMode::kAlways;
  });
}

Result<void> read_gpus(const Value& value, Settings& settings) {
  DeviceSettings& devices = settings.devices;
  const std::string word = value.text().value_or("");
  if (word == "auto" || word == "none") {
    devices.gpu_choice = word == "auto" ? GpuChoice::kAuto : GpuChoice::kNone;
    devices.gpus.clear();
    return {};
  }
  if (value.is_null()) return value.fail("empty value; wanted auto, none or PCI bus ids");
  auto gpus = list_of(read_bus, 1)(value);
  if (!gpus) return tl::unexpected(gpus.error());
  devices.gpu_choice = GpuChoice::kListed;
  devices.gpus = std::move(*gpus);
  return {};
}

Result<void> read_cpus(const Value& value, Settings& settings) {
  if (value.text().value_or("") == "auto") {
    settings.devices.cpus.clear();
    return {};
  }
  auto cpus = list_of(integer<int>(0, 65535), 1)(value);
  if (!cpus) return tl::unexpected(cpus.error());
  settings.devices.cpus = std::move(*cpus);
  return {};
}

// -- the table -----------------------------------------------------------------------------------

template <class Read, class Place>
Field field(std::string key, Read read, Place place) {
  return {std::move(key), [=](const Value& value, Settings& settings) -> Result<void> {
            auto typed = read(value);
            if (!typed) return tl::unexpected(typed.error());
            place(settings) = std::move(*typed);
            return {};
          }};
}

// A lambda that names the member: the only way to bind a nested one.
#define AT(member) ([](Settings & s) -> auto& { return s.member; })

std::vector<Field> service_fields() {
  const auto bind = EndpointUse::kBind;
  const auto connect = EndpointUse::kConnect;
  return {
      field("node.name", checked_text(check_node_name, true), AT(node.name)),
      field("node.labels", read_labels, AT(node.labels)),
      field("request.bind", list_of(endpoint(bind, true), 1), AT(request.bind)),
      field("request.max_request_bytes", bytes(4 * kKib, 4 * kGib), AT(request.max_request_bytes)),
      field("request.events_kept", integer<std::size_t>(1, 10'000'000), AT(request.events_kept)),
      field("request.results_kept_s", integer<seconds>(1, kDayMs / 1000), AT(request.results_kept)),
      field("request.rings", integer<std::size_t>(0, 4096), AT(request.rings)),
      field("request.ring_bytes", power_of_two(16 * kKib, 64 * kMib), AT(request.ring_bytes)),
      field("request.ring_spin_us", microseconds_or_auto(1'000'000), AT(request.ring_spin)),
      field("gossip.bind", endpoint(bind, false), AT(gossip.bind)),
      field("gossip.advertise", checked_text(check_host, true), AT(gossip.advertise)),
      field("gossip.members", list_of(endpoint(connect, false)), AT(gossip.members)),
      field("gossip.period_ms", integer<milliseconds>(10, 60'000), AT(gossip.period)),
      field("gossip.probe_timeout_ms", integer<milliseconds>(1, 60'000), AT(gossip.probe_timeout)),
      field("gossip.indirect_probes", integer<std::size_t>(0, 16), AT(gossip.indirect_probes)),
      field("gossip.suspicion_ms", timeout_ms(), AT(gossip.suspicion)),
      field("gossip.suspicion_longest", integer<unsigned>(1, 100), AT(gossip.suspicion_longest)),
      field("gossip.closed_grace_ms", timeout_ms(), AT(gossip.closed_grace)),
      field("gossip.retransmit", integer<unsigned>(1, 16), AT(gossip.retransmit)),
      field("gossip.frame_bytes", bytes(1024, 32 * kKib), AT(gossip.frame_bytes)),
      field("gossip.push_pull_ms", integer<milliseconds>(100, kDayMs), AT(gossip.push_pull)),
      field("gossip.forget_dead_s", integer<seconds>(1, kDayMs / 1000), AT(gossip.forget_dead)),
      field("limits.transfers_in_flight", integer<std::size_t>(1, 1u << 20),
            AT(limits.transfers_in_flight)),
      field("limits.regions", integer<std::size_t>(1, 1u << 24), AT(limits.regions)),
      field("limits.region_bytes", bytes(0, UINT64_MAX), AT(limits.region_bytes)),
      field("limits.client_transfers", integer<std::size_t>(0, 1u << 20),
            AT(limits.client_transfers)),
      field("limits.client_regions", integer<std::size_t>(0, 1u << 24), AT(limits.client_regions)),
      field("limits.client_region_bytes", bytes(0, UINT64_MAX), AT(limits.client_region_bytes)),
      field("limits.client_requests", integer<std::size_t>(1, 1u << 20),
            AT(limits.client_requests)),
      field("limits.connections", integer<std::size_t>(1, 1u << 20), AT(limits.connections)),
      field("security.key_file", path_or_empty(), AT(security.key_file)),
      field("security.allow_list", path_or_empty(), AT(security.allow_list)),
      field("security.cluster_key_file", path_or_empty(), AT(security.cluster_key_file)),
      field("security.insecure", boolean(), AT(security.insecure)),
      field("security.third_party", read_third_party, AT(security.third_party)),
      field("metrics.endpoint", read_metrics_endpoint, AT(metrics.endpoint)),
      field("metrics.password_file", path_or_empty(), AT(metrics.password_file)),
      field("metrics.traces_kept", integer<std::size_t>(0, 1'000'000), AT(metrics.traces_kept)),
      field("log.level", one_of({"trace", "debug", "info", "warn", "error", "off"}), AT(log.level)),
      field("log.file", path_or_empty(), AT(log.file)),
      field("log.json", boolean(), AT(log.json)),
      field("log.repeat_per_s", integer<std::uint32_t>(1, 1'000'000), AT(log.repeat_per_s)),
      field("caf.threads", integer_or_auto(8), AT(caf.threads)),
      field("caf.spin_us", microseconds_or_auto(1'000'000), AT(caf.spin)),
      field("caf.on_pollers", boolean(), AT(caf.on_pollers)),
  };
}

std::vector<Field> data_path_fields() {
  const auto operations = integer<std::uint32_t>(1, 1u << 20);
  const auto window = bytes(4 * kKib, 64 * kGib);
  return {
      field("fabric.provider", one_of({"tcp", "shm", "verbs", "efa"}), AT(fabric.provider)),
      field("fabric.cards", list_of(read_card), AT(fabric.cards)),
      field("fabric.topology_file", path_or_empty(), AT(fabric.topology_file)),
      field("fabric.window_bytes", window, AT(fabric.window_bytes)),
      field("fabric.window_operations", operations, AT(fabric.window_operations)),
      field("fabric.link_window_bytes", window, AT(fabric.link_window_bytes)),
      field("fabric.link_window_operations", operations, AT(fabric.link_window_operations)),
      field("fabric.immediate_credits", operations, AT(fabric.immediate_credits)),
      field("fabric.max_chunk_bytes", bytes(4 * kKib, kGib), AT(fabric.max_chunk_bytes)),
      field("fabric.quantum_bytes", bytes(4 * kKib, 64 * kGib), AT(fabric.quantum_bytes)),
      field("fabric.merge", boolean(), AT(fabric.merge)),
      field("fabric.packing", read_packing, AT(fabric.packing)),
      field("fabric.inline_bytes", bytes(0, 8 * kKib), AT(fabric.inline_bytes)),
      field("fabric.warm_up", boolean(), AT(fabric.warm_up)),
      field("fabric.wire_version", read_wire_version, AT(fabric.wire_version)),
      field("fabric.staging_bytes", bytes(0, 64 * kGib), AT(fabric.staging_bytes)),
      field("fabric.counted_chunks", integer<std::uint32_t>(0, 65536), AT(fabric.counted_chunks)),
      field("fabric.idle_tick_ms", integer<milliseconds>(1, 1000), AT(fabric.idle_tick)),
      field("fabric.spin_us", microseconds_or_auto(1'000'000), AT(fabric.spin)),
      field("devices.pollers", integer_or_auto(1024), AT(devices.pollers)),
      field("devices.pin", boolean(), AT(devices.pin)),
      {"devices.cpus", read_cpus},
      {"devices.gpus", read_gpus},
      field("devices.override", read_overrides, AT(devices.overrides)),
      field("memory.huge_pages", read_huge_pages, AT(memory.huge_pages)),
      field("timeouts.open_ms", timeout_ms(), AT(timeouts.open)),
      field("timeouts.connect_ms", timeout_ms(), AT(timeouts.connect)),
      field("timeouts.grace_min_ms", timeout_ms(), AT(timeouts.grace_min)),
      field("timeouts.grace_max_ms", timeout_ms(), AT(timeouts.grace_max)),
      field("timeouts.fence_ms", timeout_ms(), AT(timeouts.fence)),
      field("timeouts.transfer_default_ms", timeout_ms(), AT(timeouts.transfer_default)),
      field("timeouts.drain_ms", timeout_ms(0), AT(timeouts.drain)),
      field("timeouts.lease_extra_ms", timeout_ms(), AT(timeouts.lease_extra)),
      field("timeouts.card_stall_ms", timeout_ms(0), AT(timeouts.card_stall)),
  };
}

#undef AT

}  // namespace

Result<void> check_node_name(std::string_view name) {
  const bool fits =
      !name.empty() && name.size() <= kLongestNodeName &&
      name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
          std::string_view::npos;
  if (fits) return {};
  return fail(ErrorCode::kInvalidArgument,
              "'{}' is not a node name; wanted 1 to {} of A-Z a-z 0-9 . _ -", name,
              kLongestNodeName);
}

const std::vector<Field>& all_fields() {
  static const std::vector<Field> fields = [] {
    auto all = service_fields();
    for (Field& field : data_path_fields()) all.push_back(std::move(field));
    return all;
  }();
  return fields;
}

const Field* find_field(std::string_view key) {
  for (const Field& field : all_fields())
    if (field.key == key) return &field;
  return nullptr;
}

const std::vector<std::string>& section_names() {
  static const std::vector<std::string> names = {"node",     "request", "gossip",   "fabric",
                                                 "devices",  "memory",  "timeouts", "limits",
                                                 "security", "metrics", "log",      "caf"};
  return names;
}

}  // namespace penstock

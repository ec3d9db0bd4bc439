// What the operator decided: the configuration of one penstockd.
//
// A value comes from its default below, overridden by the file, overridden by the environment
// (PENSTOCK_SECTION_KEY), overridden by flags ("section.key=value"). config/penstockd.yaml
// documents every key. Sizes are bytes, times say their unit.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "transport/error.hpp"
#include "transport/memory/huge_pages.hpp"
#include "transport/packing/write_costs.hpp"
#include "transport/topology/pairing.hpp"

namespace penstock {

inline constexpr std::uint64_t kKib = 1024;
inline constexpr std::uint64_t kMib = 1024 * kKib;

struct NodeSettings {
  std::string name;  // after load_settings never empty: the host name when none was given
  std::map<std::string, std::string> labels;
  bool operator==(const NodeSettings&) const = default;
};

struct RequestSettings {
  std::vector<std::string> bind{"tcp://127.0.0.1:7411"};  // ZeroMQ endpoints
  std::uint64_t max_request_bytes = 64 * kMib;
  std::size_t events_kept = 10000;
  std::chrono::seconds results_kept{600};
  std::size_t rings = 64;  // shared-memory rings of clients, open at once; 0: none
  std::uint64_t ring_bytes = 256 * kKib;
  std::optional<std::chrono::microseconds> ring_spin;  // none: auto, see spin_of
  bool operator==(const RequestSettings&) const = default;
};

struct GossipSettings {
  std::string bind = "tcp://127.0.0.1:7412";
  std::string advertise;             // host that others reach us by; "": the one bound
  std::vector<std::string> members;  // "tcp://host:port", some of the others
  std::chrono::milliseconds period{200};
  std::chrono::milliseconds probe_timeout{80};
  std::size_t indirect_probes = 3;
  std::chrono::milliseconds suspicion{1000};
  unsigned suspicion_longest = 6;
  std::chrono::milliseconds closed_grace{400};
  unsigned retransmit = 3;
  std::size_t frame_bytes = 1400;
  std::chrono::milliseconds push_pull{10000};
  std::chrono::seconds forget_dead{600};
  bool operator==(const GossipSettings&) const = default;
};

struct CardSettings {
  std::string domain;   // "" lets the address decide
  std::string address;  // numeric, without a port; "" lets the domain decide
  std::string device;   // "gpu0", "host1"; "": paired by the topology
  bool operator==(const CardSettings&) const = default;
};

struct FabricSettings {
  std::string provider = "tcp";
  std::vector<CardSettings> cards;  // empty: every usable card of the provider
  std::filesystem::path topology_file;
  // Room per card and per link (peer, card): PollerOptions says what it is for.
  std::uint64_t window_bytes = 16 * kMib;
  std::uint32_t window_operations = 256;
  std::uint64_t link_window_bytes = 8 * kMib;
  std::uint32_t link_window_operations = 128;
  std::uint32_t immediate_credits = 128;
  std::uint64_t max_chunk_bytes = kMib;
  std::uint64_t quantum_bytes = 8 * kMib;
  bool merge = true;
  PackingMode packing = PackingMode::kAuto;
  std::uint64_t staging_bytes = 40 * kMib;  // per device
  bool warm_up = true;
  std::uint32_t wire_version = 0;  // the newest that this node speaks; 0: the build's
  std::uint64_t inline_bytes = 8 * kKib;
  std::uint32_t counted_chunks = 256;
  std::chrono::milliseconds idle_tick{5};
  std::optional<std::chrono::microseconds> spin;  // none: auto, see spin_of
  bool operator==(const FabricSettings&) const = default;
};

enum class GpuChoice : unsigned char { kAuto, kNone, kListed };

struct DeviceSettings {
  std::size_t pollers = 0;  // 0: auto, one per device where cores suffice
  bool pin = true;
  std::vector<int> cpus;  // what pollers may be pinned to; empty: all that the process may use
  GpuChoice gpu_choice = GpuChoice::kAuto;
  std::vector<std::string> gpus;  // normal PCI bus ids; only with kListed
  PairingOverride overrides;
  bool operator==(const DeviceSettings&) const = default;
};

struct MemorySettings {
  HugePages huge_pages = HugePages::kAuto;
  bool operator==(const MemorySettings&) const = default;
};

struct TimeoutSettings {
  std::chrono::milliseconds open{2000};
  std::chrono::milliseconds connect{5000};
  std::chrono::milliseconds grace_min{250};
  std::chrono::milliseconds grace_max{2000};
  std::chrono::milliseconds fence{2000};
  std::chrono::milliseconds transfer_default{60000};
  std::chrono::milliseconds drain{30000};
  std::chrono::milliseconds lease_extra{5000};
  std::chrono::milliseconds card_stall{500};  // 0: off
  bool operator==(const TimeoutSettings&) const = default;
};

struct LimitSettings {
  std::size_t transfers_in_flight = 65536;
  std::size_t regions = 65536;
  std::uint64_t region_bytes = 0;  // of all regions together; 0: no limit
  // Of one client: what has its name in the allow-list, without keys its connection. 0: no limit of
  // its own.
  std::size_t client_transfers = 0;
  std::size_t client_regions = 0;
  std::uint64_t client_region_bytes = 0;
  std::size_t client_requests = 16384;  // waiting and under way, of one connection
  std::size_t connections = 4096;       // to the request socket
  bool operator==(const LimitSettings&) const = default;
};

/// For whose clients this node carries out transfers (`on` of a request).
enum class ThirdParty : unsigned char { kMembers, kNone };

struct SecuritySettings {
  std::filesystem::path key_file;          // this service's secret key for clients; "": none
  std::filesystem::path allow_list;        // which clients may do what
  std::filesystem::path cluster_key_file;  // the members' common secret key; "": none
  bool insecure = false;                   // reachable without keys all the same
  ThirdParty third_party = ThirdParty::kMembers;
  bool operator==(const SecuritySettings&) const = default;
};

struct MetricsSettings {
  std::string endpoint = "auto";  // "http://host:port", "auto" or "off"
  std::filesystem::path password_file;
  std::size_t traces_kept = 1000;
  bool operator==(const MetricsSettings&) const = default;
};
/// Where "auto" listens; where that is taken, any free port of loopback.
inline constexpr const char* kMetricsEndpoint = "http://127.0.0.1:7413";

struct LogSettings {
  std::string level = "info";
  std::filesystem::path file;  // "": standard error
  bool json = false;
  std::uint32_t repeat_per_s = 10;
  bool operator==(const LogSettings&) const = default;
};

struct CafSettings {
  std::size_t threads = 0;                        // 0: auto, see caf_threads
  std::optional<std::chrono::microseconds> spin;  // none: auto, see caf_spin
  bool on_pollers = true;                         // polling threads run them, too
  bool operator==(const CafSettings&) const = default;
};

struct Settings {
  NodeSettings node;
  RequestSettings request;
  GossipSettings gossip;
  FabricSettings fabric;
  DeviceSettings devices;
  MemorySettings memory;
  TimeoutSettings timeouts;
  LimitSettings limits;
  SecuritySettings security;
  MetricsSettings metrics;
  LogSettings log;
  CafSettings caf;
  bool operator==(const Settings&) const = default;
};

using Environment = std::map<std::string, std::string>;
/// The variables of this process whose names start with PENSTOCK_.
Environment process_environment();

/// Reads the sources in order and checks the whole. `file` may be empty: defaults only. `overrides`
/// are "section.key=value". Lists in the environment and in flags are "a,b" or YAML "[a, b]".
/// kInvalidArgument names the key and where it was given (file and line, variable, or flag), what
/// was found and what is wanted; kNotFound and kDenied are about the file itself.
Result<Settings> load_settings(const std::filesystem::path& file,
                               const std::vector<std::string>& overrides = {},
                               const Environment& environment = process_environment());

/// Every key there is, as "section.key".
std::vector<std::string> setting_keys();

/// Fewer hardware threads than a node has threads of its own: whoever waits awake keeps others from
/// what it waits for.
bool has_few(std::size_t cores);
/// CAF workers to start on a machine with `cores` hardware threads: as set, else 1 to 8.
std::size_t caf_threads(const CafSettings& settings, std::size_t cores);
/// How long a worker without work looks for it before it sleeps, on such a machine: as set, else
/// 50 us, and not at all where there are few.
std::chrono::microseconds caf_spin(const CafSettings& settings, std::size_t cores);
/// How long a poller, or the gateway for rings, stays awake behind what it had to do last, on such
/// a machine: as set, else 500 us, which is longer than a small transfer takes, and 50 us where
/// there are few.
std::chrono::microseconds spin_of(std::optional<std::chrono::microseconds> set, std::size_t cores);

}  // namespace penstock

#include "actors/node/service.hpp"

#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>

#include "actors/actor_system_config.hpp"
#include "actors/bell.hpp"
#include "actors/device/device_actor.hpp"
#include "actors/gateway/gateway.hpp"
#include "actors/membership/gossip_socket.hpp"
#include "actors/messages.hpp"
#include "actors/nic/nic_actor.hpp"
#include "actors/node/machine.hpp"
#include "actors/node/node_actor.hpp"
#include "actors/node/open_files.hpp"
#include "actors/node/staging.hpp"
#include "actors/node/version.hpp"
#include "actors/node/watch_page.hpp"
#include "transport/gpu/inventory.hpp"
#include "transport/memory/segment_owner.hpp"

namespace penstock {
namespace {

constexpr Milliseconds kOwnPagesMargin{2000};

/// Start time in ns: a later run of a node has the higher one. The low bits are random, so that two
/// nodes started in the same moment differ.
Incarnation new_incarnation() {
  const auto ns = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                             std::chrono::nanoseconds(1));
  return (ns & ~std::uint64_t{0xffff}) | (std::random_device()() & 0xffff);
}

/// Carries requests and member changes from the sockets' threads to the node actor until shut.
class Door {
 public:
  explicit Door(caf::actor node) : node_(std::move(node)) {}
  /// Whoever comes meanwhile waits: a socket may speak before its owner has a pointer to it.
  std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }
  template <class Message>
  void pass(Message message) {
    std::lock_guard lock(mutex_);
    if (node_) tell(node_, std::move(message));
  }
  /// Does it unless it is shut, and is not shut meanwhile.
  template <class Work>
  bool do_if_open(Work work) {
    std::lock_guard lock(mutex_);
    return node_ && work();
  }
  void shut() {
    std::lock_guard lock(mutex_);
    node_ = nullptr;
  }

 private:
  std::mutex mutex_;
  caf::actor node_;
};

}  // namespace

struct Service::State {
  Settings settings;
  DrainAsked drain_asked;
  Incarnation incarnation = new_incarnation();
  std::string banner;
  std::shared_ptr<RegionTable> regions = std::make_shared<RegionTable>(incarnation);
  SegmentOwner segments;  // goes after the regions
  std::optional<KeyPair> cluster_keys;
  KeyPair session_keys = make_key_pair();  // of the seals, for this run
  std::shared_ptr<Audit> audit;
  Machine machine;
  std::unique_ptr<ActorSystemConfig> config;
  std::unique_ptr<caf::actor_system> system;
  caf::actor node;
  std::shared_ptr<FrontDesk> desk = std::make_shared<FrontDesk>();
  std::shared_ptr<LentThread> desk_thread;  // the gateway's; null: it runs no actors
  std::shared_ptr<LiveShadows> shadows = std::make_shared<LiveShadows>();
  NodeChildren children;
  std::shared_ptr<Door> door;
  std::shared_ptr<DescriptorSocket> descriptors;
  std::unique_ptr<Gateway> gateway;
  std::unique_ptr<GossipSocket> gossip;
  std::atomic<GossipSocket*> open_gossip_socket{nullptr};  // for the actors
  std::unique_ptr<HttpServer> watch_page;
  std::atomic<std::shared_ptr<const std::string>> watched_at;  // for the actors

  std::string segment_prefix() const {
    return fmt::format("penstock.{}.{:016x}", settings.node.name, incarnation);
  }
  std::uint32_t wire_version() const {
    return settings.fabric.wire_version ? settings.fabric.wire_version : kWireVersion;
  }
  void spawn_node_actor();
  void spawn_children();
  bool uses_gpus() const;
  void open_descriptors();
  Result<void> open_gateway();
  Result<void> open_gossip();
  Result<void> open_page();
  DeviceActorSetup device_setup(std::size_t index) const;
  void stop();
};

void Service::State::spawn_node_actor() {
  NodeActorSetup setup;
  setup.node = settings.node.name;
  setup.incarnation = incarnation;
  setup.service_version = kServiceVersion;
  setup.segments = segment_prefix();
  setup.provider = settings.fabric.provider;
  setup.devices = machine.devices;
  setup.regions = regions;
  setup.plan = {settings.fabric.max_chunk_bytes, settings.fabric.merge};
  for (const auto& device : machine.devices)
    for (std::size_t i = 0; i < device->poller->nic_count(); ++i)
      setup.plan.max_chunk_bytes =
          std::min(setup.plan.max_chunk_bytes, device->poller->nic(i).info().max_chunk_bytes);
  setup.default_deadline = settings.timeouts.transfer_default;
  setup.transfers_in_flight = settings.limits.transfers_in_flight;
  setup.client_transfers = settings.limits.client_transfers;
  setup.events_kept = settings.request.events_kept;
  setup.ledger.keep = settings.request.results_kept;
  setup.third_party.takes = settings.security.third_party;
  setup.third_party.shadows.stopping = settings.timeouts.grace_max + settings.timeouts.fence;
  // Until then the lease of what the executor opened here has ended, and the fence after it.
  setup.third_party.own_pages =
      settings.timeouts.lease_extra + setup.third_party.shadows.stopping + kOwnPagesMargin;
  setup.third_party.delegations.request_bytes = settings.request.max_request_bytes;
  setup.third_party.delegations.keep = settings.request.results_kept;
  setup.limits.regions = settings.limits.regions;
  setup.limits.bytes = settings.limits.region_bytes;
  setup.limits.huge_pages = settings.memory.huge_pages;
  setup.limits.gpus = settings.devices.gpu_choice != GpuChoice::kNone;
  setup.limits.client_regions = settings.limits.client_regions;
  setup.limits.client_bytes = settings.limits.client_region_bytes;
  if (uses_gpus()) setup.descriptors = descriptors;
  if (settings.request.rings > 0) setup.ring_socket = descriptors;
  setup.desk = desk;
  setup.shadows = shadows;
  setup.end_ring = [this](const ClientId& client) { gateway->end_ring(client); };
  setup.peer.node = settings.node.name;
  setup.peer.incarnation = incarnation;
  setup.peer.wire_version = wire_version();
  setup.audit = audit;
  if (cluster_keys) setup.peer.secrets = {session_keys.secret_key, cluster_keys->secret_key};
  for (const auto& device : machine.devices)
    setup.peer.devices.push_back({device->name, device->card_names.size()});
  // The gateway outlives the actors, but starts after them.
  setup.send = [this](const ClientId& client, std::vector<std::uint8_t> message) {
    gateway->send_packed(client, std::move(message));
  };
  // Clients may ask before there is gossip; the actors end before it does.
  setup.suspect = [this](const std::string& name) {
    if (auto* open = open_gossip_socket.load()) open->suspect(name);
  };
  setup.announce_drain = [this] {
    if (auto* open = open_gossip_socket.load()) open->drain();
  };
  setup.remove = [this](const std::string& name, bool force) -> Result<void> {
    auto* open = open_gossip_socket.load();
    if (!open) return fail(ErrorCode::kBusy, "the service is starting: ask again");
    return open->remove(name, force);
  };
  setup.set_load = [this](std::uint32_t load) {
    if (auto* open = open_gossip_socket.load()) open->set_load(load);
  };
  setup.members = [this] {
    auto* open = open_gossip_socket.load();
    return open ? open->members() : std::vector<MemberChange>{};
  };
  setup.requests = [this] { return gateway->counters(); };
  setup.watched_at = [this] {
    const auto at = watched_at.load();
    return at ? *at : std::string();
  };
  setup.traces_kept = settings.metrics.traces_kept;
  setup.drain_asked = drain_asked;
  setup.departed_kept = settings.gossip.forget_dead;
  node = spawn_node(*system, std::move(setup));
}

DeviceActorSetup Service::State::device_setup(std::size_t index) const {
  const auto& device = machine.devices[index];
  const TimeoutSettings& timeouts = settings.timeouts;
  DeviceActorSetup setup;
  setup.device = device;
  setup.regions = regions;
  setup.shadows = shadows;
  setup.node = node;
  setup.desk_thread = desk_thread;
  setup.nics = children.nics[index];
  setup.incarnation = incarnation;
  setup.sealed = cluster_keys.has_value();
  setup.warm_up = settings.fabric.warm_up;
  Outbound::Options& outbound = setup.outbound;
  outbound.node = settings.node.name;
  outbound.device = device->name;
  outbound.packing = settings.fabric.packing;
  outbound.inline_bytes = settings.fabric.inline_bytes;
  if (device->staging) {
    outbound.staging_bytes = device->staging->slot_bytes();
    outbound.costs.copied_byte_ns = measure_copies(*device);
  }
  outbound.cards = device->card_names;
  outbound.scheduler.quantum_bytes = settings.fabric.quantum_bytes;
  outbound.counted_chunks = settings.fabric.counted_chunks;
  outbound.window_bytes = settings.fabric.window_bytes;
  outbound.open = timeouts.open;
  outbound.connect = timeouts.connect;
  outbound.grace_min = timeouts.grace_min;
  outbound.grace_max = timeouts.grace_max;
  outbound.fence = timeouts.fence;
  outbound.lease_extra = timeouts.lease_extra;
  Inbound::Options& inbound = setup.inbound;
  inbound.device = device->name;
  inbound.grace_max = timeouts.grace_max;
  inbound.remember = std::max(inbound.remember, 2 * timeouts.open);
  for (std::size_t i = 0; i < device->poller->nic_count(); ++i) {
    const NicInfo& info = device->poller->nic(i).info();
    inbound.fence = info.fence;
    inbound.immediate_data = inbound.immediate_data && info.immediate_data;
  }
  return setup;
}

bool Service::State::uses_gpus() const {
  return settings.devices.gpu_choice != GpuChoice::kNone && !gpu_inventory().gpus.empty();
}

/// Beside the request socket where that is a file, else in the folder for temporary ones. Memory of
/// GPUs and rings need it: a service without it does everything else.
void Service::State::open_descriptors() {
  if (!uses_gpus() && settings.request.rings == 0) return;
  std::filesystem::path path;
  for (const std::string& bind : settings.request.bind)
    if (path.empty() && bind.starts_with("ipc://")) path = bind.substr(6) + ".fd";
  if (path.empty()) {
    const auto folder = std::filesystem::temp_directory_path();
    const std::string prefix = fmt::format("penstock.{}.", settings.node.name);
    DescriptorSocket::remove_stale(folder, prefix);
    path = folder / fmt::format("{}{:016x}.fd", prefix, incarnation);
  }
  auto opened = DescriptorSocket::start(path);
  if (!opened)
    return spdlog::warn("no descriptors are exchanged, and no rings: {}", opened.error().message);
  descriptors = std::move(*opened);
}

void Service::State::spawn_children() {
  for (const auto& device : machine.devices) {
    auto& nics = children.nics.emplace_back();
    for (const auto& card : device->card_names)
      nics.push_back(spawn_nic(*system, device->name, card));
  }
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    children.devices.push_back(spawn_device(*system, device_setup(i)));
    machine.bells[i]->aim(children.devices[i]);
  }
  tell(node, children);
}

Result<void> Service::State::open_gateway() {
  Gateway::Setup setup;
  setup.bind = settings.request.bind;
  if (const SecuritySettings& security = settings.security; !security.key_file.empty()) {
    auto keys = read_key_file(security.key_file);
    if (!keys) return tl::unexpected(keys.error());
    setup.keys = *keys;
    auto clients = AllowList::read(security.allow_list);
    if (!clients) return tl::unexpected(clients.error());
    setup.clients = std::move(*clients);
  }
  setup.max_connections = settings.limits.connections;
  setup.max_client_requests = settings.limits.client_requests;
  setup.audit_lines_per_s = settings.log.repeat_per_s;
  setup.max_request_bytes = settings.request.max_request_bytes;
  setup.sink = [door = door](ClientId client, Request request) {
    door->pass(ClientRequest{std::move(client), std::make_shared<Request>(std::move(request))});
  };
  setup.gone = [door = door](const ClientId& client) { door->pass(ClientGone{client}); };
  setup.at_once = [door = door, desk = desk](const ClientId& client, Request& request) {
    return door->do_if_open([&] { return desk->try_accept(client, request); });
  };
  setup.descriptors = descriptors;
  setup.rings = settings.request.rings;
  setup.ring_bytes = settings.request.ring_bytes;
  const std::size_t cores = std::thread::hardware_concurrency();
  setup.ring_spin = spin_of(settings.request.ring_spin, cores);
  setup.ring_yields = has_few(cores);
  setup.side_work = desk_thread;
  const auto hold = door->hold();
  auto opened = Gateway::start(std::move(setup));
  if (!opened) return tl::unexpected(opened.error());
  gateway = std::move(*opened);
  return {};
}

Result<void> Service::State::open_gossip() {
  GossipSocket::Setup setup;
  setup.bind = settings.gossip.bind;
  if (const std::string& host = settings.gossip.advertise; host.find(':') != std::string::npos)
    setup.advertise = "tcp://[" + host + "]:*";  // IPv6
  else if (!host.empty())
    setup.advertise = "tcp://" + host + ":*";
  setup.options.seeds = settings.gossip.members;
  setup.options.period = settings.gossip.period;
  setup.options.probe_timeout = settings.gossip.probe_timeout;
  setup.options.indirect_probes = settings.gossip.indirect_probes;
  setup.options.suspicion = settings.gossip.suspicion;
  setup.options.suspicion_longest = settings.gossip.suspicion_longest;
  setup.options.closed_grace = settings.gossip.closed_grace;
  setup.options.retransmit = settings.gossip.retransmit;
  setup.options.frame_bytes = settings.gossip.frame_bytes;
  setup.options.push_pull = settings.gossip.push_pull;
  setup.options.forget_dead = settings.gossip.forget_dead;
  setup.options.seed = incarnation;
  setup.keys = cluster_keys;
  setup.audit_lines_per_s = settings.log.repeat_per_s;
  setup.self.node = settings.node.name;
  setup.self.labels = settings.node.labels;
  setup.self.incarnation = incarnation;
  setup.self.wire_version = wire_version();
  setup.self.service_version = kServiceVersion;
  setup.self.provider = settings.fabric.provider;
  if (cluster_keys)
    for (const std::uint8_t byte : session_keys.public_key)
      setup.self.fabric_key.push_back(static_cast<std::byte>(byte));
  setup.self.request_endpoint = gateway->endpoints().front();
  for (const auto& device : machine.devices)
    for (std::size_t i = 0; i < device->card_names.size(); ++i)
      setup.self.cards.push_back({device->name, static_cast<std::uint16_t>(i),
                                  device->card_names[i], device->control_addresses[i]});
  setup.changed = [door = door](MemberChange change) {
    door->pass(MemberChanged{std::move(change)});
  };
  const auto hold = door->hold();
  auto opened = GossipSocket::start(std::move(setup));
  if (!opened) return tl::unexpected(opened.error());
  gossip = std::move(*opened);
  open_gossip_socket = gossip.get();
  return {};
}

Result<void> Service::State::open_page() {
  if (settings.metrics.endpoint == "off") return {};
  if (settings.metrics.endpoint == "auto" && !settings.security.key_file.empty() &&
      settings.metrics.password_file.empty()) {
    spdlog::info("no page and no metrics: clients need keys, and metrics.password_file is empty");
    return {};
  }
  auto opened = open_watch_page_server(settings.metrics, *system, node);
  if (!opened) return tl::unexpected(opened.error());
  watch_page = std::move(*opened);
  watched_at = std::make_shared<const std::string>(watch_page->endpoint());
  return {};
}

void Service::State::stop() {
  watch_page.reset();  // its threads ask the actors
  if (door) door->shut();
  for (const auto& bell : machine.bells) bell->aim(nullptr);
  for (const auto& thread : machine.lent) thread->close();
  if (desk_thread) desk_thread->close();
  if (system) {
    tell(node, CancelAll{});  // a copy in hand sees it, so that its thread can be waited for
    // The actors still use the workers, which from now on drop what they are given.
    for (const auto& device : machine.devices) {
      device->registrar->stop();
      device->copier->stop();
    }
    end_actor(node);
    for (const auto& actor : children.devices) end_actor(actor);
    for (const auto& nics : children.nics)
      for (const auto& actor : nics) end_actor(actor);
    // Their copies have been cancelled; the last of them is told to nobody.
    for (const auto& device : machine.devices) device->gpu_copier.reset();
    node = nullptr;
    children = {};
    system.reset();
  }
  // The node actor may have been in gossip->suspect() or gateway->send(): it went first.
  gossip.reset();
  gateway.reset();
  descriptors.reset();
  machine.devices.clear();  // cards close here: until then a peer's writes may still land
  regions->clear();
}

Service::Service() : state_(std::make_unique<State>()) {}

Service::~Service() { state_->stop(); }

Result<std::unique_ptr<Service>> Service::start(const Settings& settings, DrainAsked drain_asked) {
  std::unique_ptr<Service> service(new Service());
  State& state = *service->state_;
  state.settings = settings;
  state.drain_asked = std::move(drain_asked);
  state.audit = std::make_shared<Audit>(settings.log.repeat_per_s);
  if (auto files = raise_open_files(); !files) return tl::unexpected(files.error());
  auto segments = SegmentOwner::claim(state.segment_prefix());
  if (!segments) return tl::unexpected(segments.error());
  state.segments = std::move(*segments);
  if (const auto& file = settings.security.cluster_key_file; !file.empty()) {
    auto keys = read_key_file(file);
    if (!keys) return tl::unexpected(keys.error());
    state.cluster_keys = *keys;
  }
  auto machine = open_machine(settings);
  if (!machine) return tl::unexpected(machine.error());
  state.machine = std::move(*machine);
  for (const auto& device : state.machine.devices) {
    if (settings.fabric.packing != PackingMode::kNever)
      if (auto opened = open_staging(*device, settings.fabric.staging_bytes); !opened)
        return tl::unexpected(opened.error());
    if (auto opened = open_scratch(*device, *state.regions); !opened)
      return tl::unexpected(opened.error());
  }
  const std::size_t cores = std::thread::hardware_concurrency();
  state.config = std::make_unique<ActorSystemConfig>(caf_threads(settings.caf, cores),
                                                     caf_spin(settings.caf, cores));
  state.system = std::make_unique<caf::actor_system>(*state.config);
  for (const auto& thread : state.machine.lent) thread->open(*state.system);
  // Where nobody else needs its core while it waits awake, or somebody said how long it may.
  if (settings.caf.on_pollers && (settings.request.ring_spin || !has_few(cores))) {
    state.desk_thread = std::make_shared<LentThread>(LentThread::Rest::kHere);
    state.desk_thread->open(*state.system);
  }
  state.open_descriptors();
  state.spawn_node_actor();
  state.door = std::make_shared<Door>(state.node);
  state.spawn_children();
  if (auto opened = state.open_gateway(); !opened) return tl::unexpected(opened.error());
  if (auto opened = state.open_gossip(); !opened) return tl::unexpected(opened.error());
  if (auto opened = state.open_page(); !opened) return tl::unexpected(opened.error());

  state.banner =
      fmt::format("penstockd {}\n  node      {} (incarnation {:x})\n  provider  {}\n",
                  kServiceVersion, settings.node.name, state.incarnation, settings.fabric.provider);
  state.banner += state.machine.description;
  if (settings.security.insecure)
    spdlog::warn(
        "security.insecure: whoever reaches this node's {} may do what they like with its "
        "memory",
        settings.security.key_file.empty() ? "sockets and cards" : "gossip and cards");
  for (const auto& endpoint : state.gateway->endpoints())
    state.banner += fmt::format("  requests  {}\n", endpoint);
  state.banner += fmt::format("  gossip    {}\n", state.gossip->self().gossip_endpoint);
  state.banner += fmt::format("  metrics   {}\n",
                              state.watch_page ? state.watch_page->endpoint() + "/metrics" : "off");
  return service;
}

Result<void> Service::reload() {
  const SecuritySettings& security = state_->settings.security;
  if (security.allow_list.empty()) return {};
  auto clients = AllowList::read(security.allow_list);
  if (!clients) return tl::unexpected(clients.error());
  spdlog::info("allow-list {} read again: {} keys", security.allow_list.string(), clients->size());
  state_->gateway->allow(std::move(*clients));
  return {};
}

const std::string& Service::banner() const { return state_->banner; }

bool Service::drain(Milliseconds deadline) {
  caf::scoped_actor self(*state_->system);
  bool clean = false;
  self->request(state_->node, deadline, BeginDrain{})
      .receive([&](bool) { clean = true; }, [](const caf::error&) {});
  if (!clean) {
    spdlog::warn("drain: work was left after {} ms and is cancelled", deadline.count());
    tell(state_->node, CancelAll{});
    const auto quiet = state_->settings.timeouts.grace_max + state_->settings.timeouts.fence;
    self->request(state_->node, quiet, BeginDrain{}).receive([](bool) {}, [](const caf::error&) {});
  }
  state_->gossip->leave();
  return clean;
}

}  // namespace penstock

#include "transport/fabric/provider.hpp"

#include <fmt/ranges.h>
#include <netinet/in.h>

#include <cstring>
#include <set>

#include "transport/fabric/fabric_nic.hpp"
#include "transport/fabric/fid.hpp"
#include "transport/fabric/interfaces.hpp"
#include "transport/fabric/provider_traits.hpp"

namespace penstock {
namespace {

constexpr auto kApi = FI_VERSION(1, 17);

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const auto& traits : known_providers()) names.emplace_back(traits.name);
  return names;
}

/// Every provider that can give RDM endpoints here, for error messages.
std::vector<std::string> offered_names() {
  std::set<std::string> names;
  Info hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_RDM;
  fi_info* list = nullptr;
  if (fi_getinfo(kApi, nullptr, nullptr, 0, hints.get(), &list) == 0) {
    const Info owner(list);
    for (const fi_info* each = list; each != nullptr; each = each->next)
      names.insert(each->fabric_attr->prov_name);
  }
  return {names.begin(), names.end()};
}

Info make_hints(const ProviderTraits& traits, std::string_view fabric_name, bool gpu_memory) {
  Info hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps =
      FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  if (traits.counts_inbound) hints->caps |= FI_RMA_EVENT;
  if (gpu_memory) hints->caps |= FI_HMEM;
  // OperationContext is the scratch that these modes ask for.
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode = static_cast<int>(traits.memory_modes);
  if (gpu_memory) hints->domain_attr->mr_mode |= FI_MR_HMEM;
  // Registration comes from another thread.
  hints->domain_attr->threading = FI_THREAD_SAFE;
  // Automatic progress starts a thread that would fight with the poller for the core.
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->av_type = FI_AV_UNSPEC;
  hints->fabric_attr->prov_name = strdup(std::string(fabric_name).c_str());
  return hints;
}

void set_source(fi_info& hints, const InterfaceAddress& source) {
  const std::size_t size = source.ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  hints.src_addr = std::malloc(size);
  std::memcpy(hints.src_addr, &source.socket_address, size);
  hints.src_addrlen = size;
  hints.addr_format = source.ipv6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
  hints.domain_attr->name = strdup(source.name.c_str());
}

/// What libfabric offers under exactly one of the provider's names; empty when it is not there.
Info query(const ProviderTraits& traits, const InterfaceAddress* source, const std::string& domain,
           bool gpu_memory = false) {
  prepare_environment();
  for (const auto name : traits.fabric_names) {
    const Info hints = make_hints(traits, name, gpu_memory);
    if (source != nullptr) {
      set_source(*hints, *source);
    } else if (!domain.empty()) {
      hints->domain_attr->name = strdup(domain.c_str());
    }
    fi_info* list = nullptr;
    if (fi_getinfo(kApi, nullptr, nullptr, 0, hints.get(), &list) != 0) continue;
    const Info offered(list);
    // Keep the entries that are meant, drop those of layered providers.
    Info kept;
    fi_info** tail = nullptr;
    for (const fi_info* each = offered.get(); each != nullptr; each = each->next) {
      if (each->fabric_attr->prov_name != name) continue;
      fi_info* copy = fi_dupinfo(each);
      if (tail == nullptr) {
        kept.reset(copy);
      } else {
        *tail = copy;
      }
      tail = &copy->next;
    }
    if (kept) return kept;
  }
  return {};
}

/// With FI_HMEM where it is wanted and there, else without.
Info query_card(const ProviderTraits& traits, const InterfaceAddress* source,
                const CardRequest& request) {
  if (request.gpu_memory && traits.reaches_gpus)
    if (Info info = query(traits, source, request.domain, true)) return info;
  return query(traits, source, request.domain);
}

tl::unexpected<Error> absent(const ProviderTraits& traits) {
  const auto version = fi_version();
  return fail(ErrorCode::kUnsupported,
              "provider {} is not offered by libfabric {}.{} here (asked for {}); it offers: {}",
              traits.name, FI_MAJOR(version), FI_MINOR(version),
              fmt::join(traits.fabric_names, " or "), fmt::join(offered_names(), ", "));
}

Result<const ProviderTraits*> require_traits(const std::string& provider) {
  if (const auto* traits = traits_of(provider)) return traits;
  return fail(ErrorCode::kUnsupported, "unknown provider '{}'; known are: {}", provider,
              fmt::join(known_names(), ", "));
}

std::string pci_bus(const fi_info& info) {
  if (info.nic == nullptr || info.nic->bus_attr == nullptr ||
      info.nic->bus_attr->bus_type != FI_BUS_PCI)
    return "";
  const auto& pci = info.nic->bus_attr->attr.pci;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain_id, pci.bus_id, pci.device_id,
                     pci.function_id);
}

double link_gbps(const fi_info& info) {
  if (info.nic == nullptr || info.nic->link_attr == nullptr) return 0;
  return static_cast<double>(info.nic->link_attr->speed) / 1e9;
}

Result<std::vector<CardOffer>> list_interfaces(const ProviderTraits& traits) {
  std::vector<CardOffer> offers;
  for (const auto& each : usable_addresses(interface_addresses())) {
    const auto device = interface_device(each.name);
    offers.push_back({std::string(traits.name), each.name, each.address, device.bus,
                      device.numa_node, device.link_gbps});
  }
  return offers;
}

Result<std::unique_ptr<Nic>> open_interface(const ProviderTraits& traits,
                                            const CardRequest& request) {
  const auto source = choose_address(interface_addresses(), request.domain, request.address);
  if (!source) return tl::unexpected(source.error());
  Info info = query_card(traits, &*source, request);
  if (!info) return absent(traits);
  // libfabric takes any source address, and answers with a made-up domain for one it cannot place.
  sockaddr_storage bound{};
  if (info->src_addr != nullptr && info->src_addrlen <= sizeof bound)
    std::memcpy(&bound, info->src_addr, info->src_addrlen);
  if (info->domain_attr->name != source->name || !same_address(bound, source->socket_address))
    return fail(
        ErrorCode::kProvider, "asked libfabric for {} on {}, it offers domain {} with address {}",
        source->address, source->name, info->domain_attr->name,
        bound.ss_family == 0 ? "none" : format_address(reinterpret_cast<sockaddr*>(&bound)));
  const auto device = interface_device(source->name);
  NicInfo described;
  described.link_gbps = device.link_gbps;
  described.numa_node = device.numa_node;
  described.bus = device.bus;
  described.gpu_memory = request.gpu_memory;
  if (request.numa_node >= 0) described.numa_node = request.numa_node;
  if (!request.bus.empty()) described.bus = request.bus;
  return FabricNic::open(traits, std::move(info), std::move(described));
}

Result<std::unique_ptr<Nic>> open_device(const ProviderTraits& traits, const CardRequest& request) {
  Info info = query_card(traits, nullptr, request);
  if (!info && !request.domain.empty() && query(traits, nullptr, ""))
    return fail(ErrorCode::kNotFound, "provider {} has no domain named {} (see list_cards)",
                traits.name, request.domain);
  if (!info) return absent(traits);
  // The first entry is the best match; the others would be opened if it were not for our own list.
  NicInfo described;
  described.link_gbps = link_gbps(*info);
  described.numa_node = request.numa_node;
  described.gpu_memory = request.gpu_memory;
  described.bus = request.bus.empty() ? pci_bus(*info) : request.bus;
  return FabricNic::open(traits, std::move(info), std::move(described));
}

}  // namespace

Result<std::vector<CardOffer>> list_cards(const std::string& provider) {
  const auto traits = require_traits(provider);
  if (!traits) return tl::unexpected(traits.error());
  const Info info = query(**traits, nullptr, "");
  if (!info) return absent(**traits);
  if ((*traits)->cards_are_interfaces) return list_interfaces(**traits);
  std::vector<CardOffer> offers;
  std::set<std::string> seen;
  for (const fi_info* each = info.get(); each != nullptr; each = each->next) {
    if (!seen.insert(each->domain_attr->name).second) continue;
    offers.push_back({provider, each->domain_attr->name, "", pci_bus(*each), -1, link_gbps(*each)});
  }
  return offers;
}

Result<std::unique_ptr<Nic>> open_card(const CardRequest& request) {
  const auto traits = require_traits(request.provider);
  if (!traits) return tl::unexpected(traits.error());
  if ((*traits)->cards_are_interfaces) return open_interface(**traits, request);
  if (!request.address.empty())
    return fail(ErrorCode::kInvalidArgument,
                "provider {} has no source addresses: remove '{}', choose the card by domain",
                request.provider, request.address);
  return open_device(**traits, request);
}

}  // namespace penstock

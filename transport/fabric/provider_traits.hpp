// What Penstock has to know about a libfabric provider beyond what fi_info says.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "transport/fabric/nic.hpp"

namespace penstock {

struct ProviderTraits {
  std::string_view name;  // as the configuration says it
  /// libfabric's own names, tried in this order and compared exactly with fabric_attr->prov_name:
  /// a provider that answers under a longer name ("tcp;ofi_rxm") is another provider.
  std::span<const std::string_view> fabric_names;
  /// mr_mode bits that we can serve. What comes back of them is honoured.
  std::uint64_t memory_modes = 0;
  FenceKind fence = FenceKind::kReopenInbound;
  /// Cards are network interfaces with IP addresses, checked against getifaddrs.
  bool cards_are_interfaces = false;
  /// A queue bound to no endpoint becomes readable exactly while the domain's sockets have work
  /// (see WaitObject). Otherwise the queues' own wait objects are tried.
  bool waits_on_domain = false;
  /// The provider's FI_THREAD_SAFE does not cover registration against progress: serialize them.
  bool serialize_registration = false;
  /// The owner of the pages moves them in software, inside its progress, and reports nothing: count
  /// arriving operations so that the poller knows that it is busy.
  bool counts_inbound = false;
  /// FI_HMEM is worth asking for: cards reach a GPU's memory themselves. A provider in software
  /// that grants it copies page by page, which staging does better.
  bool reaches_gpus = false;
  /// Endpoints accept sockets; see half_open.hpp for what that means when one is closed.
  bool accepts_sockets = false;
  /// Quirks, for whoever reads the table or `doctor`.
  std::string_view notes;
};

/// Null for a name that Penstock does not know.
const ProviderTraits* traits_of(std::string_view provider);
std::span<const ProviderTraits> known_providers();

/// Sets the provider variables that our promises need, unless the user set them. Providers read
/// them once, at the first fi_getinfo of the process: called before every one, works once.
void prepare_environment();

}  // namespace penstock

#include "transport/fabric/provider_traits.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <array>
#include <cstdlib>
#include <mutex>

namespace penstock {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::array kTcpNames = {"net"sv, "tcp"sv};
constexpr std::array kShmNames = {"shm"sv};
constexpr std::array kVerbsNames = {"verbs;ofi_rxm"sv};
constexpr std::array kEfaNames = {"efa"sv};

// For memory of GPUs FI_MR_HMEM is added where the provider grants FI_HMEM (provider.cpp).
constexpr std::uint64_t kHardwareModes =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

constexpr std::array kProviders = {
    ProviderTraits{
        .name = "tcp",
        .fabric_names = kTcpNames,
        // No PROV_KEY: we choose keys, 63 random bits, so that an old key never opens new memory.
        .memory_modes = FI_MR_LOCAL | FI_MR_ALLOCATED,
        .fence = FenceKind::kReopenInbound,
        .cards_are_interfaces = true,
        .waits_on_domain = true,
        .serialize_registration = true,
        .accepts_sockets = true,
        .notes = "FI_EP_RDM native. 1.17 calls it net (there, tcp is FI_EP_MSG only); later "
                 "versions call it tcp. Queues without bound: our windows are the only limit. "
                 "The key of a write is checked once, then the socket fills the pages: only "
                 "closing the inbound endpoint stops late bytes. 1.17 guards the registration map "
                 "with a lock that RDM domains do not use, and frees the entry of a read twice "
                 "when the endpoint is closed amid its answer (FabricNic::end_reads).",
    },
    ProviderTraits{
        .name = "shm",
        .fabric_names = kShmNames,
        // No VIRT_ADDR: offering it turns on a path that checks no key.
        .memory_modes = FI_MR_LOCAL | FI_MR_ALLOCATED,
        .fence = FenceKind::kReopenInbound,
        .serialize_registration = true,
        .counts_inbound = true,
        .reaches_gpus = true,  // as a test vehicle for the others
        .notes = "A test vehicle: same node only. No wait object. A peer that dies, or a key that "
                 "is void, gives no completion: only reopen_outbound ends such operations. CMA "
                 "stays off, since with it the target reads source pages whenever it wakes. "
                 "Installs handlers for SIGTERM and SIGINT that chain to the previous ones.",
    },
    ProviderTraits{
        .name = "verbs",
        .fabric_names = kVerbsNames,
        .memory_modes = kHardwareModes,
        .fence = FenceKind::kRekey,
        .reaches_gpus = true,
        .notes = "RDM by way of rxm over reliable connections; delivery complete is the card's "
                 "acknowledgement. Closing the registration or the connection stops late bytes. "
                 "rxm reports no source address for remote writes.",
    },
    ProviderTraits{
        .name = "efa",
        .fabric_names = kEfaNames,
        .memory_modes = kHardwareModes,
        .fence = FenceKind::kRekey,
        .reaches_gpus = true,
        .notes = "SRD: no order between operations. 4 bytes of immediate data, 4096 sends, 8192 "
                 "receives, one remote range per operation. Provider-chosen keys may repeat: safe "
                 "because a new incarnation has a new queue pair. Wait objects exist only in "
                 "newer versions: -1 otherwise and the poller ticks.",
    },
};

}  // namespace

const ProviderTraits* traits_of(std::string_view provider) {
  for (const auto& traits : kProviders)
    if (traits.name == provider) return &traits;
  return nullptr;
}

std::span<const ProviderTraits> known_providers() { return kProviders; }

void prepare_environment() {
  static std::once_flag once;
  std::call_once(once, [] {
    // With CMA the target of a write reads our pages by process id at any later moment, even after
    // our endpoint is closed: local quiet could not be promised.
    setenv("FI_SHM_DISABLE_CMA", "1", 0);
    // From 2.x every transfer entry of tcp embeds a receive buffer of this size for messages that
    // arrive before their receive. Ours are always posted beforehand, and entries of 64 KiB would
    // push the data path out of the cache.
    if (FI_MAJOR(fi_version()) >= 2) setenv("FI_TCP_MAX_RX_SIZE", "1024", 0);
  });
}

}  // namespace penstock

// The providers that Penstock knows, and how each behaves. The one table to extend for a new one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/error.hpp"
#include "transport/fabric/nic.hpp"

namespace penstock {

/// A card that libfabric offers for a provider.
struct CardOffer {
  std::string provider;  // "tcp", "shm", "verbs", "efa"
  std::string domain;    // libfabric's domain name: "eth0", "rdmap79s0"
  std::string address;   // source address, printable, "" for shm
  std::string bus;       // PCI bus id "0000:4f:00.0", "" when there is none
  int numa_node = -1;
  double link_gbps = 0;
};

/// What can be opened for `provider`. kUnsupported lists the providers that are there.
Result<std::vector<CardOffer>> list_cards(const std::string& provider);

/// Which card to open, from the configuration.
struct CardRequest {
  std::string provider = "tcp";
  /// Domain (interface) name, or "" to let the source address decide.
  std::string domain;
  /// Source address to bind, "" for the domain's own. Numeric, without a port; IPv6 zones parse.
  std::string address;
  int numa_node = -1;
  std::string bus;
  /// Asks for FI_HMEM; where the provider has none the card opens without (NicInfo::gpu_memory).
  bool gpu_memory = false;
};

/// Opens fabric, domain, address vector, completion queues and the three endpoints. Call it on the
/// thread that will poll the card. Never opens another provider than the one asked for, and checks
/// that the domain that came back carries the address asked for.
Result<std::unique_ptr<Nic>> open_card(const CardRequest& request);

}  // namespace penstock

// A card opened with libfabric: fabric, domain and address vector, and the memory registered there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "transport/error.hpp"
#include "transport/fabric/fid.hpp"
#include "transport/fabric/nic.hpp"
#include "transport/fabric/provider_traits.hpp"

namespace penstock {

/// Shared by the card and its registrations, so that either may go first.
class Domain : public std::enable_shared_from_this<Domain> {
 public:
  static Result<std::shared_ptr<Domain>> open(const ProviderTraits& traits, Info info);

  const ProviderTraits& traits() const { return traits_; }
  fi_info* info() const { return info_.get(); }
  fid_fabric* fabric() const { return fabric_.get(); }
  fid_domain* domain() const { return domain_.get(); }
  fid_av* addresses() const { return addresses_.get(); }
  bool has_memory_mode(std::uint64_t bit) const { return (info_->domain_attr->mr_mode & bit) != 0; }

  /// Any thread. `gpu`: whose memory it is, by CUDA's number; -1: host memory.
  Result<std::unique_ptr<MemoryRegistration>> register_memory(std::span<std::byte> memory,
                                                              int gpu = -1);

  /// Held while the provider's progress runs, where progress and registration do not agree on a
  /// lock of their own; holds nothing otherwise.
  std::unique_lock<std::mutex> progress_lock() {
    return traits_.serialize_registration ? std::unique_lock(registration_mutex_)
                                          : std::unique_lock<std::mutex>();
  }

  /// The same address may come from several links; a provider may answer with one handle for all,
  /// so handles are counted and removed with the last use. Poller's thread only.
  Result<PeerHandle> add_peer(const FabricAddress& address);
  /// Null: it was removed.
  const FabricAddress* address_of(PeerHandle peer) const {
    const auto found = peers_.find(peer);
    return found == peers_.end() ? nullptr : &found->second.address;
  }
  /// `listening`: where the card takes connections.
  void remove_peer(PeerHandle peer, std::span<const FabricAddress> listening);

 private:
  struct Peer {
    FabricAddress address;
    std::size_t uses = 0;
  };

  Domain(const ProviderTraits& traits, Info info) : traits_(traits), info_(std::move(info)) {}

  const ProviderTraits& traits_;
  Info info_;
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  Fid<fid_av> addresses_;
  std::mutex registration_mutex_;
  std::map<FabricAddress, PeerHandle> handles_;
  std::map<PeerHandle, Peer> peers_;
};

}  // namespace penstock

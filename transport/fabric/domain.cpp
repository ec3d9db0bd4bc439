#include "transport/fabric/domain.hpp"

#include <netinet/in.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "transport/fabric/half_open.hpp"

namespace penstock {
namespace {

/// A host that acknowledges nothing for so long after a peer on it was removed is gone. The
/// kernel's own patience is a quarter of an hour.
constexpr std::chrono::milliseconds kSilence{2000};

constexpr std::uint64_t kAccess =
    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

class FabricRegistration final : public MemoryRegistration {
 public:
  FabricRegistration(std::shared_ptr<Domain> domain, Fid<fid_mr> region, std::uint64_t remote_base)
      : domain_(std::move(domain)), region_(std::move(region)), remote_base_(remote_base) {}
  ~FabricRegistration() override {
    const auto lock = domain_->progress_lock();
    region_.reset();
  }
  std::uint64_t key() const override { return fi_mr_key(region_.get()); }
  std::uint64_t remote_base() const override { return remote_base_; }
  void* descriptor() const override { return fi_mr_desc(region_.get()); }

 private:
  std::shared_ptr<Domain> domain_;
  Fid<fid_mr> region_;
  std::uint64_t remote_base_;
};

/// 63 random bits, cut to what the provider carries: a key that was once given out is not met
/// again.
Result<std::uint64_t> random_key(std::size_t key_bytes) {
  std::uint64_t key = 0;
  if (getrandom(&key, sizeof key, 0) != static_cast<ssize_t>(sizeof key))
    return fail(ErrorCode::kInternal, "getrandom failed: {}", std::strerror(errno));
  key >>= 1;
  if (key_bytes < sizeof key) key &= (std::uint64_t{1} << (8 * key_bytes)) - 1;
  return key;
}

}  // namespace

Result<std::shared_ptr<Domain>> Domain::open(const ProviderTraits& traits, Info info) {
  std::shared_ptr<Domain> domain(new Domain(traits, std::move(info)));
  const auto failed = [&](const char* call, long status) {
    return fail(ErrorCode::kProvider, "{}: {} on domain {}: {}", traits.name, call,
                domain->info_->domain_attr->name, fabric_error(status));
  };
  fid_fabric* fabric = nullptr;
  if (const int status = fi_fabric(domain->info_->fabric_attr, &fabric, nullptr))
    return failed("fi_fabric", status);
  domain->fabric_.reset(fabric);
  fid_domain* opened = nullptr;
  if (const int status = fi_domain(fabric, domain->info_.get(), &opened, nullptr))
    return failed("fi_domain", status);
  domain->domain_.reset(opened);
  fi_av_attr attributes{};
  attributes.type = FI_AV_UNSPEC;
  fid_av* addresses = nullptr;
  if (const int status = fi_av_open(opened, &attributes, &addresses, nullptr))
    return failed("fi_av_open", status);
  domain->addresses_.reset(addresses);
  return domain;
}

Result<std::unique_ptr<MemoryRegistration>> Domain::register_memory(std::span<std::byte> memory,
                                                                    int gpu) {
  if (memory.empty()) return fail(ErrorCode::kInvalidArgument, "cannot register 0 bytes");
  auto key = random_key(info_->domain_attr->mr_key_size);
  if (!key) return tl::unexpected(key.error());
  const iovec pieces{memory.data(), memory.size()};
  fi_mr_attr attributes{};
  attributes.mr_iov = &pieces;
  attributes.iov_count = 1;
  attributes.access = kAccess;
  attributes.requested_key = *key;  // where the provider chooses keys it ignores ours
  std::uint64_t flags = 0;
  if (gpu >= 0) {
    attributes.iface = FI_HMEM_CUDA;
    attributes.device.cuda = gpu;
    // No region is managed memory. Without this word shm copies by way of host memory.
    flags = FI_HMEM_DEVICE_ONLY;
  }
  fid_mr* region = nullptr;
  int status = 0;
  {
    const auto lock = progress_lock();
    status = fi_mr_regattr(domain_.get(), &attributes, flags, &region);
  }
  if (gpu >= 0 && (status == -FI_ENOSYS || status == -FI_EOPNOTSUPP))
    return fail(ErrorCode::kUnsupported,
                "{} grants FI_HMEM, but this libfabric was built without CUDA: {}",
                info_->domain_attr->name, fabric_error(status));
  if (status == -FI_ENOMEM || status == -FI_EAGAIN)
    return fail(ErrorCode::kResourceExhausted,
                "{} refused to register {} bytes: {}; raise the locked-memory limit (ulimit -l "
                "unlimited) or register less",
                info_->domain_attr->name, memory.size(), fabric_error(status));
  if (status != 0)
    return fail(ErrorCode::kProvider, "{}: registering {} bytes{} failed: {}",
                info_->domain_attr->name, memory.size(),
                gpu < 0 ? "" : fmt::format(" of GPU {}", gpu), fabric_error(status));
  const auto base = has_memory_mode(FI_MR_VIRT_ADDR)
                        ? reinterpret_cast<std::uintptr_t>(memory.data())
                        : std::uintptr_t{0};
  return std::make_unique<FabricRegistration>(shared_from_this(), Fid<fid_mr>(region), base);
}

Result<PeerHandle> Domain::add_peer(const FabricAddress& address) {
  if (const auto known = handles_.find(address); known != handles_.end()) {
    ++peers_[known->second].uses;
    return known->second;
  }
  // The address comes from another node: a socket address of the wrong size would be read past its
  // end, and a string without its end as well.
  const auto format = info_->addr_format;
  const bool fits = format == FI_SOCKADDR_IN    ? address.size() == sizeof(sockaddr_in)
                    : format == FI_SOCKADDR_IN6 ? address.size() == sizeof(sockaddr_in6)
                    : format == FI_ADDR_STR
                        ? !address.empty() && address.size() < 256 && address.back() == std::byte{0}
                        : !address.empty();
  if (!fits)
    return fail(ErrorCode::kInvalidArgument,
                "{} bytes are no address of provider {}; do both nodes use the same provider?",
                address.size(), traits_.name);
  if (format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6) {
    std::uint16_t family = 0;
    std::memcpy(&family, address.data(), sizeof family);
    if (family != (format == FI_SOCKADDR_IN ? AF_INET : AF_INET6))
      return fail(ErrorCode::kInvalidArgument, "address family {} is not the card's", family);
  }
  fi_addr_t handle = FI_ADDR_UNSPEC;
  const int inserted = fi_av_insert(addresses_.get(), address.data(), 1, &handle, 0, nullptr);
  if (inserted != 1)
    return fail(ErrorCode::kProvider, "{}: fi_av_insert refused the peer's address: {}",
                info_->domain_attr->name, inserted < 0 ? fabric_error(inserted) : "not inserted");
  auto& peer = peers_[handle];
  if (peer.uses == 0) peer.address = address;
  ++peer.uses;
  handles_[address] = handle;
  return handle;
}

void Domain::remove_peer(PeerHandle handle, std::span<const FabricAddress> listening) {
  const auto found = peers_.find(handle);
  if (found == peers_.end() || --found->second.uses > 0) return;
  if (traits_.accepts_sockets && info_->src_addr != nullptr) {
    const auto* own = static_cast<const std::byte*>(info_->src_addr);
    shut_down_connected(FabricAddress(own, own + info_->src_addrlen), found->second.address);
    for (const FabricAddress& address : listening)
      end_when_silent(address, found->second.address, kSilence);
  }
  handles_.erase(found->second.address);
  peers_.erase(found);
  fi_addr_t address = handle;
  fi_av_remove(addresses_.get(), &address, 1, 0);
}

}  // namespace penstock

#include "transport/bench/raw_endpoint.hpp"

#include <netinet/in.h>

#include <cstdlib>
#include <cstring>

#include "transport/fabric/interfaces.hpp"
#include "transport/fabric/provider_traits.hpp"

namespace penstock {
namespace {

Result<Info> find_card(const RawOptions& options) {
  const auto* traits = traits_of(options.provider);
  if (traits == nullptr)
    return fail(ErrorCode::kUnsupported, "unknown provider '{}'", options.provider);
  prepare_environment();
  for (const auto name : traits->fabric_names) {
    const Info hints(fi_allocinfo());
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode = static_cast<int>(traits->memory_modes);
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->fabric_attr->prov_name = strdup(std::string(name).c_str());
    if (traits->cards_are_interfaces) {
      const auto source = choose_address(interface_addresses(), options.domain, options.address);
      if (!source) return tl::unexpected(source.error());
      hints->src_addrlen = source->ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
      hints->src_addr = std::malloc(hints->src_addrlen);
      std::memcpy(hints->src_addr, &source->socket_address, hints->src_addrlen);
      hints->addr_format = source->ipv6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
      hints->domain_attr->name = strdup(source->name.c_str());
    } else if (!options.domain.empty()) {
      hints->domain_attr->name = strdup(options.domain.c_str());
    }
    fi_info* list = nullptr;
    if (fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &list) != 0) continue;
    const Info offered(list);
    for (const fi_info* each = list; each != nullptr; each = each->next)
      if (each->fabric_attr->prov_name == name) return Info(fi_dupinfo(each));
  }
  return fail(ErrorCode::kUnsupported, "provider {} is not offered here", options.provider);
}

}  // namespace

Result<RawEndpoint> RawEndpoint::open(const RawOptions& options, std::span<std::byte> memory) {
  auto info = find_card(options);
  if (!info) return tl::unexpected(info.error());
  RawEndpoint raw;
  raw.info = std::move(*info);
  const auto failed = [](const char* call, long status) {
    return fail(ErrorCode::kProvider, "raw loop: {}: {}", call, fabric_error(status));
  };
  fid_fabric* fabric = nullptr;
  if (const int status = fi_fabric(raw.info->fabric_attr, &fabric, nullptr))
    return failed("fi_fabric", status);
  raw.fabric.reset(fabric);
  fid_domain* domain = nullptr;
  if (const int status = fi_domain(fabric, raw.info.get(), &domain, nullptr))
    return failed("fi_domain", status);
  raw.domain.reset(domain);
  fi_av_attr av_attributes{};
  fid_av* addresses = nullptr;
  if (const int status = fi_av_open(domain, &av_attributes, &addresses, nullptr))
    return failed("fi_av_open", status);
  raw.addresses.reset(addresses);
  fi_cq_attr cq_attributes{};
  cq_attributes.size = 4096;
  cq_attributes.format = FI_CQ_FORMAT_CONTEXT;
  cq_attributes.wait_obj = FI_WAIT_NONE;
  fid_cq* queue = nullptr;
  if (const int status = fi_cq_open(domain, &cq_attributes, &queue, nullptr))
    return failed("fi_cq_open", status);
  raw.queue.reset(queue);
  fid_ep* endpoint = nullptr;
  if (const int status = fi_endpoint(domain, raw.info.get(), &endpoint, nullptr))
    return failed("fi_endpoint", status);
  raw.endpoint.reset(endpoint);
  if (const int status = fi_ep_bind(endpoint, &addresses->fid, 0)) return failed("bind", status);
  if (const int status = fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV))
    return failed("bind", status);
  if (const int status = fi_enable(endpoint)) return failed("fi_enable", status);
  fid_mr* region = nullptr;
  constexpr auto kAccess = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  if (const int status = fi_mr_reg(domain, memory.data(), memory.size(), kAccess, 0, 0x52415731, 0,
                                   &region, nullptr))
    return failed("fi_mr_reg", status);
  raw.memory.reset(region);
  raw.base = memory.data();
  return raw;
}

Result<RawDescription> RawEndpoint::describe() const {
  std::byte name[256];
  std::size_t size = sizeof name;
  if (const int status = fi_getname(&endpoint->fid, name, &size))
    return fail(ErrorCode::kProvider, "raw loop: fi_getname: {}", fabric_error(status));
  const std::uint64_t words[2] = {fi_mr_key(memory.get()),
                                  (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0
                                      ? reinterpret_cast<std::uintptr_t>(base)
                                      : std::uintptr_t{0}};
  RawDescription description(sizeof words + size);
  std::memcpy(description.data(), words, sizeof words);
  std::memcpy(description.data() + sizeof words, name, size);
  return description;
}

}  // namespace penstock

#include "transport/fabric/endpoint.hpp"

namespace penstock {

Result<Fid<fid_cq>> open_completion_queue(Domain& domain, std::size_t entries) {
  fi_cq_attr attributes{};
  attributes.size = entries;
  attributes.format = FI_CQ_FORMAT_DATA;
  attributes.wait_obj = FI_WAIT_NONE;
  fid_cq* queue = nullptr;
  if (const int status = fi_cq_open(domain.domain(), &attributes, &queue, nullptr))
    return fail(ErrorCode::kProvider, "{}: fi_cq_open of {} entries: {}",
                domain.info()->domain_attr->name, entries, fabric_error(status));
  return Fid<fid_cq>(queue);
}

Result<Fid<fid_ep>> open_endpoint(Domain& domain, fid_cq* queue, fid_cntr* inbound_count) {
  const auto failed = [&](const char* call, long status) {
    return fail(ErrorCode::kProvider, "{}: {}: {}", domain.info()->domain_attr->name, call,
                fabric_error(status));
  };
  fid_ep* opened = nullptr;
  if (const int status = fi_endpoint(domain.domain(), domain.info(), &opened, nullptr))
    return failed("fi_endpoint", status);
  Fid<fid_ep> endpoint(opened);
  if (const int status = fi_ep_bind(opened, &domain.addresses()->fid, 0))
    return failed("binding the address vector", status);
  if (const int status = fi_ep_bind(opened, &queue->fid, FI_TRANSMIT | FI_RECV))
    return failed("binding the completion queue", status);
  if (inbound_count != nullptr) {
    constexpr auto kInbound = FI_REMOTE_READ | FI_REMOTE_WRITE;
    if (const int status = fi_ep_bind(opened, &inbound_count->fid, kInbound))
      return failed("binding the inbound counter", status);
  }
  if (const int status = fi_enable(opened)) return failed("fi_enable", status);
  return endpoint;
}

Result<FabricAddress> endpoint_address(fid_ep* endpoint) {
  FabricAddress address(64);
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::size_t size = address.size();
    const int status = fi_getname(&endpoint->fid, address.data(), &size);
    if (status != 0 && status != -FI_ETOOSMALL)
      return fail(ErrorCode::kProvider, "fi_getname: {}", fabric_error(status));
    const bool complete = status == 0 && size <= address.size();
    address.resize(size);
    if (complete) return address;
  }
  return fail(ErrorCode::kProvider, "fi_getname keeps asking for more room");
}

}  // namespace penstock

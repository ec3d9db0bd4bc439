// Opening what both sides of the raw loop use: one endpoint, one queue, one registration.
#pragma once

#include <span>

#include "transport/bench/raw_loop.hpp"
#include "transport/fabric/fid.hpp"

namespace penstock {

struct RawEndpoint {
  Info info;
  Fid<fid_fabric> fabric;
  Fid<fid_domain> domain;
  Fid<fid_av> addresses;
  Fid<fid_cq> queue;
  Fid<fid_ep> endpoint;
  Fid<fid_mr> memory;
  std::byte* base = nullptr;

  static Result<RawEndpoint> open(const RawOptions& options, std::span<std::byte> memory);
  /// Address, key and remote base, packed.
  Result<RawDescription> describe() const;
};

}  // namespace penstock

// Binds memory to one NUMA node, before its first touch.
#pragma once

#include <cstddef>
#include <span>

#include "transport/error.hpp"

namespace penstock {

/// Every page of `memory` (page-aligned) comes from `numa_node` from now on. -1 binds nothing.
/// Success means that the pages will be there: where the kernel cannot or may not bind, that is
/// only so when the machine has no other node. Errors: kInvalidArgument (no such node, or the
/// cpuset does not allow it), kUnsupported (the kernel or the container refuses to bind).
Result<void> bind_to_numa_node(std::span<std::byte> memory, int numa_node);

}  // namespace penstock

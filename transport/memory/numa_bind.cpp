#include "transport/memory/numa_bind.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <string>

namespace penstock {
namespace {

constexpr int kMaxNodes = 1024;  // what the kernel can be built for

/// As the kernel lists them, such as "0-1"; "0" where it knows no NUMA.
std::string online_nodes() {
  std::ifstream file("/sys/devices/system/node/online");
  std::string nodes;
  return std::getline(file, nodes) ? nodes : "0";
}

/// The raw call: libnuma would add a dependency and print on its own.
int bind(std::span<std::byte> memory, int numa_node) {
  constexpr int kBits = CHAR_BIT * sizeof(unsigned long);
  std::array<unsigned long, kMaxNodes / kBits> mask{};
  mask[numa_node / kBits] = 1ul << (numa_node % kBits);
  // The kernel reads one bit less than it is told.
  const long rc =
      syscall(SYS_mbind, memory.data(), memory.size(), MPOL_BIND, mask.data(), kMaxNodes + 1, 0);
  return rc == 0 ? 0 : errno;
}

}  // namespace

Result<void> bind_to_numa_node(std::span<std::byte> memory, int numa_node) {
  if (numa_node == -1) return {};
  const std::string nodes = online_nodes();
  if (numa_node < -1 || numa_node >= kMaxNodes)
    return fail(ErrorCode::kInvalidArgument,
                "NUMA node {} asked for; this machine has {}, and -1 stands for any", numa_node,
                nodes);
  const int error = bind(memory, numa_node);
  if (error == 0 || nodes == std::to_string(numa_node)) return {};
  if (error == EINVAL)
    return fail(ErrorCode::kInvalidArgument,
                "NUMA node {} asked for; this machine has {} (its cpuset may allow fewer), and -1 "
                "stands for any",
                numa_node, nodes);
  return fail(ErrorCode::kUnsupported,
              "cannot bind {} bytes to NUMA node {}: {}; in a container give it CAP_SYS_NICE, or "
              "ask for node -1 (any)",
              memory.size(), numa_node, std::strerror(error));
}

}  // namespace penstock

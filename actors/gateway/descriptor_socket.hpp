// File descriptors between a client and the service, of GPU memory and of rings: a Unix socket
// beside the request socket, since ZeroMQ carries none. A descriptor that was handed in is named by
// a token in the request that uses it; one that a reply names by a token is fetched here.
//
// Everything on it is one record of 16 bytes each way (DescriptorRecord), the descriptor as
// SCM_RIGHTS beside it. Only the service's own user and root may connect.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/error.hpp"
#include "transport/gpu/gpu_memory.hpp"

namespace penstock {

/// What a client sends and gets, little-endian.
struct DescriptorRecord {
  enum Kind : std::uint64_t {
    kGive = 1,  // with a descriptor; answered by kGiven and the token
    kTake = 2,  // the token of a reply; answered by kTaken with the descriptor
    kGiven = 3,
    kTaken = 4,
    kRefused = 5,
  };
  std::uint64_t kind = 0;
  std::uint64_t token = 0;
};
static_assert(sizeof(DescriptorRecord) == 16);

class DescriptorSocket {
 public:
  struct Options {
    std::size_t connections = 64;
    /// Of descriptors that were handed in, or offered, and not fetched: they are closed afterwards.
    std::chrono::seconds keep{30};
    std::size_t kept = 256;
  };

  /// Listens at `path`, which it makes (mode 0600) and removes again.
  static Result<std::unique_ptr<DescriptorSocket>> start(std::filesystem::path path,
                                                         Options options);
  static Result<std::unique_ptr<DescriptorSocket>> start(std::filesystem::path path) {
    return start(std::move(path), Options());
  }
  /// Removes sockets in `folder`, of names that start with `prefix`, whose services were killed.
  static void remove_stale(const std::filesystem::path& folder, const std::string& prefix);
  ~DescriptorSocket();
  DescriptorSocket(const DescriptorSocket&) = delete;
  DescriptorSocket& operator=(const DescriptorSocket&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Any thread. What a client handed in under this token, once; kNotFound: nothing, or too long
  /// ago.
  Result<GpuDescriptor> claim(std::uint64_t token);
  /// Any thread. The token under which the descriptors may be fetched once, together.
  Result<std::uint64_t> offer(std::vector<GpuDescriptor> descriptors);
  Result<std::uint64_t> offer(GpuDescriptor descriptor);
  /// Any thread. Takes back what was not fetched yet.
  void withdraw(std::uint64_t token);

 private:
  struct Kept {
    std::vector<GpuDescriptor> descriptors;
    std::chrono::steady_clock::time_point until;
  };
  using Store = std::map<std::uint64_t, Kept>;

  DescriptorSocket(std::filesystem::path path, Options options, GpuDescriptor listener,
                   GpuDescriptor bell);
  void run();
  void take_connection();
  bool serve(int connection);
  Result<std::uint64_t> keep(Store& store, std::vector<GpuDescriptor> descriptors);
  Result<std::vector<GpuDescriptor>> fetch(Store& store, std::uint64_t token);
  void forget_old();

  const std::filesystem::path path_;
  const Options options_;
  GpuDescriptor listener_;
  GpuDescriptor bell_;                      // readable when the thread is to end
  std::vector<GpuDescriptor> connections_;  // the thread's
  bool cannot_take_ = false;                // the thread's: for lack of descriptors
  std::mutex mutex_;
  Store given_;
  Store offered_;
  std::thread thread_;
};

}  // namespace penstock

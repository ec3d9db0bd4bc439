// What a Region handle and the client's thread share: how the region was made, how the service
// describes it now, and its mapping. Any thread. Not installed.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <string>

#include "client/cpp/region.hpp"
#include "client/cpp/wire.hpp"

namespace penstock::client {

class RegionState {
 public:
  /// `operation` and `fields` are the request that made it; "" for one that others made.
  RegionState(RegionInfo info, std::string operation, Json fields)
      : operation_(std::move(operation)), fields_(std::move(fields)), info_(std::move(info)) {}
  RegionState(const RegionState&) = delete;
  RegionState& operator=(const RegionState&) = delete;
  ~RegionState() { unmap(); }

  const std::string& operation() const { return operation_; }
  const Json& fields() const { return fields_; }

  RegionInfo info() const;
  std::span<std::byte> data() const;
  /// Throws Error UNSUPPORTED.
  void map();
  void unmap() noexcept;
  /// The region was made again. What is mapped is mapped anew at the same place. Throws Error
  /// UNSUPPORTED when that cannot be: data() is memory then that no service knows.
  void renew(RegionInfo info);

 private:
  void* map_at(const RegionInfo& info, void* place, std::size_t& bytes, std::size_t& lead) const;

  const std::string operation_;
  const Json fields_;
  mutable std::mutex mutex_;
  RegionInfo info_;
  std::byte* mapped_ = nullptr;
  void* mapping_ = nullptr;  // as mmap gave it: starts on a page, before mapped_
  std::size_t mapping_bytes_ = 0;
};

}  // namespace penstock::client

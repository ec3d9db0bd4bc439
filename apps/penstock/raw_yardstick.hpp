// The bare libfabric loop beside which Penstock is measured: no actor, no request, no metadata,
// only a list of one-sided operations posted as fast as a window allows. Its target is a child
// process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/transfer.hpp"
#include "client/workload/measurement.hpp"
#include "transport/memory/huge_pages.hpp"

namespace penstock::app {

struct YardstickOptions {
  std::string provider = "tcp";
  std::uint64_t region_bytes = 0;  // on each side
  std::uint64_t window_bytes = 16ULL << 20;
  std::uint32_t window_operations = 256;
  HugePages huge_pages = HugePages::kAuto;  // as the services it is compared with
};

/// What `settings` ("section.key=value") say of memory.huge_pages; auto when they say nothing.
HugePages huge_pages_of(const std::vector<std::string>& settings);

/// One initiator and one target. Throws Exit kFailed.
class RawYardstick {
 public:
  /// Start it on the main thread: the target ends with the thread that started it. `log`: of the
  /// target.
  RawYardstick(const YardstickOptions& options, std::filesystem::path log);
  ~RawYardstick();

  /// The initiator's memory, as RegionMemory::shared_name says it.
  const std::string& shared_name() const;

  /// Moves page source_pages[i] to page destination_pages[i]; may be called on another thread than
  /// it was made on.
  workload::Measurement move(client::Direction direction, std::uint64_t page_bytes,
                             const std::vector<std::uint32_t>& source_pages,
                             const std::vector<std::uint32_t>& destination_pages);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock::app

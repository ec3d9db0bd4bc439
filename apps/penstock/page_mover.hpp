// Two regions on two services, and pages that move from the one to the other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/cpp/penstock.hpp"
#include "client/workload/page_check.hpp"

namespace penstock::app {

/// Where the regions of a run lie.
enum class Memory : unsigned char { kHost, kCuda };
/// Of "host" or "cuda", as typed.
inline Memory memory_of(const std::string& word) {
  return word == "cuda" ? Memory::kCuda : Memory::kHost;
}

/// The service allocates it and it is not mapped.
client::Region allocate_in(client::Client& client, Memory memory, const std::string& name,
                           std::uint64_t bytes);

struct PageLists {
  std::vector<std::uint32_t> source;
  std::vector<std::uint32_t> destination;
};

/// `count` random pages of a region that has `region_pages`, to as many random places; in runs of
/// `run` pages that are neighbours on both sides.
PageLists random_pages(std::uint64_t region_pages, std::uint64_t count, std::uint64_t seed,
                       std::uint32_t run = 1);

/// How a batch of transfers went. Times are the client's.
struct Moved {
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
  std::vector<client::TransferResult> results;

  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
  std::uint64_t bytes() const;
  std::uint64_t writes() const;
  /// Bytes and writes by card.
  std::vector<client::TransferResult::Card> cards() const;
};

/// Transfers under way that belong together.
struct Batch {
  /// Counted by the client's thread as they end.
  struct Tally {
    std::mutex mutex;
    std::condition_variable changed;
    std::chrono::steady_clock::time_point last_end;
    std::vector<client::TransferResult> results;
    std::uint64_t bytes = 0;
  };
  std::chrono::steady_clock::time_point begin;
  std::vector<client::Transfer> transfers;
  std::shared_ptr<Tally> tally = std::make_shared<Tally>();

  std::uint64_t bytes_done() const;
};

/// Waits for all; calls `tick` a few times a second meanwhile. Throws Exit kTransferNotDone when
/// one did not end as done, kFailed when interrupted.
Moved wait(const Batch& batch, const std::function<void()>& tick = {});

class PageMover {
 public:
  /// Allocates `bytes` on both, as "NAME.source" and "NAME.destination", and fills the source with
  /// the pattern of `seed`. The clients must outlive this. Throws client::Error.
  PageMover(client::Client& source, client::Client& destination, const std::string& name,
            std::uint64_t bytes, std::uint64_t seed, Memory source_memory = Memory::kHost,
            Memory destination_memory = Memory::kHost);

  /// As in TransferSpec, for what is submitted from now on.
  void set_path(std::string path) { path_ = std::move(path); }
  void set_packing(client::Packing packing) { packing_ = packing; }

  client::Client& source() { return source_; }
  client::Client& destination() { return destination_; }
  /// Of the source region.
  std::string shared_name() const { return source_region_.info().shared_name; }

  /// Asks for the move as `parts` transfers (all in one request): a write is asked of the source's
  /// service, a read of the destination's. `lists` may go when it returns.
  Batch submit(client::Direction direction, std::uint64_t page_bytes, const PageLists& lists,
               std::size_t parts = 1, client::Lane lane = client::Lane::kBulk);

  /// Compares all moved pages. Throws client::Error.
  std::vector<workload::DifferentPage> verify(std::uint64_t page_bytes, const PageLists& lists);

 private:
  client::Client& source_;
  client::Client& destination_;
  client::Region source_region_;
  client::Region destination_region_;
  std::string path_;
  client::Packing packing_ = client::Packing::kAuto;
  std::map<std::uint64_t, std::vector<std::uint64_t>> source_digests_;  // by page size
};

}  // namespace penstock::app

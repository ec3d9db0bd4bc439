// The pages of one KV-cache pool and the prompt blocks that they hold. Finite: the least recently
// used blocks leave when new ones need their pages. Blocks in use are pinned and stay.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <vector>

namespace penstock::workload {

/// Equal keys mean equal contents. A block that is cut shorter is another one.
struct BlockKey {
  std::uint64_t id = 0;
  std::uint32_t pages = 0;

  friend bool operator==(const BlockKey&, const BlockKey&) = default;
};

struct BlockKeyHash {
  std::size_t operator()(const BlockKey& key) const {
    return std::hash<std::uint64_t>{}(key.id * 0x9e3779b97f4a7c15u + key.pages);
  }
};

/// One thread.
class BlockPool {
 public:
  /// `free_pages`: all pages, in the order in which they are first handed out.
  explicit BlockPool(std::vector<std::uint32_t> free_pages);

  bool holds(const BlockKey& block) const { return blocks_.contains(block); }
  /// Precondition: holds(block).
  const std::vector<std::uint32_t>& pages_of(const BlockKey& block) const;

  /// Whether pin() can have the pages that it needs before something is unpinned.
  bool can_pin(const std::vector<BlockKey>& blocks) const;
  /// Pins all `blocks`, which are distinct; those that are missing get pages, for which the least
  /// recently used blocks leave. Returns the missing ones, in order. Precondition: can_pin(blocks).
  std::vector<BlockKey> pin(const std::vector<BlockKey>& blocks);
  /// Undoes one pin each; they count as used now, the first as the most recent: prompts share
  /// their beginnings, so the ends should leave first.
  void unpin(const std::vector<BlockKey>& blocks);

  std::uint64_t pages() const { return page_count_; }
  std::uint64_t free_pages() const { return free_.size(); }
  std::uint64_t block_count() const { return blocks_.size(); }
  std::uint64_t evicted_blocks() const { return evicted_; }

 private:
  struct Block {
    std::vector<std::uint32_t> pages;
    std::uint32_t pins = 0;
    std::list<BlockKey>::iterator place;  // in unpinned_, while pins == 0
  };

  /// Pages that are missing, and pages that may leave for them.
  struct Need {
    std::uint64_t missing_pages = 0;
    std::uint64_t available_pages = 0;
  };
  Need need_of(const std::vector<BlockKey>& blocks) const;
  void pin_held(Block& block);
  void evict_oldest();

  const std::uint64_t page_count_;
  std::deque<std::uint32_t> free_;
  std::unordered_map<BlockKey, Block, BlockKeyHash> blocks_;
  std::list<BlockKey> unpinned_;  // least recently used first
  std::uint64_t unpinned_pages_ = 0;
  std::uint64_t evicted_ = 0;
};

/// 0 to count - 1, in an order that depends on `seed` only.
std::vector<std::uint32_t> shuffled_pages(std::uint32_t count, std::uint64_t seed);

}  // namespace penstock::workload

#include "client/workload/block_pool.hpp"

#include <cassert>
#include <numeric>
#include <random>
#include <utility>

namespace penstock::workload {

BlockPool::BlockPool(std::vector<std::uint32_t> free_pages)
    : page_count_(free_pages.size()), free_(free_pages.begin(), free_pages.end()) {}

const std::vector<std::uint32_t>& BlockPool::pages_of(const BlockKey& block) const {
  return blocks_.at(block).pages;
}

BlockPool::Need BlockPool::need_of(const std::vector<BlockKey>& blocks) const {
  Need need{0, free_.size() + unpinned_pages_};
  for (const auto& key : blocks) {
    auto found = blocks_.find(key);
    if (found == blocks_.end()) {
      need.missing_pages += key.pages;
    } else if (found->second.pins == 0) {
      need.available_pages -= key.pages;
    }
  }
  return need;
}

bool BlockPool::can_pin(const std::vector<BlockKey>& blocks) const {
  auto need = need_of(blocks);
  return need.missing_pages <= need.available_pages;
}

std::vector<BlockKey> BlockPool::pin(const std::vector<BlockKey>& blocks) {
  assert(can_pin(blocks));
  std::vector<BlockKey> missing;
  for (const auto& key : blocks) {
    if (auto found = blocks_.find(key); found != blocks_.end()) {
      pin_held(found->second);
    } else {
      missing.push_back(key);
    }
  }
  for (const auto& key : missing) {
    while (free_.size() < key.pages) evict_oldest();
    auto end = free_.begin() + key.pages;
    blocks_.emplace(key, Block{{free_.begin(), end}, 1, {}});
    free_.erase(free_.begin(), end);
  }
  return missing;
}

void BlockPool::pin_held(Block& block) {
  if (block.pins++ > 0) return;
  unpinned_pages_ -= block.pages.size();
  unpinned_.erase(block.place);
}

void BlockPool::evict_oldest() {
  auto oldest = blocks_.find(unpinned_.front());
  assert(oldest != blocks_.end());
  const auto& pages = oldest->second.pages;
  free_.insert(free_.end(), pages.begin(), pages.end());
  unpinned_pages_ -= pages.size();
  unpinned_.pop_front();
  blocks_.erase(oldest);
  ++evicted_;
}

void BlockPool::unpin(const std::vector<BlockKey>& blocks) {
  for (auto key = blocks.rbegin(); key != blocks.rend(); ++key) {
    auto& block = blocks_.at(*key);
    assert(block.pins > 0);
    if (--block.pins > 0) continue;
    block.place = unpinned_.insert(unpinned_.end(), *key);
    unpinned_pages_ += block.pages.size();
  }
}

std::vector<std::uint32_t> shuffled_pages(std::uint32_t count, std::uint64_t seed) {
  std::vector<std::uint32_t> pages(count);
  std::iota(pages.begin(), pages.end(), 0U);
  std::mt19937_64 random(seed);
  // std::shuffle may differ between libraries; this order is the same everywhere.
  for (std::uint32_t i = count; i > 1; --i) std::swap(pages[i - 1], pages[random() % i]);
  return pages;
}

}  // namespace penstock::workload

// Finds things that lie elsewhere by their 64-bit hashes: eight bytes per thing, one look where
// memory is far. Whoever asks compares what is found with what is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace penstock {

/// `HashOf` tells the hash of an index; it must not change while the index is in here.
template <class HashOf>
class HashIndex {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = std::numeric_limits<Index>::max();

  explicit HashIndex(HashOf hash_of) : slots_(kFewest, kNone), hash_of_(hash_of) {}

  std::size_t size() const { return size_; }

  /// The first of this hash that `matches`, or kNone.
  template <class Matches>
  Index find(std::uint64_t hash, Matches matches) const {
    for (std::size_t slot = home(hash); slots_[slot] != kNone; slot = next(slot))
      if (hash_of_(slots_[slot]) == hash && matches(slots_[slot])) return slots_[slot];
    return kNone;
  }

  void insert(Index index) {
    if (++size_ * 2 > slots_.size()) grow();
    place(index);
  }

  /// Must be in here.
  void erase(Index index) {
    std::size_t hole = home(hash_of_(index));
    while (slots_[hole] != index) hole = next(hole);
    // Whoever was pushed on by the one that goes moves up, so that no search ends too early.
    for (std::size_t slot = next(hole); slots_[slot] != kNone; slot = next(slot)) {
      const std::size_t from_home = distance(home(hash_of_(slots_[slot])), slot);
      if (from_home < distance(hole, slot)) continue;
      slots_[hole] = slots_[slot];
      hole = slot;
    }
    slots_[hole] = kNone;
    --size_;
  }

 private:
  static constexpr std::size_t kFewest = 16;

  std::size_t home(std::uint64_t hash) const { return hash & (slots_.size() - 1); }
  std::size_t next(std::size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  std::size_t distance(std::size_t from, std::size_t to) const {
    return (to - from) & (slots_.size() - 1);
  }
  void place(Index index) {
    std::size_t slot = home(hash_of_(index));
    while (slots_[slot] != kNone) slot = next(slot);
    slots_[slot] = index;
  }
  void grow() {
    std::vector<Index> old(slots_.size() * 2, kNone);
    old.swap(slots_);
    for (Index index : old)
      if (index != kNone) place(index);
  }

  std::vector<Index> slots_;
  HashOf hash_of_;
  std::size_t size_ = 0;
};

}  // namespace penstock

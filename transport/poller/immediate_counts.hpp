// Counts the immediates that arrive for transfers that peers write to us.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace penstock {

class ImmediateCounts {
 public:
  /// Arming a value again keeps what has arrived: a slot may be armed before its count is known.
  /// True: the count is full with this call.
  bool arm(std::uint32_t immediate, std::uint32_t count) {
    auto& entry = entries_[immediate];
    entry.wanted = count;
    return fills(entry);
  }
  void disarm(std::uint32_t immediate) { entries_.erase(immediate); }

  enum class Arrival : unsigned char { kCounted, kFull, kUnknown };
  /// kFull is said once per value.
  Arrival arrived(std::uint32_t immediate) {
    const auto found = entries_.find(immediate);
    if (found == entries_.end()) return Arrival::kUnknown;
    ++found->second.arrived;
    return fills(found->second) ? Arrival::kFull : Arrival::kCounted;
  }

 private:
  struct Entry {
    std::uint32_t wanted = 0;
    std::uint64_t arrived = 0;
    bool told = false;
  };
  static bool fills(Entry& entry) {
    if (entry.told || entry.arrived < entry.wanted) return false;
    entry.told = true;
    return true;
  }
  std::unordered_map<std::uint32_t, Entry> entries_;
};

}  // namespace penstock

#include "transport/memory/pattern.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

void fill_pattern(std::span<std::byte> memory, std::uint64_t seed, std::uint64_t position) {
  if (memory.empty()) return;
  std::uint64_t word_seed = seed + position / kWordBytes;
  const auto put_part = [&](std::size_t skip, std::size_t length) {
    const std::uint64_t word = splitmix64(word_seed++);
    std::memcpy(memory.data(), reinterpret_cast<const std::byte*>(&word) + skip, length);
    memory = memory.subspan(length);
  };
  if (const std::size_t skip = position % kWordBytes; skip != 0)
    put_part(skip, std::min(memory.size(), kWordBytes - skip));
  const std::size_t words = memory.size() / kWordBytes;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t word = splitmix64(word_seed++);
    std::memcpy(memory.data() + i * kWordBytes, &word, kWordBytes);
  }
  memory = memory.subspan(words * kWordBytes);
  if (!memory.empty()) put_part(0, memory.size());
}

std::uint64_t digest_page(std::span<const std::byte> page) {
  return XXH3_64bits(page.data(), page.size());
}

}  // namespace penstock

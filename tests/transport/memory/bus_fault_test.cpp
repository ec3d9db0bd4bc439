#include "transport/memory/bus_fault.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace penstock {
namespace {

/// Memory of a file that can be shortened.
struct Shrinkable {
  explicit Shrinkable(std::size_t pages)
      : page(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        size(pages * page),
        fd(::memfd_create("bus-fault-test", MFD_CLOEXEC)) {
    shrink_to(pages);
    at = static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  }
  ~Shrinkable() {
    ::munmap(at, size);
    ::close(fd);
  }
  void shrink_to(std::size_t pages) const {
    ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(pages * page)), 0);
  }
  std::size_t page;
  std::size_t size;
  int fd;
  std::byte* at = nullptr;
};

void put(std::byte* at, int value) {
  *const_cast<volatile std::byte*>(at) = static_cast<std::byte>(value);
}
int get(const std::byte* at) {
  return static_cast<int>(*const_cast<const volatile std::byte*>(at));
}

TEST(BusFault, TouchingWhatWasTakenAwayGoesOnAndIsToldLater) {
  Shrinkable memory(4);
  ASSERT_NE(memory.at, MAP_FAILED);
  const BusFaultGuard guard({memory.at, memory.size});
  put(memory.at, 1);
  put(memory.at + 3 * memory.page, 2);
  EXPECT_FALSE(guard.lost());
  memory.shrink_to(2);
  put(memory.at + 3 * memory.page, 3);
  EXPECT_TRUE(guard.lost());
  EXPECT_EQ(get(memory.at + 3 * memory.page), 3);
  EXPECT_EQ(get(memory.at + 2 * memory.page), 0);
  EXPECT_EQ(get(memory.at), 1);  // what is still there is still shared
}

TEST(BusFault, OneLostMappingDoesNotTouchAnother) {
  Shrinkable lost(2), kept(2);
  const BusFaultGuard first({lost.at, lost.size}), second({kept.at, kept.size});
  put(kept.at, 7);
  lost.shrink_to(0);
  put(lost.at, 1);
  EXPECT_TRUE(first.lost());
  EXPECT_FALSE(second.lost());
  EXPECT_EQ(get(kept.at), 7);
}

TEST(BusFaultDeathTest, WhatIsNotGuardedAnyMoreEndsTheProcessAsEver) {
  Shrinkable memory(1);
  { const BusFaultGuard guard({memory.at, memory.size}); }
  memory.shrink_to(0);
  EXPECT_DEATH(put(memory.at, 1), "");
}

}  // namespace
}  // namespace penstock

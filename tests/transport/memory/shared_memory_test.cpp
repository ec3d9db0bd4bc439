#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "transport/memory/pattern.hpp"
#include "transport/memory/region_memory.hpp"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string fresh_name() {
  static std::atomic<int> count{0};
  return "penstock-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

/// A segment as a client makes it; gone when this goes.
class ClientSegment {
 public:
  explicit ClientSegment(std::uint64_t size) : name_("/" + fresh_name()) {
    fd_ = shm_open(name_.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size)), 0);
  }
  ~ClientSegment() {
    close(fd_);
    shm_unlink(name_.c_str());
  }
  const std::string& name() const { return name_; }
  void write(const std::vector<std::byte>& bytes, std::uint64_t at) {
    EXPECT_EQ(pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(bytes.size()));
  }

 private:
  std::string name_;
  int fd_;
};

bool segment_exists(const std::string& name) {
  const int fd = shm_open(name.c_str(), O_RDONLY, 0);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

/// How many of these pages the process would not fault on: bit 63 of an entry of /proc/PID/pagemap
/// (Linux, admin-guide/mm/pagemap.rst). Nothing where that cannot be read.
std::optional<std::size_t> pages_in_page_table(std::span<const std::byte> memory) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<std::uint64_t> entries(memory.size() / page);
  const auto bytes = static_cast<ssize_t>(entries.size() * sizeof(entries[0]));
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data()) / page * sizeof(entries[0]);
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  const bool read =
      pread(fd, entries.data(), static_cast<std::size_t>(bytes), static_cast<off_t>(at)) == bytes;
  close(fd);
  if (!read) return std::nullopt;
  return std::ranges::count_if(entries, [](std::uint64_t entry) { return (entry >> 63) != 0; });
}

std::shared_ptr<RegionMemory> allocated(const std::string& name, std::uint64_t size) {
  auto memory = allocate_shared_memory(name, size, -1, HugePages::kNever);
  if (!memory) ADD_FAILURE() << memory.error().message;
  return memory.value_or(nullptr);
}

TEST(AllocateSharedMemory, HasExactlyTheSizeAskedAndIsPrivateToTheUser) {
  const std::string name = fresh_name();
  const auto memory = allocated(name, 12345);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory->kind(), MemoryKind::kHost);
  EXPECT_EQ(memory->bytes().size(), 12345u);
  EXPECT_EQ(memory->shared_name(), "/" + name);
  const int fd = shm_open(memory->shared_name().c_str(), O_RDONLY, 0);
  ASSERT_GE(fd, 0);
  struct stat file {};
  fstat(fd, &file);
  close(fd);
  EXPECT_EQ(file.st_size, 12345);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
}

TEST(AllocateSharedMemory, IsTouchedBeforeItIsHandedOut) {
  const auto memory = allocated(fresh_name(), 1 << 20);
  ASSERT_NE(memory, nullptr);
  std::vector<unsigned char> resident((1 << 20) / sysconf(_SC_PAGESIZE));
  ASSERT_EQ(mincore(memory->bytes().data(), 1 << 20, resident.data()), 0);
  EXPECT_THAT(resident, testing::Each(testing::Truly([](unsigned char r) { return r & 1; })));
}

TEST(AllocateSharedMemory, IsUnlinkedWhenItsLastHolderLetsGo) {
  auto memory = allocated(fresh_name(), 4096);
  ASSERT_NE(memory, nullptr);
  const std::string name = memory->shared_name();
  auto second = memory;
  memory.reset();
  EXPECT_TRUE(segment_exists(name));
  second.reset();
  EXPECT_FALSE(segment_exists(name));
}

TEST(AllocateSharedMemory, RefusesATakenNameAndLeavesItsOwnerAlone) {
  const std::string name = fresh_name();
  const auto memory = allocated(name, 4096);
  const auto again = allocate_shared_memory(name, 8192, -1, HugePages::kNever);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(segment_exists("/" + name));
}

TEST(AllocateSharedMemory, TooLargeIsRefusedWithNumbersAndLeavesNothing) {
  for (const std::uint64_t size : {1ull << 50, 1ull << 63, ~0ull}) {
    const std::string name = fresh_name();
    const auto memory = allocate_shared_memory(name, size, -1, HugePages::kNever);
    ASSERT_FALSE(memory);
    EXPECT_EQ(memory.error().code, ErrorCode::kResourceExhausted);
    EXPECT_THAT(memory.error().message, AllOf(HasSubstr(std::to_string(size) + " bytes asked"),
                                              HasSubstr("free of"), HasSubstr("remount,size=")));
    EXPECT_FALSE(segment_exists("/" + name));
  }
}

TEST(AllocateSharedMemory, RefusesZeroBytes) {
  EXPECT_EQ(allocate_shared_memory(fresh_name(), 0, -1).error().code, ErrorCode::kInvalidArgument);
}

TEST(AllocateSharedMemory, OfANodeThatIsNotThereIsRefusedAndLeavesNothing) {
  for (const int node : {-2, 1023, 1024, std::numeric_limits<int>::max()}) {
    const std::string name = fresh_name();
    const auto memory = allocate_shared_memory(name, 4096, node);
    ASSERT_FALSE(memory) << node;
    EXPECT_THAT(memory.error().message, HasSubstr("NUMA node " + std::to_string(node)));
    EXPECT_FALSE(segment_exists("/" + name));
  }
}

TEST(SharedMemoryName, MustBeAPlainFileName) {
  for (const std::string name :
       {"", "/", ".", "..", "../etc", "a/b", "//a", "a b", "a\n", "\xc3\xa9"}) {
    EXPECT_EQ(allocate_shared_memory(name, 4096, -1).error().code, ErrorCode::kInvalidArgument)
        << name;
    EXPECT_EQ(map_shared_memory(name, 0, 4096).error().code, ErrorCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(map_shared_memory(std::string("a\0b", 3), 0, 1).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(map_shared_memory(std::string(251, 'x'), 0, 1).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(SharedMemoryName, MayBeAsLongAsTheManualSays) {
  std::string name = fresh_name();
  name.resize(250, 'x');
  EXPECT_NE(allocated(name, 1), nullptr);
}

TEST(MapSharedMemory, SeesTheClientsBytesAtAnOffsetThatIsNoMultipleOfAPage) {
  std::vector<std::byte> bytes(5000);
  fill_pattern(bytes, 1, 0);
  ClientSegment segment(20'000);
  segment.write(bytes, 4099);
  const auto memory = map_shared_memory(segment.name(), 4099, 5000);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ((*memory)->bytes().size(), 5000u);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), (*memory)->bytes().begin()));
}

TEST(MapSharedMemory, MapsTheSegmentOfAnotherRegionByItsSharedName) {
  const auto service = allocated(fresh_name(), 10'000);
  const auto client = map_shared_memory(service->shared_name(), 0, 10'000);
  ASSERT_TRUE(client) << client.error().message;
  fill_pattern((*client)->bytes(), 7, 0);
  EXPECT_EQ(digest_page(service->bytes()), digest_page((*client)->bytes()));
}

TEST(MapSharedMemory, HasTheClientsPagesInItsPageTableBeforeTheFirstTransfer) {
  constexpr std::uint64_t kPages = 1000;
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  ClientSegment client(kPages * page);
  client.write(std::vector<std::byte>(kPages * page, std::byte{7}), 0);
  const auto memory = map_shared_memory(client.name(), 0, kPages * page);
  ASSERT_TRUE(memory) << memory.error().message;
  if (madvise((*memory)->bytes().data(), page, MADV_POPULATE_WRITE) != 0)
    GTEST_SKIP() << "this kernel does not know MADV_POPULATE_WRITE";
  const auto present = pages_in_page_table((*memory)->bytes());
  if (!present) GTEST_SKIP() << "no /proc/self/pagemap here";
  EXPECT_GT(*present, kPages - 100);  // some may be swapped out
}

TEST(MapSharedMemory, NeverUnlinksTheClientsSegment) {
  ClientSegment segment(4096);
  map_shared_memory(segment.name(), 0, 4096)->reset();
  EXPECT_TRUE(segment_exists(segment.name()));
}

TEST(MapSharedMemory, OneBytePastTheEndIsOutOfRange) {
  ClientSegment segment(10'000);
  EXPECT_TRUE(map_shared_memory(segment.name(), 9'999, 1));
  const std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  for (const auto& [offset, size] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, 10'001}, {10'000, 1}, {9'999, 2}, {kMax, 1}, {1, kMax}, {kMax, kMax}}) {
    const auto memory = map_shared_memory(segment.name(), offset, size);
    ASSERT_FALSE(memory);
    EXPECT_EQ(memory.error().code, ErrorCode::kOutOfRange);
    EXPECT_THAT(memory.error().message, HasSubstr("has 10000 bytes"));
  }
}

TEST(MapSharedMemory, RefusesWhatIsNotThereAndZeroBytes) {
  EXPECT_EQ(map_shared_memory(fresh_name(), 0, 1).error().code, ErrorCode::kNotFound);
  ClientSegment segment(4096);
  EXPECT_EQ(map_shared_memory(segment.name(), 0, 0).error().code, ErrorCode::kInvalidArgument);
}

TEST(MapSharedMemory, ReachesAbove4GiBInASparseSegment) {
  constexpr std::uint64_t kSize = (6ull << 30) + 10;
  std::vector<std::byte> bytes(4096);
  fill_pattern(bytes, 2, 0);
  ClientSegment segment(kSize);
  segment.write(bytes, kSize - 4096);
  const auto memory = map_shared_memory(segment.name(), 3, kSize - 3);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ(digest_page((*memory)->bytes().last(4096)), digest_page(bytes));
}

}  // namespace
}  // namespace penstock

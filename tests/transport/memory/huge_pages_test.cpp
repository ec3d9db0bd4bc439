#include "transport/memory/huge_pages.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "transport/memory/bus_fault.hpp"
#include "transport/memory/pattern.hpp"
#include "transport/memory/region_memory.hpp"
#include "transport/memory/segment_owner.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint64_t kMib = 1 << 20;
constexpr std::uint64_t kHuge = 2 * kMib;

class Folder {
 public:
  Folder() {
    std::string pattern = testing::TempDir() + "huge-pages-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }
  fs::path write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }

 private:
  fs::path path_;
};

// -- what the kernel says ------------------------------------------------------------------------

TEST(HugePageMounts, AreThoseOfHugetlbfsWithWhatIsFreeAndNotReserved) {
  const Folder folder;
  const auto mounts = folder.write("mounts",
                                   "tmpfs /dev/shm tmpfs rw,size=1024k 0 0\n"
                                   "none /mnt/large\\040pages hugetlbfs rw,pagesize=1024M 0 0\n"
                                   "none /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n");
  folder.write("counts/hugepages-2048kB/nr_hugepages", "64\n");
  folder.write("counts/hugepages-2048kB/free_hugepages", "20\n");
  folder.write("counts/hugepages-2048kB/resv_hugepages", "8\n");
  folder.write("counts/hugepages-1048576kB/nr_hugepages", "2\n");
  folder.write("counts/hugepages-1048576kB/free_hugepages", "1\n");
  folder.write("counts/hugepages-1048576kB/resv_hugepages", "0\n");
  EXPECT_THAT(huge_page_mounts(mounts, folder.path() / "counts"),
              testing::ElementsAre(HugePageMount{"/mnt/large pages", 1024 * kMib, 2, 1},
                                   HugePageMount{"/dev/hugepages", kHuge, 64, 12}));
}

TEST(HugePageMounts, AreNoneWhereNothingCanBeRead) {
  EXPECT_TRUE(huge_page_mounts("/nonexistent/mounts", "/nonexistent").empty());
  const Folder folder;
  const auto odd = folder.write("mounts", "one\n\nnone /x hugetlbfs pagesize=zero 0 0\n");
  EXPECT_TRUE(huge_page_mounts(odd, folder.path()).empty());
}

TEST(TransparentHugePages, OfSharedMemoryAreWhatTheMountSays) {
  const Folder folder;
  EXPECT_EQ(shared_memory_huge_option(folder.write("a", "t /dev/shm tmpfs rw 0 0\n")), "never");
  EXPECT_EQ(shared_memory_huge_option(folder.write("b", "t /dev/shm tmpfs rw,huge=advise 0 0\n")),
            "advise");
  EXPECT_EQ(shared_memory_huge_option("/nonexistent"), "never");
}

TEST(AMountWithRoom, HasAsManyFreePagesAsTheRoundedSizeNeeds) {
  const std::vector<HugePageMount> mounts = {{"/dev/hugepages", kHuge, 10, 3}};
  EXPECT_EQ(mount_with_room(mounts, 3 * kHuge).value().folder, "/dev/hugepages");
  const auto short_of = mount_with_room(mounts, 3 * kHuge + 1);
  ASSERT_FALSE(short_of);
  EXPECT_EQ(short_of.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(
      short_of.error().message,
      AllOf(HasSubstr("4 pages of 2048 KiB are needed, 3 of 10 are free"), HasSubstr("echo 11 >")));
  EXPECT_FALSE(mount_with_room(mounts, ~0ull));
  EXPECT_THAT(mount_with_room({}, 1).error().message, HasSubstr("mount -t hugetlbfs"));
}

TEST(AFileOfAMount, LiesDirectlyInIt) {
  const std::vector<HugePageMount> mounts = {{"/dev/hugepages", kHuge, 10, 3}};
  EXPECT_EQ(mount_of(mounts, "/dev/hugepages/a"), &mounts[0]);
  for (const char* path : {"/dev/hugepages", "/dev/hugepages/", "/dev/hugepages/a/b", "/etc/passwd",
                           "/dev/hugepages/..", "/dev/hugepages/../hugepages/a", "a"})
    EXPECT_EQ(mount_of(mounts, path), nullptr) << path;
}

// -- real huge pages -----------------------------------------------------------------------------

/// The tests that need huge pages get 16 more and a hugetlbfs that only this process sees, where it
/// may do that; else they are skipped. One at a time: the number of pages is the machine's.
class OnHugePages : public testing::Test {
 protected:
  static constexpr std::uint64_t kPages = 16;

  void SetUp() override {
    lock_ = open((testing::TempDir() + "penstock-huge-pages-test.lock").c_str(),
                 O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_EQ(flock(lock_, LOCK_EX), 0);
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", folder_.path().c_str(), "hugetlbfs", MS_NOSUID | MS_NODEV, "pagesize=2M") !=
            0)
      GTEST_SKIP() << "no hugetlbfs can be mounted: " << std::strerror(errno);
    mounted_ = true;
    std::ifstream(kCount) >> before_;
    std::ofstream(kCount) << before_ + kPages;
    if (this_mount().free_pages < kPages)
      GTEST_SKIP() << "only " << this_mount().free_pages << " huge pages of 2 MiB can be had";
  }
  void TearDown() override {
    if (mounted_) {
      umount2(folder_.path().c_str(), MNT_DETACH);
      std::ofstream(kCount) << before_;
    }
    close(lock_);
  }

  HugePageMount this_mount() const {
    for (const auto& mount : huge_page_mounts())
      if (mount.folder == folder_.path()) return mount;
    return {};
  }
  std::string fresh_name() const { return "penstock-test-" + std::to_string(getpid()); }

  static constexpr const char* kCount = "/proc/sys/vm/nr_hugepages";
  const Folder folder_;
  std::uint64_t before_ = 0;
  bool mounted_ = false;
  int lock_ = -1;
};

TEST_F(OnHugePages, MemoryIsAFileThereOfWholePagesThatGoesWithIt) {
  auto memory = allocate_shared_memory(fresh_name(), 3 * kHuge - 5, -1, HugePages::kAlways);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ((*memory)->bytes().size(), 3 * kHuge - 5);
  const fs::path path = (*memory)->shared_name();
  EXPECT_EQ(path.filename(), fresh_name());
  struct stat file {};
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_size, static_cast<off_t>(3 * kHuge));
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  memory->reset();
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(OnHugePages, AnotherMappingByThePathSeesTheSameBytes) {
  const auto service = allocate_shared_memory(fresh_name(), 2 * kHuge, -1, HugePages::kAuto);
  ASSERT_TRUE(service) << service.error().message;
  const auto other = map_shared_memory((*service)->shared_name(), kHuge + 4099, 5000);
  ASSERT_TRUE(other) << other.error().message;
  fill_pattern((*other)->bytes(), 7, 0);
  EXPECT_EQ(digest_page((*service)->bytes().subspan(kHuge + 4099, 5000)),
            digest_page((*other)->bytes()));
  EXPECT_EQ(map_shared_memory((*service)->shared_name(), 0, 2 * kHuge + 1).error().code,
            ErrorCode::kOutOfRange);
}

TEST_F(OnHugePages, WhatDoesNotFitIsOrdinaryMemoryOnAutoAndAnErrorOnAlways) {
  const std::uint64_t bytes = (this_mount().free_pages + 1) * kHuge;
  const auto plain = allocate_shared_memory(fresh_name(), bytes, -1, HugePages::kAuto);
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ((*plain)->shared_name(), "/" + fresh_name());
  const auto refused = allocate_shared_memory(fresh_name(), bytes, -1, HugePages::kAlways);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("are free in"));
}

TEST_F(OnHugePages, NeverMeansOrdinaryMemoryEvenWithRoom) {
  const auto memory = allocate_shared_memory(fresh_name(), kHuge, -1, HugePages::kNever);
  ASSERT_TRUE(memory);
  EXPECT_EQ((*memory)->shared_name(), "/" + fresh_name());
}

TEST_F(OnHugePages, AFileThatIsCutOffCostsTheRegionAndNotTheProcess) {
  const auto memory = allocate_shared_memory(fresh_name(), 2 * kHuge, -1, HugePages::kAlways);
  ASSERT_TRUE(memory) << memory.error().message;
  ASSERT_EQ(truncate((*memory)->shared_name().c_str(), kHuge), 0);
  auto* at = (*memory)->bytes().data() + kHuge + 12345;
  static_cast<volatile std::byte&>(*at) = std::byte{1};
  EXPECT_TRUE((*memory)->lost());
}

TEST(AFileOutsideOfHugetlbfs, IsNoMemoryToMap) {
  const auto refused = map_shared_memory("/etc/passwd", 0, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

// -- leftovers -----------------------------------------------------------------------------------

constexpr const char* kLiving = "penstock.a.0000000000000001";
constexpr const char* kStarting = "penstock.b.0000000000000002";

TEST(SegmentsOfTheDead, AreRemovedFromEveryFolderByTheNextThatStarts) {
  const Folder shared, huge;
  for (const Folder* folder : {&shared, &huge}) {
    folder->write("penstock.dead.00000000000000ff.lock", "");
    folder->write("penstock.dead.00000000000000ff.7", "memory");
    folder->write("somebody.else", "");
  }
  const auto living = SegmentOwner::claim(kLiving, {shared.path(), huge.path()});
  ASSERT_TRUE(living) << living.error().message;
  for (const Folder* folder : {&shared, &huge}) {
    EXPECT_FALSE(fs::exists(folder->path() / "penstock.dead.00000000000000ff.7"));
    EXPECT_FALSE(fs::exists(folder->path() / "penstock.dead.00000000000000ff.lock"));
    EXPECT_TRUE(fs::exists(folder->path() / "somebody.else"));
  }
}

TEST(SegmentsOfTheLiving, StayInAFolderThatIsSharedWithoutTheOther) {
  const Folder shared, other_shared, huge;
  auto living = SegmentOwner::claim(kLiving, {shared.path(), huge.path()});
  ASSERT_TRUE(living);
  const auto segment = huge.write(std::string(kLiving) + ".1", "memory");
  const auto starting = SegmentOwner::claim(kStarting, {other_shared.path(), huge.path()});
  ASSERT_TRUE(starting);
  EXPECT_TRUE(fs::exists(segment));
  *living = SegmentOwner();
  EXPECT_FALSE(fs::exists(segment)) << "they go with their owner";
}

TEST(AFolderThatCannotBeWritten, IsAnErrorOnlyIfItIsTheFirst) {
  const Folder shared;
  EXPECT_TRUE(SegmentOwner::claim(kLiving, {shared.path(), "/nonexistent"}));
  EXPECT_FALSE(SegmentOwner::claim(kStarting, {"/nonexistent", shared.path()}));
}

}  // namespace
}  // namespace penstock

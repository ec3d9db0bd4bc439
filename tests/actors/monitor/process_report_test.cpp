#include "actors/monitor/process_report.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

namespace penstock {
namespace {

std::uint64_t reported(const char* what) { return process_report().at(what).get<std::uint64_t>(); }

TEST(ProcessReport, CountsTheFilesThatAreOpen) {
  const auto before = reported("open_files");
  EXPECT_GE(before, 3u);
  std::vector<int> files(10);
  for (int& file : files) file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(reported("open_files"), before + 10);
  for (const int file : files) ::close(file);
  EXPECT_EQ(reported("open_files"), before);
}

TEST(ProcessReport, WithNoDescriptorLeftSaysThatAllAreOpen) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few{reported("open_files"), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> files;  // where descriptors were not given out in a row
  for (int file = 0; (file = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
    files.push_back(file);
  EXPECT_EQ(reported("open_files"), few.rlim_cur);
  EXPECT_EQ(reported("open_files_limit"), few.rlim_cur);
  for (const int file : files) ::close(file);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(ProcessReport, KnowsItsMemory) { EXPECT_GT(reported("resident_bytes"), 1u << 20); }

}  // namespace
}  // namespace penstock

// The doctor's judgement over facts that the test makes up.
#include "client/cli/host_limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::cli {
namespace {

using Severity = Finding::Severity;
using testing::HasSubstr;

HostFacts healthy() {
  HostFacts facts;
  facts.open_files = 65536;
  facts.locked_bytes = kUnlimited;
  facts.shared_total_bytes = std::uint64_t{8} << 30;
  facts.shared_free_bytes = std::uint64_t{8} << 30;
  facts.memory_bytes = std::uint64_t{16} << 30;
  facts.huge_page_folder = "/dev/hugepages";
  facts.huge_page_bytes = 2 << 20;
  facts.huge_pages = 64;
  facts.free_huge_pages = 12;
  facts.shared_huge = "never";
  facts.allowed_cpus = 4;
  facts.online_cpus = 4;
  facts.allowed_cpu_list = "0-3";
  return facts;
}

Finding finding_of(const HostFacts& facts, const std::string& subject) {
  auto findings = judge(facts);
  auto found = std::ranges::find(findings, subject, &Finding::subject);
  return found == findings.end() ? Finding{} : *found;
}

TEST(HostLimits, AHealthyMachineHasNoFindings) {
  for (const auto& finding : judge(healthy())) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.subject;
    EXPECT_EQ(finding.advice, "") << finding.subject;
  }
  EXPECT_FALSE(has_problem(judge(healthy())));
}

TEST(HostLimits, FewOpenFilesAreToldWithTheCommandThatRaisesThem) {
  auto facts = healthy();
  facts.open_files = 1024;
  EXPECT_EQ(finding_of(facts, "open files").severity, Severity::kWarning);
  EXPECT_THAT(finding_of(facts, "open files").advice, HasSubstr("ulimit -n"));
  facts.open_files = 64;
  EXPECT_EQ(finding_of(facts, "open files").severity, Severity::kProblem);
}

TEST(HostLimits, LockedMemoryMattersOnlyWhereTheProviderPins) {
  auto facts = healthy();
  facts.locked_bytes = 64 << 10;
  EXPECT_EQ(finding_of(facts, "locked memory").severity, Severity::kOk);
  facts.provider_locks_memory = true;
  EXPECT_EQ(finding_of(facts, "locked memory").severity, Severity::kProblem);
  EXPECT_THAT(finding_of(facts, "locked memory").advice, HasSubstr("LimitMEMLOCK"));
}

TEST(HostLimits, LittleOrNoSharedMemoryIsTold) {
  auto facts = healthy();
  facts.shared_free_bytes = std::uint64_t{500} << 20;
  EXPECT_EQ(finding_of(facts, "shared memory").severity, Severity::kWarning);
  facts.shared_free_bytes = 1 << 20;
  EXPECT_EQ(finding_of(facts, "shared memory").severity, Severity::kProblem);
  EXPECT_THAT(finding_of(facts, "shared memory").found, HasSubstr("1.0 MiB free of 8.0 GiB"));
  facts.shared_total_bytes.reset();
  EXPECT_THAT(finding_of(facts, "shared memory").found, HasSubstr("not mounted"));
}

TEST(HostLimits, HugePagesAreToldAndTheirLackIsAdviceAndNoFailure) {
  auto facts = healthy();
  EXPECT_THAT(finding_of(facts, "huge pages").found,
              HasSubstr("/dev/hugepages: 12 of 64 pages of 2.0 MiB free"));
  facts.free_huge_pages = 0;
  EXPECT_EQ(finding_of(facts, "huge pages").severity, Severity::kOk);
  EXPECT_THAT(finding_of(facts, "huge pages").advice,
              HasSubstr("mount -o remount,huge=advise /dev/shm"));
  facts.huge_page_folder.clear();
  EXPECT_THAT(finding_of(facts, "huge pages").found, HasSubstr("no hugetlbfs is mounted"));
}

TEST(HostLimits, TransparentHugePagesInSharedMemoryAreEnoughUnlessTheKernelDeniesThem) {
  auto facts = healthy();
  facts.free_huge_pages = 0;
  facts.shared_huge = "advise";
  facts.shmem_enabled = "never";
  EXPECT_EQ(finding_of(facts, "huge pages").advice, "");
  facts.shmem_enabled = "deny";
  EXPECT_THAT(finding_of(facts, "huge pages").advice, HasSubstr("shmem_enabled"));
  facts.shared_huge = "never";
  facts.shmem_enabled = "force";
  EXPECT_EQ(finding_of(facts, "huge pages").advice, "");
}

TEST(HostLimits, ASingleCpuIsAWarning) {
  auto facts = healthy();
  facts.allowed_cpus = 1;
  EXPECT_EQ(finding_of(facts, "CPUs").severity, Severity::kWarning);
  EXPECT_FALSE(has_problem(judge(facts)));
}

}  // namespace
}  // namespace penstock::cli

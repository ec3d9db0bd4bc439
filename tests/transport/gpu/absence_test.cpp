// What a program gets on a machine that has no GPU, or from a build without CUDA: reasons.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/gpu/gpu_memory.hpp"
#include "transport/gpu/inventory.hpp"
#include "transport/gpu/page_mover.hpp"
#include "transport/gpu/pinned.hpp"
#include "transport/gpu/scope.hpp"

namespace penstock {
namespace {

TEST(WithoutGpu, TheInventorySaysWhyThereIsNone) {
  const GpuInventory& inventory = gpu_inventory();
  EXPECT_EQ(inventory.gpus.empty(), !inventory.why_none.empty()) << inventory.why_none;
  for (const Gpu& gpu : inventory.gpus) {
    EXPECT_EQ(inventory.find(gpu.bus_id), &gpu);
    EXPECT_THAT(gpu.bus_id, testing::MatchesRegex("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]"));
    EXPECT_GT(gpu.memory_bytes, 0u);
  }
}

TEST(WithoutGpu, EveryFunctionFailsWithThatReason) {
  if (!gpu_inventory().gpus.empty()) GTEST_SKIP() << "this machine has a GPU";
  const auto expect_reason = [](const auto& result) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(result.error().message, testing::HasSubstr(gpu_inventory().why_none));
  };
  expect_reason(require_gpu(0));
  expect_reason(GpuScope(0).entered());
  expect_reason(synchronise_gpu(0));
  expect_reason(allocate_gpu_memory(0, 4096));
  expect_reason(allocate_virtual_gpu_memory(0, 4096));
  expect_reason(import_gpu_memory(0, {}, 4096));
  expect_reason(import_gpu_descriptor(0, 0, 4096, 0, 4096));
  expect_reason(allocate_pinned_memory(4096, -1, 0));
  expect_reason(make_gpu_event(0));
  expect_reason(PageMover::make(0));
  expect_reason(make_visible(0));
  EXPECT_FALSE(borrow_gpu_memory(4096, 4096));
  EXPECT_FALSE(gpu_reaches(0, 0));
}

TEST(WithoutGpu, AnIndexThatIsNotThereIsNotFound) {
  if (gpu_inventory().gpus.empty()) GTEST_SKIP() << gpu_inventory().why_none;
  for (const int index : {-1, 1000}) {
    const auto gpu = require_gpu(index);
    ASSERT_FALSE(gpu);
    EXPECT_EQ(gpu.error().code, ErrorCode::kNotFound);
    EXPECT_FALSE(allocate_gpu_memory(index, 4096));
    EXPECT_FALSE(PageMover::make(index));
  }
}

}  // namespace
}  // namespace penstock

// Host memory that kernels reach.
#include <unistd.h>

#include "tests/transport/gpu/gpu_fixture.hpp"
#include "transport/memory/private_memory.hpp"

namespace penstock {
namespace {

class Pinned : public testing::Test {
 protected:
  void SetUp() override { PENSTOCK_NEEDS_GPU(); }
};

TEST_F(Pinned, ASharedSegmentCanBePinnedAndCopiedFrom) {
  const std::string name = "penstock.gpu_test." + std::to_string(getpid());
  const auto segment = must(allocate_shared_memory(name, 1 << 20, -1, HugePages::kNever));
  const auto pinned = must(pin_memory(segment, 0));
  EXPECT_EQ(pinned->memory(), segment);
  const auto expected = pattern(1 << 20, 1);
  std::memcpy(segment->bytes().data(), expected.data(), expected.size());
  Side destination(true, 1 << 20);
  const auto mover = must(PageMover::make(0));
  const CopyPiece all{0, 0, 1 << 20};
  must(wait(*mover, must(mover->start(std::span(&all, 1), {pinned->device_address(), -1},
                                      destination.place(), 0))));
  EXPECT_EQ(first_difference(destination.get(), expected), -1);
}

TEST_F(Pinned, MemoryIsPinnedOnceAndAgainAfterItWasLetGo) {
  const auto memory = must(allocate_private_memory(1 << 20, -1));
  auto pinned = must(pin_memory(memory, 0));
  const auto twice = pin_memory(memory, 0);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, ErrorCode::kAlreadyExists) << twice.error().message;
  pinned.reset();
  EXPECT_TRUE(pin_memory(memory, 0));
}

TEST_F(Pinned, GpuMemoryIsRefused) {
  const auto pinned = pin_memory(must(allocate_gpu_memory(0, 4096)), 0);
  ASSERT_FALSE(pinned);
  EXPECT_EQ(pinned.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock

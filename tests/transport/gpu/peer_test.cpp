// Two GPUs of one node: kernels of either reach the memory of both.
#include <gmock/gmock.h>

#include "tests/transport/gpu/gpu_fixture.hpp"
#include "tests/transport/gpu/other_process.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kBytes = 5'000'003;

class Peers : public testing::Test {
 protected:
  void SetUp() override {
    PENSTOCK_NEEDS_GPU();
    if (gpu_inventory().gpus.size() < 2) GTEST_SKIP() << "one GPU only";
    if (!gpu_reaches(0, 1)) GTEST_SKIP() << "these GPUs do not reach each other";
  }

  static std::vector<std::byte> read(const GpuMemory& memory) {
    std::vector<std::byte> bytes(memory.bytes().size());
    must(read_gpu_memory(memory.gpu(), bytes, address_of(memory)));
    return bytes;
  }

  /// Odd pieces, backwards, by a kernel of `runs_on`.
  static void expect_copied(const GpuMemory& source, const GpuMemory& destination, int runs_on) {
    const auto mover = must(PageMover::make(runs_on));
    const auto from = pattern(kBytes, 1);
    auto expected = pattern(kBytes, 2);
    must(write_gpu_memory(source.gpu(), address_of(source), from));
    must(write_gpu_memory(destination.gpu(), address_of(destination), expected));
    std::vector<CopyPiece> pieces;
    for (std::uint64_t i = 0; i < 1000; ++i)
      pieces.push_back({i * 4999 + 1, (999 - i) * 5000, 4096 + i % 40});
    for (const CopyPiece& piece : pieces)
      std::memcpy(expected.data() + piece.destination_offset, from.data() + piece.source_offset,
                  piece.length);
    must(wait(*mover, must(mover->start(pieces, must(place_on(source, runs_on)),
                                        must(place_on(destination, runs_on)), 0))));
    EXPECT_EQ(first_difference(read(destination), expected), -1) << "kernel on GPU " << runs_on;
  }
};

TEST_F(Peers, AllocatedMemoryIsPushedAndPulled) {
  const auto here = must(allocate_gpu_memory(0, kBytes));
  const auto there = must(allocate_gpu_memory(1, kBytes));
  for (const int runs_on : {0, 1}) {
    expect_copied(*here, *there, runs_on);
    expect_copied(*there, *here, runs_on);
  }
}

TEST_F(Peers, VirtualMemoryIsPushedAndPulled) {
  const auto here = must(allocate_virtual_gpu_memory(0, kBytes));
  const auto there = must(allocate_virtual_gpu_memory(1, kBytes));
  for (const int runs_on : {0, 1}) expect_copied(*here, *there, runs_on);
}

TEST_F(Peers, AnotherProcesssMemoryIsPushedAndPulled) {
  OtherProcess other;
  Question question;
  question.ask = Ask::kAllocate;
  question.bytes = kBytes;
  const Answer answer = other.ask(question);  // on its GPU 0
  ASSERT_TRUE(answer.good) << answer.message.data();
  const auto theirs = must(import_gpu_memory(0, answer.memory, kBytes));
  const auto ours = must(allocate_gpu_memory(1, kBytes));
  for (const int runs_on : {0, 1}) {
    expect_copied(*theirs, *ours, runs_on);
    expect_copied(*ours, *theirs, runs_on);
  }
}

TEST_F(Peers, ADescriptorOfAnotherGpusMemoryIsRefused) {
  const auto memory = must(allocate_virtual_gpu_memory(0, kBytes));
  const auto handle = must(memory->descriptor());
  const auto import = import_gpu_descriptor(1, handle.fd.get(), handle.allocation_bytes, 0, kBytes);
  ASSERT_FALSE(import);
  EXPECT_EQ(import.error().code, ErrorCode::kInvalidArgument) << import.error().message;
}

TEST_F(Peers, HostMemoryHasNoPlaceOnAGpu) {
  const auto pinned = must(allocate_pinned_memory(4096, -1, 0));
  EXPECT_FALSE(place_on(*pinned->memory(), 0));
}

}  // namespace
}  // namespace penstock

// Order with kernels of other streams and processes: no copy reads what is not written yet, and who
// waits for a copy's event reads what it wrote.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include "tests/transport/gpu/gpu_fixture.hpp"
#include "tests/transport/gpu/other_process.hpp"
#include "transport/gpu/cuda/pattern_kernels.hpp"
#include "transport/gpu/gpu_pattern.hpp"
#include "transport/gpu/scope.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kBytes = 32u << 20;

/// The model: kernels on a stream of its own, which start after a long time of other work.
class Order : public testing::Test {
 protected:
  void SetUp() override {
    PENSTOCK_NEEDS_GPU();
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    busy_ = must(allocate_gpu_memory(0, kBusyBytes));
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  /// Some milliseconds of work, behind which what follows waits.
  void delay() {
    for (int i = 0; i < 20; ++i)
      ASSERT_EQ(gpu::launch_fill(address_of(*busy_), kBusyBytes, 1, 0, stream_), cudaSuccess);
  }
  void write(const GpuMemory& memory, std::uint64_t seed) {
    ASSERT_EQ(gpu::launch_fill(address_of(memory), memory.bytes().size(), seed, 0, stream_),
              cudaSuccess);
  }
  void record(const GpuEvent& event) {
    ASSERT_EQ(cudaEventRecord(static_cast<cudaEvent_t>(event.native()), stream_), cudaSuccess);
  }

  static constexpr std::uint64_t kBusyBytes = 1u << 30;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<GpuMemory> busy_;
};

std::uint64_t digest_of(const RegionMemory& memory) {
  const std::uint64_t start = 0;
  std::uint64_t digest = 0;
  must(
      digest_gpu_pages(memory, memory.bytes().size(), std::span(&start, 1), std::span(&digest, 1)));
  return digest;
}

TEST_F(Order, ACopyStartsAfterTheEventOfTheKernelThatWrites) {
  const auto source = must(allocate_gpu_memory(0, kBytes));
  const auto destination = must(allocate_gpu_memory(0, kBytes));
  const auto mover = must(PageMover::make(0));
  const auto written = must(make_gpu_event(0));
  must(fill_gpu_pattern(*source, 0, kBytes, 1));
  delay();
  write(*source, 2);
  record(*written);
  const CopyPiece all{0, 0, kBytes};
  const auto ticket =
      must(mover->start(std::span(&all, 1), {address_of(*source), 0}, {address_of(*destination), 0},
                        0, {written.get(), nullptr}));
  EXPECT_EQ(must(mover->poll(ticket)), CopyState::kRunning) << "the delay was too short to tell";
  must(wait(*mover, ticket));
  EXPECT_EQ(digest_of(*destination), digest_page(pattern(kBytes, 2)));
}

TEST_F(Order, AnotherStreamWaitsForACopysEvent) {
  const auto source = must(allocate_gpu_memory(0, kBytes));
  const auto destination = must(allocate_gpu_memory(0, kBytes));
  const auto mover = must(PageMover::make(0));
  const auto written = must(make_gpu_event(0));
  const auto copied = must(make_gpu_event(0));
  delay();
  write(*source, 3);
  record(*written);
  const CopyPiece all{0, 0, kBytes};
  const auto ticket =
      must(mover->start(std::span(&all, 1), {address_of(*source), 0}, {address_of(*destination), 0},
                        0, {written.get(), copied.get()}));
  EXPECT_FALSE(must(copied->done()));
  // Overwrites the source, and must come after the copy.
  ASSERT_EQ(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(copied->native()), 0),
            cudaSuccess);
  write(*source, 4);
  must(synchronise_gpu(0));
  EXPECT_TRUE(must(copied->done()));
  EXPECT_EQ(must(mover->poll(ticket)), CopyState::kDone);
  EXPECT_EQ(digest_of(*destination), digest_page(pattern(kBytes, 3)));
}

TEST_F(Order, AnotherProcessCopiesAfterOurEvent) {
  OtherProcess other;
  const auto source = must(allocate_gpu_memory(0, kBytes));
  const auto written = must(make_gpu_event(0));
  must(fill_gpu_pattern(*source, 0, kBytes, 1));
  Question question;
  question.ask = Ask::kCopyAfter;
  question.bytes = kBytes;
  question.memory = must(source->ipc_handle());
  question.event = must(written->ipc_handle());
  // One round before, so that the other process does not lose the delay in making its context.
  ASSERT_TRUE(other.ask(question).good);
  for (int i = 0; i < 40; ++i) delay();
  write(*source, 5);
  record(*written);
  const Answer answer = other.ask(question);
  ASSERT_TRUE(answer.good) << answer.message.data();
  EXPECT_EQ(answer.digest, digest_page(pattern(kBytes, 5)));
}

TEST_F(Order, OurStreamWaitsForAnEventThatAnotherProcessRecorded) {
  OtherProcess other;
  const auto destination = must(allocate_gpu_memory(0, kBytes));
  const auto arrived = must(make_gpu_event(0));
  Question question;
  question.ask = Ask::kRecordAfter;
  question.bytes = kBytes;
  question.seed = 6;
  question.memory = must(destination->ipc_handle());
  question.event = must(arrived->ipc_handle());
  const Answer answer = other.ask(question);
  ASSERT_TRUE(answer.good) << answer.message.data();
  const auto kept = must(allocate_gpu_memory(0, kBytes));
  ASSERT_EQ(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(arrived->native()), 0),
            cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(kept->bytes().data(), destination->bytes().data(), kBytes,
                            cudaMemcpyDeviceToDevice, stream_),
            cudaSuccess);
  must(synchronise_gpu(0));
  EXPECT_EQ(digest_of(*kept), digest_page(pattern(kBytes, 6)));
}

TEST_F(Order, AnEventOfThisProcessIsNotOpenedAndRubbishIsNoEvent) {
  const auto event = must(make_gpu_event(0));
  EXPECT_TRUE(must(event->done())) << "nothing was recorded";
  const auto opened = import_gpu_event(0, must(event->ipc_handle()));
  EXPECT_FALSE(opened);
  GpuEventHandle handle;
  handle.handle.fill(std::byte{0x5a});
  const auto rubbish = import_gpu_event(0, handle);
  ASSERT_FALSE(rubbish);
  EXPECT_EQ(rubbish.error().code, ErrorCode::kInvalidArgument) << rubbish.error().message;
}

TEST_F(Order, WhatACardWroteIsMadeVisible) { must(make_visible(0)); }

}  // namespace
}  // namespace penstock

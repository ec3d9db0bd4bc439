// GPU memory as regions within one process: what it is, and what is refused at registration.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include "tests/transport/gpu/gpu_fixture.hpp"
#include "transport/memory/private_memory.hpp"

namespace penstock {
namespace {

class GpuMemoryTest : public testing::Test {
 protected:
  void SetUp() override { PENSTOCK_NEEDS_GPU(); }
  void TearDown() override {
    // No test may leave an error behind in the runtime.
    if (gpu_inventory().gpus.empty()) return;
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
};

void expect_error(const auto& result, ErrorCode code, const std::string& words) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_THAT(result.error().message, testing::HasSubstr(words));
}

TEST_F(GpuMemoryTest, AllocatedMemoryIsARegionThatCanBeExported) {
  const auto memory = must(allocate_gpu_memory(0, 10'000'000));
  EXPECT_EQ(memory->kind(), MemoryKind::kCuda);
  EXPECT_EQ(memory->gpu(), 0);
  EXPECT_EQ(memory->bytes().size(), 10'000'000u);
  EXPECT_EQ(memory->shared_name(), "");
  EXPECT_NE(memory->buffer_id(), 0u);
  EXPECT_EQ(must(memory->ipc_handle()).offset, 0u);
  expect_error(memory->descriptor(), ErrorCode::kUnsupported, "no descriptor");
  EXPECT_TRUE(memory->check());
}

TEST_F(GpuMemoryTest, VirtualMemoryIsMappedWholeAndExportedAsADescriptor) {
  if (!gpu_inventory().gpus[0].virtual_memory) GTEST_SKIP() << "no virtual memory management";
  const auto memory = must(allocate_virtual_gpu_memory(0, 1000));
  EXPECT_EQ(memory->bytes().size(), 1000u);
  const auto handle = must(memory->descriptor());
  EXPECT_GE(handle.allocation_bytes, 1000u);
  EXPECT_EQ(handle.offset, 0u);
  expect_error(memory->ipc_handle(), ErrorCode::kUnsupported, "no IPC handle");
  const auto again =
      must(import_gpu_descriptor(0, handle.fd.get(), handle.allocation_bytes, 100, 500));
  EXPECT_EQ(again->origin(), GpuMemoryOrigin::kVirtualImport);
  must(write_gpu_memory(0, address_of(*memory), pattern(1000, 6)));
  std::vector<std::byte> seen(500);
  must(read_gpu_memory(0, seen, address_of(*again)));
  const auto all = pattern(1000, 6);
  EXPECT_TRUE(std::equal(seen.begin(), seen.end(), all.begin() + 100));
  expect_error(import_gpu_descriptor(0, handle.fd.get(), handle.allocation_bytes,
                                     handle.allocation_bytes - 1, 2),
               ErrorCode::kOutOfRange, "not inside");
}

TEST_F(GpuMemoryTest, AVirtualImportOutlivesItsOrigin) {
  if (!gpu_inventory().gpus[0].virtual_memory) GTEST_SKIP() << "no virtual memory management";
  auto memory = must(allocate_virtual_gpu_memory(0, 4096));
  const auto handle = must(memory->descriptor());
  const auto import =
      must(import_gpu_descriptor(0, handle.fd.get(), handle.allocation_bytes, 0, 4096));
  must(write_gpu_memory(0, address_of(*memory), pattern(4096, 7)));
  memory.reset();
  std::vector<std::byte> seen(4096);
  must(read_gpu_memory(0, seen, address_of(*import)));
  EXPECT_EQ(seen, pattern(4096, 7));
}

TEST_F(GpuMemoryTest, WhatIsNoDescriptorOfMemoryIsRefused) {
  if (!gpu_inventory().gpus[0].virtual_memory) GTEST_SKIP() << "no virtual memory management";
  expect_error(import_gpu_descriptor(0, 0, 2 << 20, 0, 4096), ErrorCode::kInvalidArgument,
               "dma-buf");
}

TEST_F(GpuMemoryTest, MoreThanThereIsSaysHowMuchIsFree) {
  const std::uint64_t too_much = gpu_inventory().gpus[0].memory_bytes * 2;
  expect_error(allocate_gpu_memory(0, too_much), ErrorCode::kResourceExhausted, "bytes are free");
  EXPECT_FALSE(allocate_virtual_gpu_memory(0, too_much));
  expect_error(allocate_gpu_memory(0, 0), ErrorCode::kInvalidArgument, "0 bytes");
  expect_error(allocate_virtual_gpu_memory(0, UINT64_MAX), ErrorCode::kResourceExhausted, "");
}

TEST_F(GpuMemoryTest, AnAddressInsideAnAllocationIsExportedWithItsOffset) {
  const auto memory = must(allocate_gpu_memory(0, 8 << 20));
  const auto inside = must(borrow_gpu_memory(address_of(*memory) + 12'345, 1000, 0));
  EXPECT_EQ(inside->origin(), GpuMemoryOrigin::kBorrowed);
  EXPECT_EQ(inside->buffer_id(), memory->buffer_id());
  const auto handle = must(inside->ipc_handle());
  EXPECT_EQ(handle.offset, 12'345u);
  EXPECT_EQ(handle.handle, must(memory->ipc_handle()).handle);
}

TEST_F(GpuMemoryTest, AHandleOfThisProcessIsRefused) {
  const auto memory = must(allocate_gpu_memory(0, 4096));
  const auto import = import_gpu_memory(0, must(memory->ipc_handle()), 4096);
  ASSERT_FALSE(import);
  EXPECT_EQ(import.error().code, ErrorCode::kInvalidArgument) << import.error().message;
}

TEST_F(GpuMemoryTest, RubbishIsNoHandle) {
  GpuIpcHandle handle;
  handle.handle.fill(std::byte{0x5a});
  EXPECT_FALSE(import_gpu_memory(0, handle, 4096));
}

TEST_F(GpuMemoryTest, AFreedAddressIsNoMemory) {
  auto memory = must(allocate_gpu_memory(0, 64 << 20));
  const std::uint64_t address = address_of(*memory);
  const auto borrowed = must(borrow_gpu_memory(address, 4096));
  EXPECT_TRUE(borrowed->check());
  memory.reset();
  expect_error(borrowed->check(), ErrorCode::kStaleRegion, "freed");
  expect_error(borrowed->ipc_handle(), ErrorCode::kStaleRegion, "freed");
  expect_error(borrow_gpu_memory(address, 4096), ErrorCode::kInvalidArgument, "no GPU memory");
}

TEST_F(GpuMemoryTest, AReallocatedAddressIsNotTheOldMemory) {
  auto memory = must(allocate_gpu_memory(0, 64 << 20));
  const std::uint64_t address = address_of(*memory);
  const auto borrowed = must(borrow_gpu_memory(address, 4096));
  memory.reset();
  const auto next = must(allocate_gpu_memory(0, 64 << 20));
  if (address_of(*next) != address) GTEST_SKIP() << "the driver gave another address";
  expect_error(borrowed->check(), ErrorCode::kStaleRegion, "another allocation");
}

TEST_F(GpuMemoryTest, MoreThanTheAllocationIsOutOfRange) {
  const auto memory = must(allocate_gpu_memory(0, 8 << 20));
  expect_error(borrow_gpu_memory(address_of(*memory) + 4096, 8 << 20), ErrorCode::kOutOfRange,
               "left");
}

TEST_F(GpuMemoryTest, PoolMemoryIsRefusedAtRegistration) {
  void* address = nullptr;
  ASSERT_EQ(cudaMallocAsync(&address, 1 << 20, nullptr), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  expect_error(borrow_gpu_memory(reinterpret_cast<std::uint64_t>(address), 4096),
               ErrorCode::kUnsupported, "pool");
  ASSERT_EQ(cudaFreeAsync(address, nullptr), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
}

TEST_F(GpuMemoryTest, HostMemoryIsRefusedAtRegistration) {
  std::vector<std::byte> plain(4096);
  expect_error(borrow_gpu_memory(reinterpret_cast<std::uint64_t>(plain.data()), 4096),
               ErrorCode::kInvalidArgument, "no GPU memory");
  const auto pinned = must(allocate_pinned_memory(4096, -1, 0));
  expect_error(borrow_gpu_memory(pinned->device_address(), 4096), ErrorCode::kInvalidArgument,
               "pinned host memory");
}

TEST_F(GpuMemoryTest, MemoryOfAnotherGpuIsRefused) {
  const auto memory = must(allocate_gpu_memory(0, 4096));
  expect_error(borrow_gpu_memory(address_of(*memory), 4096, 1), ErrorCode::kInvalidArgument,
               "lies on GPU 0");
}

TEST_F(GpuMemoryTest, VirtualMemoryThatOneOwnsCanBeBorrowedAndPassedOn) {
  if (!gpu_inventory().gpus[0].virtual_memory) GTEST_SKIP() << "no virtual memory management";
  const auto memory = must(allocate_virtual_gpu_memory(0, 4 << 20));
  const auto inside = must(borrow_gpu_memory(address_of(*memory) + 4096, 1000));
  const auto handle = must(inside->descriptor());
  EXPECT_EQ(handle.offset, 4096u);
  EXPECT_GE(handle.allocation_bytes, std::uint64_t{4} << 20);
}

TEST_F(GpuMemoryTest, ADmaBufIsExportedOrTheReasonGiven) {
  const auto memory = must(allocate_gpu_memory(0, 4 << 20));
  const auto exported = memory->dma_buf();
  if (exported)
    EXPECT_GE(exported->fd.get(), 0);
  else
    EXPECT_EQ(exported.error().code, ErrorCode::kUnsupported) << exported.error().message;
}

TEST_F(GpuMemoryTest, AThreadWithoutAContextAllocatesAndFrees) {
  std::shared_ptr<GpuMemory> memory;
  std::thread([&] { memory = must(allocate_gpu_memory(0, 1 << 20)); }).join();
  std::thread([&] {
    EXPECT_TRUE(borrow_gpu_memory(address_of(*memory), 4096));
    memory.reset();
  }).join();
}

}  // namespace
}  // namespace penstock

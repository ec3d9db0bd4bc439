// Two processes and one memory, as a service and its client have it.
#include "tests/transport/gpu/other_process.hpp"

#include <gmock/gmock.h>

#include "tests/transport/gpu/gpu_fixture.hpp"
#include "transport/gpu/gpu_pattern.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kBytes = 3'000'000;

class OtherProcessTest : public testing::Test {
 protected:
  void SetUp() override { PENSTOCK_NEEDS_GPU(); }

  static Question question(Ask ask) {
    Question made;
    made.ask = ask;
    made.seed = 2;
    made.bytes = kBytes;
    return made;
  }
  static std::uint64_t digest_of(const std::vector<std::byte>& bytes) { return digest_page(bytes); }
  static std::vector<std::byte> read(const RegionMemory& memory) {
    std::vector<std::byte> bytes(memory.bytes().size());
    must(read_gpu_memory(0, bytes, address_of(memory)));
    return bytes;
  }
};

TEST_F(OtherProcessTest, MapsAnIpcHandleReadsAndWrites) {
  const auto memory = must(allocate_gpu_memory(0, kBytes));
  must(fill_gpu_pattern(*memory, 0, kBytes, 1));
  OtherProcess other;
  auto import = question(Ask::kImport);
  import.memory = must(memory->ipc_handle());
  const Answer answer = other.ask(import);
  ASSERT_TRUE(answer.good) << answer.message.data();
  EXPECT_EQ(answer.digest, digest_of(pattern(kBytes, 1)));
  EXPECT_EQ(first_difference(read(*memory), pattern(kBytes, 2)), -1);
}

TEST_F(OtherProcessTest, MapsThePartThatTheOffsetNames) {
  const auto whole = must(allocate_gpu_memory(0, 2 * kBytes));
  const auto part = must(borrow_gpu_memory(address_of(*whole) + 1'000'001, kBytes));
  must(fill_gpu_pattern(*part, 0, kBytes, 1));
  OtherProcess other;
  auto import = question(Ask::kImport);
  import.memory = must(part->ipc_handle());
  const Answer answer = other.ask(import);
  ASSERT_TRUE(answer.good) << answer.message.data();
  EXPECT_EQ(answer.digest, digest_of(pattern(kBytes, 1)));
  EXPECT_EQ(first_difference(read(*part), pattern(kBytes, 2)), -1);
}

TEST_F(OtherProcessTest, MapsOneHandleForSeveralRegions) {
  const auto memory = must(allocate_gpu_memory(0, kBytes));
  OtherProcess other;
  auto import = question(Ask::kImport);
  import.memory = must(memory->ipc_handle());
  for (int i = 0; i < 3; ++i) {
    const Answer answer = other.ask(import);  // the one before goes when this one is there
    ASSERT_TRUE(answer.good) << answer.message.data();
  }
  EXPECT_EQ(first_difference(read(*memory), pattern(kBytes, 2)), -1);
}

TEST_F(OtherProcessTest, IsToldWhenARegionReachesBeyondItsAllocation) {
  const auto memory = must(allocate_gpu_memory(0, 4 << 20));
  OtherProcess other;
  auto import = question(Ask::kImport);
  import.memory = must(memory->ipc_handle());
  import.bytes = std::uint64_t{1} << 40;
  const Answer answer = other.ask(import);
  EXPECT_FALSE(answer.good);
  EXPECT_EQ(answer.code, ErrorCode::kOutOfRange) << answer.message.data();
}

TEST_F(OtherProcessTest, IsToldWhenTheMemoryWasFreedBefore) {
  auto memory = must(allocate_gpu_memory(0, 64 << 20));
  auto import = question(Ask::kImport);
  import.memory = must(memory->ipc_handle());
  memory.reset();
  OtherProcess other;
  const Answer answer = other.ask(import);
  EXPECT_FALSE(answer.good);
  EXPECT_EQ(answer.code, ErrorCode::kNotFound) << answer.message.data();
}

TEST_F(OtherProcessTest, KeepsWhatItMappedWhenTheOwnerFreesAndAllocatesAgain) {
  auto memory = must(allocate_gpu_memory(0, 64 << 20));
  OtherProcess other;
  auto import = question(Ask::kImport);
  import.memory = must(memory->ipc_handle());
  ASSERT_TRUE(other.ask(import).good);  // it has filled it with seed 2
  memory.reset();
  const auto next = must(allocate_gpu_memory(0, 64 << 20));
  must(fill_gpu_pattern(*next, 0, kBytes, 3));
  // What it writes goes to the old memory, not to what took its address here.
  auto again = question(Ask::kImport);
  again.memory = must(next->ipc_handle());
  again.seed = 3;
  const Answer answer = other.ask(again);
  ASSERT_TRUE(answer.good) << answer.message.data();
  EXPECT_EQ(answer.digest, digest_of(pattern(kBytes, 3)))
      << "the next memory is mapped, not the old";
}

TEST_F(OtherProcessTest, MayDieWhileWeHaveItsMemoryMapped) {
  std::shared_ptr<GpuMemory> memory;
  GpuIpcHandle handle;
  {
    OtherProcess other;
    const Answer answer = other.ask(question(Ask::kAllocate));
    ASSERT_TRUE(answer.good) << answer.message.data();
    handle = answer.memory;
    memory = must(import_gpu_memory(0, handle, kBytes));
    other.kill();
  }
  EXPECT_EQ(first_difference(read(*memory), pattern(kBytes, 2)), -1);
  must(fill_gpu_pattern(*memory, 0, kBytes, 4));
  EXPECT_EQ(first_difference(read(*memory), pattern(kBytes, 4)), -1);
  memory.reset();
  const auto late = import_gpu_memory(0, handle, kBytes);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kNotFound) << late.error().message;
}

TEST_F(OtherProcessTest, MapsADescriptorThatCameOverASocket) {
  if (!gpu_inventory().gpus[0].virtual_memory) GTEST_SKIP() << "no virtual memory management";
  const auto memory = must(allocate_virtual_gpu_memory(0, kBytes));
  must(fill_gpu_pattern(*memory, 0, kBytes, 1));
  const auto handle = must(memory->descriptor());
  OtherProcess other;
  auto import = question(Ask::kImportDescriptor);
  import.allocation_bytes = handle.allocation_bytes;
  const Answer answer = other.ask(import, handle.fd.get());
  ASSERT_TRUE(answer.good) << answer.message.data();
  EXPECT_EQ(answer.digest, digest_of(pattern(kBytes, 1)));
  EXPECT_EQ(first_difference(read(*memory), pattern(kBytes, 2)), -1);
}

TEST_F(OtherProcessTest, IsToldThatADescriptorHasAnotherSize) {
  if (!gpu_inventory().gpus[0].virtual_memory) GTEST_SKIP() << "no virtual memory management";
  const auto memory = must(allocate_virtual_gpu_memory(0, kBytes));
  const auto handle = must(memory->descriptor());
  OtherProcess other;
  auto import = question(Ask::kImportDescriptor);
  import.allocation_bytes = handle.allocation_bytes * 4;
  const Answer answer = other.ask(import, handle.fd.get());
  EXPECT_FALSE(answer.good);
}

TEST_F(OtherProcessTest, WithoutAContextKnowsNoGpuAddress) {
  OtherProcess other;
  auto describe = question(Ask::kDescribe);
  describe.address = 0x7f0000000000;
  const Answer answer = other.ask(describe);
  EXPECT_FALSE(answer.good);
  EXPECT_EQ(answer.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(answer.message.data(), testing::HasSubstr("no CUDA context"));
}

TEST_F(OtherProcessTest, SeesTheGpusThatTheEnvironmentShowsInItsOrder) {
  const auto& gpus = gpu_inventory().gpus;
  OtherProcess none("");
  const Answer hidden = none.ask(question(Ask::kInventory));
  EXPECT_THAT(hidden.message.data(), testing::HasSubstr("CUDA_VISIBLE_DEVICES"));
  OtherProcess by_name(gpus.back().uuid.c_str());
  const Answer one = by_name.ask(question(Ask::kInventory));
  EXPECT_EQ(std::string(one.message.data()), gpus.back().bus_id + " ");
  if (gpus.size() < 2) return;
  OtherProcess turned((gpus[1].uuid + "," + gpus[0].uuid).c_str());
  const Answer two = turned.ask(question(Ask::kInventory));
  EXPECT_EQ(std::string(two.message.data()), gpus[1].bus_id + " " + gpus[0].bus_id + " ");
}

TEST_F(OtherProcessTest, ACopyThatFaultsIsAnErrorAndNotSilence) {
  OtherProcess other;
  const Answer answer = other.ask(question(Ask::kPoison));
  EXPECT_FALSE(answer.good);
  EXPECT_EQ(answer.code, ErrorCode::kProvider) << answer.message.data();
  const Answer after = other.ask(question(Ask::kPoisonThenUse));
  EXPECT_FALSE(after.good) << "CUDA has no way back from that but a new process";
}

}  // namespace
}  // namespace penstock

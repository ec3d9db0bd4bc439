// Memory of a GPU through whole services: who owns it, in which order with kernels, and what is
// refused. Skipped where there is no GPU; tests/device/run.sh runs it on a machine that has one.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include "apps/penstock/local_cluster.hpp"
#include "client/gpu/mapped_region.hpp"
#include "transport/gpu/event.hpp"
#include "transport/gpu/gpu_memory.hpp"
#include "transport/gpu/gpu_pattern.hpp"
#include "transport/gpu/inventory.hpp"
#include "transport/gpu/page_mover.hpp"

namespace penstock::integration {
namespace {

using namespace std::chrono_literals;
using State = client::TransferResult::State;

constexpr std::uint64_t kMib = 1u << 20;

template <class T>
T good(Result<T> result) {
  if (result) return std::move(*result);
  throw std::runtime_error(result.error().message);
}

/// Two services that use the GPU; made once, since each makes a context of its own.
app::LocalCluster& cluster() {
  static app::LocalCluster two({.gpus = true});
  return two;
}

class GpuService : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_inventory().gpus.empty()) GTEST_SKIP() << gpu_inventory().why_none;
  }
  static client::Client& a() { return cluster().client(0); }
  static client::Client& b() { return cluster().client(1); }

  /// Every page of `page_bytes`, shuffled on both sides.
  client::TransferSpec shuffled(const std::string& from, const std::string& node,
                                const std::string& to, std::uint64_t bytes,
                                std::uint64_t page_bytes) {
    source_.resize(bytes / page_bytes);
    std::iota(source_.begin(), source_.end(), 0u);
    destination_ = source_;
    std::mt19937 random(7);
    std::shuffle(source_.begin(), source_.end(), random);
    std::shuffle(destination_.begin(), destination_.end(), random);
    client::TransferSpec spec;
    spec.region = from;
    spec.targets = {{node, to}};
    spec.layout = client::Pages{
        .page_bytes = page_bytes, .source_pages = source_, .destination_pages = destination_};
    return spec;
  }
  bool arrived(client::Client& from, const std::string& source, client::Client& to,
               const std::string& destination, std::uint64_t page_bytes) const {
    return from.digest(source, page_bytes, source_) ==
           to.digest(destination, page_bytes, destination_);
  }
  static std::span<const std::byte> bytes_of(const GpuIpcHandle& handle) { return handle.handle; }
  static std::string text_of(const GpuEventHandle& handle) {
    return {reinterpret_cast<const char*>(handle.handle.data()), handle.handle.size()};
  }
  static CopyPlace place(const GpuMemory& memory) {
    return {reinterpret_cast<std::uint64_t>(memory.bytes().data()), memory.gpu()};
  }
  template <class Call>
  static std::string refusal(Call call) {
    try {
      call();
    } catch (const client::Error& error) {
      return error.code();
    }
    return "accepted";
  }

  std::vector<std::uint32_t> source_;
  std::vector<std::uint32_t> destination_;
};

TEST_F(GpuService, AClientMapsWhatTheServiceAllocated) {
  auto region = a().allocate_cuda("mapped", 8 * kMib);
  EXPECT_EQ(region.info().kind, "cuda");
  const auto mapped = client::MappedRegion::open(region.info());
  a().fill("mapped", 42);
  const auto told = a().digest("mapped", 4096);
  std::vector<std::uint64_t> offsets(told.size());
  for (std::size_t i = 0; i < offsets.size(); ++i) offsets[i] = i * 4096;
  std::vector<std::uint64_t> found(told.size());
  ASSERT_TRUE(digest_gpu_pages(*mapped.memory(), 4096, offsets, found));
  EXPECT_EQ(found, told);
}

TEST_F(GpuService, MovesBetweenEveryKindOfMemoryAndEveryPageSize) {
  auto host_a = a().allocate("host", 16 * kMib, "", client::MapMemory::kNo);
  auto host_b = b().allocate("host", 16 * kMib, "", client::MapMemory::kNo);
  auto gpu_a = a().allocate_cuda("gpu", 16 * kMib);
  auto gpu_b = b().allocate_cuda("gpu", 16 * kMib);
  auto other_a = a().allocate_cuda("other", 16 * kMib);
  std::uint64_t seed = 1;
  for (const auto& [from, to] : {std::pair{"gpu", "gpu"}, {"gpu", "host"}, {"host", "gpu"}})
    for (const std::uint64_t page : {512ull, 4096ull, 65536ull, 1048576ull, 4194304ull}) {
      a().fill(from, ++seed);
      const auto result = a().transfer(shuffled(from, "b", to, 16 * kMib, page)).wait();
      EXPECT_EQ(result.state, State::kDone) << result.error_message;
      EXPECT_EQ(result.path, "staged");
      EXPECT_TRUE(arrived(a(), from, b(), to, page)) << from << " to " << to << ", " << page;
    }
  for (const auto& [from, to] : {std::pair{"gpu", "other"}, {"gpu", "host"}, {"host", "gpu"}})
    for (const std::uint64_t page : {512ull, 65536ull, 4194304ull}) {
      a().fill(from, ++seed);
      const auto result = a().transfer(shuffled(from, "", to, 16 * kMib, page)).wait();
      EXPECT_EQ(result.state, State::kDone) << result.error_message;
      EXPECT_EQ(result.path, "local_kernel");
      EXPECT_TRUE(arrived(a(), from, a(), to, page)) << from << " to " << to << ", " << page;
    }
}

TEST_F(GpuService, MemoryOfAClientStaysWhenTheClientFreesIt) {
  auto memory = good(allocate_gpu_memory(0, 32 * kMib));
  ASSERT_TRUE(fill_gpu_pattern(*memory, 0, 32 * kMib, 99));
  const auto handle = good(memory->ipc_handle());
  auto region = a().register_cuda("mine", bytes_of(handle), handle.offset + 4 * kMib, 16 * kMib, 0);
  const auto before = a().digest("mine", 65536);
  memory.reset();
  auto elsewhere = good(allocate_gpu_memory(0, 32 * kMib));  // perhaps at the same address
  ASSERT_TRUE(fill_gpu_pattern(*elsewhere, 0, 32 * kMib, 100));
  auto target = b().allocate_cuda("target", 16 * kMib);
  const auto result = a().transfer(shuffled("mine", "b", "target", 16 * kMib, 65536)).wait();
  EXPECT_EQ(result.state, State::kDone) << result.error_message;
  EXPECT_EQ(a().digest("mine", 65536), before);
  EXPECT_TRUE(arrived(a(), "mine", b(), "target", 65536));
}

/// As allocators with expandable segments make it.
TEST_F(GpuService, VirtualMemoryTravelsAsADescriptorBothWays) {
  if (!gpu_inventory().gpus[0].virtual_memory) GTEST_SKIP() << "no descriptors on this GPU";
  auto memory = good(allocate_virtual_gpu_memory(0, 32 * kMib));
  ASSERT_TRUE(fill_gpu_pattern(*memory, 0, 32 * kMib, 12));
  auto handle = good(memory->descriptor());
  auto ours = a().register_cuda_descriptor("ours", handle.fd.get(), handle.allocation_bytes,
                                           handle.offset, 32 * kMib, 0);
  client::Client::Descriptor given;
  auto theirs = b().allocate_cuda_descriptor("theirs", 32 * kMib, given, 0);
  const GpuDescriptor closes(given.fd);
  const auto result = a().transfer(shuffled("ours", "b", "theirs", 32 * kMib, 65536)).wait();
  EXPECT_EQ(result.state, State::kDone) << result.error_message;
  EXPECT_TRUE(arrived(a(), "ours", b(), "theirs", 65536));
  auto view =
      good(import_gpu_descriptor(0, given.fd, given.allocation_bytes, given.offset, 32 * kMib));
  std::vector<std::uint64_t> offsets, found(destination_.size());
  for (const auto page : destination_) offsets.push_back(page * 65536ull);
  ASSERT_TRUE(digest_gpu_pages(*view, 65536, offsets, found));
  EXPECT_EQ(found, b().digest("theirs", 65536, destination_));
}

TEST_F(GpuService, WhatIsNoMemoryOfAGpuIsRefusedAtRegistration) {
  const std::vector<std::byte> noise(64, std::byte{0x5c});
  EXPECT_NE(refusal([&] { a().register_cuda("noise", noise, 0, kMib, 0); }), "accepted");
  auto memory = good(allocate_gpu_memory(0, 2 * kMib));
  const auto handle = good(memory->ipc_handle());
  EXPECT_EQ(refusal([&] {
              a().register_cuda("long", bytes_of(handle), handle.offset + kMib, 64 * kMib, 0);
            }),
            "OUT_OF_RANGE");
  EXPECT_EQ(refusal([&] { a().register_cuda("no", bytes_of(handle), 0, kMib, 77); }), "NOT_FOUND");
  EXPECT_EQ(refusal([&] { a().allocate_cuda("huge", std::uint64_t{1} << 45); }),
            "RESOURCE_EXHAUSTED");
}

/// The kernels of a client write pages while the transfer has been asked for already.
TEST_F(GpuService, NothingIsReadBeforeTheEventOfTheKernelsThatWriteIt) {
  constexpr std::uint64_t kBytes = 256 * kMib;
  auto memory = good(allocate_gpu_memory(0, kBytes));
  auto pattern = good(allocate_gpu_memory(0, kBytes));
  auto event = good(make_gpu_event(0));
  auto mover = good(PageMover::make(0, {.lanes = 1, .list_bytes = 64 * kMib}));
  const auto handle = good(memory->ipc_handle());
  auto region = a().register_cuda("written", bytes_of(handle), handle.offset, kBytes, 0);
  auto there = b().allocate_cuda("read", kBytes);
  auto here = a().allocate_cuda("read", kBytes);
  for (int round = 0; round < 4; ++round) {
    const bool local = round % 2 == 1;
    ASSERT_TRUE(fill_gpu_pattern(*memory, 0, kBytes, 1));
    ASSERT_TRUE(fill_gpu_pattern(*pattern, 0, kBytes, 1000 + static_cast<std::uint64_t>(round)));
    // Many slow copies, the last of which leaves the pattern; the event is behind them.
    std::vector<CopyPiece> pieces;
    for (std::uint64_t at = 0; at < kBytes; at += 4096) pieces.push_back({at, at, 4096});
    for (int i = 0; i < 8; ++i) {
      CopyOrder order;
      if (i == 7) order.record = event.get();
      ASSERT_TRUE(mover->start(pieces, place(*pattern), place(*memory), 0, order));
    }
    auto spec = shuffled("written", local ? "" : "b", "read", kBytes, 65536);
    spec.start_after = text_of(good(event->ipc_handle()));
    const auto result = a().transfer(spec).wait();
    EXPECT_EQ(result.state, State::kDone) << result.error_message;
    std::vector<std::uint64_t> offsets, expected(source_.size());
    for (const auto page : source_) offsets.push_back(page * 65536ull);
    ASSERT_TRUE(digest_gpu_pages(*pattern, 65536, offsets, expected));
    EXPECT_EQ((local ? a() : b()).digest("read", 65536, destination_), expected)
        << (local ? "on one node" : "staged");
  }
}

TEST_F(GpuService, AnEventIsRecordedBehindACopyOnOneNode) {
  auto from = a().allocate_cuda("from", 64 * kMib);
  auto to = a().allocate_cuda("to", 64 * kMib);
  a().fill("from", 5);
  auto event = good(make_gpu_event(0));
  auto spec = shuffled("from", "", "to", 64 * kMib, 4096);
  spec.record_event = text_of(good(event->ipc_handle()));
  auto transfer = a().transfer(spec);
  EXPECT_EQ(transfer.wait().state, State::kDone);
  EXPECT_TRUE(good(event->done()));
  EXPECT_TRUE(arrived(a(), "from", a(), "to", 4096));
}

TEST_F(GpuService, ACancelledTransferLeavesThePagesQuiet) {
  constexpr std::uint64_t kBytes = 512 * kMib;
  auto from = a().allocate_cuda("from", kBytes);
  auto to = b().allocate_cuda("to", kBytes);
  for (int round = 0; round < 5; ++round) {
    a().fill("from", 10 + static_cast<std::uint64_t>(round));
    auto transfer = a().transfer(shuffled("from", "b", "to", kBytes, 65536));
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + 10 * round));
    a().cancel({transfer.id()});
    const auto result = transfer.wait();
    if (result.state == State::kDone) continue;
    EXPECT_EQ(result.state, State::kCancelled) << result.error_message;
    EXPECT_EQ(result.remote, client::TransferResult::Remote::kQuiet);
    const auto now = b().digest("to", 65536);
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(b().digest("to", 65536), now) << "something is still written";
  }
}

TEST_F(GpuService, AnotherWayIsNeverTakenInPlaceOfTheOneAskedFor) {
  auto from = a().allocate_cuda("from", kMib);
  auto to = b().allocate_cuda("to", kMib);
  auto spec = shuffled("from", "b", "to", kMib, 4096);
  spec.path = "gpudirect";  // tcp has none
  const auto result = a().transfer(spec).wait();
  EXPECT_EQ(result.state, State::kFailed);
  EXPECT_EQ(result.error_code, "UNSUPPORTED");
  EXPECT_NE(result.error_message.find("FI_HMEM"), std::string::npos) << result.error_message;
}

TEST_F(GpuService, ReleaseWithForceWaitsForTheKernels) {
  for (int round = 0; round < 3; ++round) {
    auto from = a().allocate_cuda("from", 512 * kMib);
    auto to = b().allocate_cuda("to", 512 * kMib);
    auto staged = a().transfer(shuffled("from", "b", "to", 512 * kMib, 65536));
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + 20 * round));
    b().release("to", true);
    const auto result = staged.wait();
    EXPECT_NE(result.state, State::kLost);
    from.release(true);
    to.detach();
  }
}

}  // namespace
}  // namespace penstock::integration

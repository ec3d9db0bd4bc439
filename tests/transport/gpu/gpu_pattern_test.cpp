// fill and digest by kernels give what the processor gives.
#include "transport/gpu/gpu_pattern.hpp"

#include <gmock/gmock.h>

#include "tests/transport/gpu/gpu_fixture.hpp"

namespace penstock {
namespace {

class GpuPattern : public testing::Test {
 protected:
  void SetUp() override { PENSTOCK_NEEDS_GPU(); }
};

TEST_F(GpuPattern, FillsAsTheHostDoesWhateverTheOffsetAndLength) {
  constexpr std::uint64_t kBytes = 100'000;
  const auto memory = must(allocate_gpu_memory(0, kBytes));
  auto expected = pattern(kBytes, 1);
  must(write_gpu_memory(0, address_of(*memory), expected));
  for (const std::uint64_t offset : {0, 1, 7, 8, 1001, 50'000}) {
    for (const std::uint64_t length : {0, 1, 5, 8, 9, 23, 4096, 33'333}) {
      must(fill_gpu_pattern(*memory, offset, length, offset + length));
      fill_pattern(std::span(expected).subspan(offset, length), offset + length, offset);
    }
  }
  std::vector<std::byte> seen(kBytes);
  must(read_gpu_memory(0, seen, address_of(*memory)));
  EXPECT_EQ(first_difference(seen, expected), -1);
}

TEST_F(GpuPattern, FillsMemoryThatStartsAtAnOddAddress) {
  const auto memory = must(allocate_gpu_memory(0, 10'000));
  const auto odd = must(borrow_gpu_memory(address_of(*memory) + 3, 5000));
  must(fill_gpu_pattern(*odd, 0, 5000, 9));
  std::vector<std::byte> seen(5000);
  must(read_gpu_memory(0, seen, address_of(*odd)));
  EXPECT_EQ(seen, pattern(5000, 9));
}

TEST_F(GpuPattern, DigestsPagesOfEverySizeAtEveryAddress) {
  constexpr std::uint64_t kBytes = 1 << 20;
  const auto memory = must(allocate_gpu_memory(0, kBytes));
  must(fill_gpu_pattern(*memory, 0, kBytes, 3));
  const auto host = pattern(kBytes, 3);
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t length = 0; length <= 300; ++length) lengths.push_back(length);
  for (std::uint64_t length : {511, 512, 513, 1000, 1024, 1025, 4095, 4096, 4097, 65536, 65537})
    lengths.push_back(length);
  for (const std::uint64_t length : lengths) {
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t i = 0; i < 9; ++i) offsets.push_back(i * length + i);
    std::vector<std::uint64_t> digests(offsets.size());
    must(digest_gpu_pages(*memory, length, offsets, digests));
    for (std::size_t i = 0; i < offsets.size(); ++i)
      EXPECT_EQ(digests[i], digest_page(std::span(host).subspan(offsets[i], length)))
          << length << " bytes at " << offsets[i];
  }
}

TEST_F(GpuPattern, ReachingOutsideIsAnError) {
  const auto memory = must(allocate_gpu_memory(0, 1000));
  const auto filled = fill_gpu_pattern(*memory, 500, 501, 0);
  ASSERT_FALSE(filled);
  EXPECT_EQ(filled.error().code, ErrorCode::kOutOfRange);
  std::vector<std::uint64_t> offsets{0, 901};
  std::vector<std::uint64_t> digests(2);
  EXPECT_FALSE(digest_gpu_pages(*memory, 100, offsets, digests));
  offsets[1] = 900;
  EXPECT_TRUE(digest_gpu_pages(*memory, 100, offsets, digests));
  EXPECT_FALSE(digest_gpu_pages(*memory, 100, offsets, std::span(digests).first(1)));
}

}  // namespace
}  // namespace penstock

#include "actors/node/page_digests.hpp"

#include <cstring>
#include <optional>

#include "transport/gpu/gpu_pattern.hpp"
#include "transport/memory/pattern.hpp"

namespace penstock {
namespace {

/// As it travels, little-endian.
struct WirePage {
  std::uint64_t offset;
  std::uint64_t length;
  std::uint64_t digest;
};
static_assert(sizeof(WirePage) == 24);

/// Runs of equal length, since a kernel digests pages of one size.
Result<void> digest_on_gpu(const Region& region, std::span<const PageRange> ranges,
                           std::span<std::uint64_t> digests) {
  std::vector<std::uint64_t> offsets;
  for (std::size_t begin = 0, end = 0; begin < ranges.size(); begin = end) {
    offsets.clear();
    for (end = begin; end < ranges.size() && ranges[end].length == ranges[begin].length; ++end)
      offsets.push_back(ranges[end].offset);
    auto digested = digest_gpu_pages(*region.memory, ranges[begin].length, offsets,
                                     digests.subspan(begin, end - begin));
    if (!digested) return digested;
  }
  return {};
}

}  // namespace

Result<std::vector<std::uint64_t>> digest_ranges(const Region& region,
                                                 std::span<const PageRange> ranges) {
  for (const PageRange& range : ranges)
    if (range.offset > region.bytes || range.length > region.bytes - range.offset)
      return fail(ErrorCode::kOutOfRange, "{} bytes at offset {} do not lie in region '{}' of {}",
                  range.length, range.offset, region.name, region.bytes);
  std::vector<std::uint64_t> digests(ranges.size());
  if (region.on_gpu()) {
    if (auto digested = digest_on_gpu(region, ranges, digests); !digested)
      return tl::unexpected(digested.error());
    return digests;
  }
  const auto memory = region.memory->bytes();
  for (std::size_t i = 0; i < ranges.size(); ++i)
    digests[i] = digest_page(memory.subspan(ranges[i].offset, ranges[i].length));
  if (region.memory->lost()) return tl::unexpected(lost_error(region));
  return digests;
}

Result<Verified> compare_pages(const Region& region, const Verify& question) {
  const auto& bytes = question.pages.bytes;
  const std::size_t count = bytes.size() / sizeof(WirePage);
  std::vector<WirePage> pages(count);
  if (count > 0) std::memcpy(pages.data(), bytes.data(), count * sizeof(WirePage));
  std::vector<PageRange> ranges;
  for (const WirePage& page : pages) ranges.push_back({page.offset, page.length});
  const auto digests = digest_ranges(region, ranges);
  if (!digests) return tl::unexpected(digests.error());
  for (std::size_t i = 0; i < count; ++i)
    if ((*digests)[i] != pages[i].digest) return Verified{i + 1};
  return Verified{};
}

InlineBytes pages_of(std::span<const PageRange> ranges, std::span<const std::uint64_t> digests) {
  InlineBytes data;
  data.bytes.resize(ranges.size() * sizeof(WirePage));
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const WirePage page{ranges[i].offset, ranges[i].length, digests[i]};
    std::memcpy(data.bytes.data() + i * sizeof page, &page, sizeof page);
  }
  return data;
}

}  // namespace penstock

#include "client/workload/page_check.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::workload {
namespace {

// Small enough that one request ends soon, large enough that requests do not count.
constexpr std::uint64_t kBytesPerRequest = 256ULL << 20;
constexpr std::uint64_t kPagesPerRequest = 65536;

std::uint64_t pages_per_request(std::uint64_t page_bytes) {
  return std::clamp<std::uint64_t>(kBytesPerRequest / page_bytes, 1, kPagesPerRequest);
}

void append(std::vector<std::uint64_t>& all, const std::vector<std::uint64_t>& some,
            std::uint64_t expected) {
  if (some.size() != expected) {
    throw client::Error("INTERNAL", fmt::format("asked for {} digests, the service sent {}",
                                                expected, some.size()));
  }
  all.insert(all.end(), some.begin(), some.end());
}

}  // namespace

std::string DifferentPage::text() const {
  return fmt::format("destination page {} has digest {:016x}, source page {} has {:016x}",
                     destination_page, found, source_page, expected);
}

std::vector<std::uint64_t> digest_region(client::Client& client, const std::string& region,
                                         std::uint64_t page_bytes, std::uint64_t bytes) {
  std::vector<std::uint64_t> all;
  const auto pages = bytes / page_bytes;
  all.reserve(pages);
  while (all.size() < pages) {
    auto count = std::min(pages_per_request(page_bytes), pages - all.size());
    append(all, client.digest(region, page_bytes, all.size() * page_bytes, count * page_bytes),
           count);
  }
  return all;
}

std::vector<std::uint64_t> digest_pages(client::Client& client, const std::string& region,
                                        std::uint64_t page_bytes,
                                        std::span<const std::uint32_t> pages) {
  std::vector<std::uint64_t> all;
  all.reserve(pages.size());
  while (all.size() < pages.size()) {
    auto count = std::min<std::uint64_t>(pages_per_request(page_bytes), pages.size() - all.size());
    append(all, client.digest(region, page_bytes, pages.subspan(all.size(), count)), count);
  }
  return all;
}

std::vector<DifferentPage> compare_pages(std::span<const std::uint32_t> source_pages,
                                         std::span<const std::uint32_t> destination_pages,
                                         std::span<const std::uint64_t> source_digests,
                                         std::span<const std::uint64_t> found) {
  std::vector<DifferentPage> different;
  for (std::size_t i = 0; i < source_pages.size(); ++i) {
    auto expected = source_digests[source_pages[i]];
    if (found[i] == expected) continue;
    different.push_back({i, source_pages[i], destination_pages[i], expected, found[i]});
  }
  return different;
}

bool all_distinct(std::vector<std::uint64_t> digests) {
  std::sort(digests.begin(), digests.end());
  return std::adjacent_find(digests.begin(), digests.end()) == digests.end();
}

}  // namespace penstock::workload

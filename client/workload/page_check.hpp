// Proves that pages landed: digests of the source's pages against digests of the destination's,
// both computed by the services, so that nothing is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/penstock.hpp"

namespace penstock::workload {

/// A page of the destination that is not what it should be. Indexes count pages of the region.
struct DifferentPage {
  std::size_t index = 0;  // in the page lists
  std::uint32_t source_page = 0;
  std::uint32_t destination_page = 0;
  std::uint64_t expected = 0;  // the source's digest
  std::uint64_t found = 0;

  /// "destination page 7 has digest ..., source page 3 has ...".
  std::string text() const;
};

/// Of every page of the region's first `bytes`, in several requests where it is large. Throws
/// client::Error.
std::vector<std::uint64_t> digest_region(client::Client& client, const std::string& region,
                                         std::uint64_t page_bytes, std::uint64_t bytes);
/// Of these pages, in their order.
std::vector<std::uint64_t> digest_pages(client::Client& client, const std::string& region,
                                        std::uint64_t page_bytes,
                                        std::span<const std::uint32_t> pages);

/// Page source_pages[i] must be in destination_pages[i]. `source_digests` are those of the whole
/// source region, `found` those of the pages in destination_pages. The three lists have one length.
std::vector<DifferentPage> compare_pages(std::span<const std::uint32_t> source_pages,
                                         std::span<const std::uint32_t> destination_pages,
                                         std::span<const std::uint64_t> source_digests,
                                         std::span<const std::uint64_t> found);

/// Whether each digest occurs once: only then does a comparison see a page that landed in the place
/// of another.
bool all_distinct(std::vector<std::uint64_t> digests);

}  // namespace penstock::workload

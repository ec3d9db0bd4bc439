// Copies pages that are in no cache: out of a region into a slot, and out of a slot into a region.
//
// A page of a few KiB is over before the processor's own prefetcher has found its stride, and a
// plain store reads each line from memory before it overwrites it. Both are avoided here: the first
// lines of a page to come are asked for in advance, and scattered pages go past the cache.
#pragma once

#include <cstddef>
#include <span>

#include "transport/packing/slot_mover.hpp"

namespace penstock {

/// Copies `pages` from `region` to `slot`, where they stay in the cache: the card reads them next.
void gather_pages(std::span<const MovedPage> pages, const std::byte* region, std::byte* slot);

/// Copies `pages` from `slot` to `region`. On return every byte is visible to other processors.
void scatter_pages(std::span<const MovedPage> pages, const std::byte* slot, std::byte* region);

}  // namespace penstock

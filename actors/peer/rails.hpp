// Which of our cards talks to which of the peer's cards: max(ours, theirs) pairs while all work,
// and as few cards without a partner as can be while some do not.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace penstock {

using Rail = std::pair<std::size_t, std::size_t>;  // (our card, their card), by place

/// Whether these two are partners when every card works: (i mod ours, i mod theirs) for some i.
bool are_partners(std::size_t ours, std::size_t theirs, Rail rail);

/// Every pair of partners that `works`; then every card that is left over with a card of the other
/// side that it works with, preferably one that is left over too.
std::vector<Rail> pair_rails(std::size_t ours, std::size_t theirs,
                             const std::function<bool(Rail)>& works);

}  // namespace penstock

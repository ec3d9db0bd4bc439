#include "client/cpp/layout.hpp"

namespace penstock::client {
namespace {

std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

struct BytesOf {
  std::uint64_t operator()(const Ranges& layout) const {
    std::uint64_t sum = 0;
    for (const auto& range : layout.ranges) {
      if (__builtin_add_overflow(sum, range.length, &sum)) return UINT64_MAX;
    }
    return sum;
  }
  std::uint64_t operator()(const Pages& layout) const {
    auto pages = saturating_product(layout.source_pages.size(), layout.bases.size());
    return saturating_product(pages, layout.page_bytes);
  }
  std::uint64_t operator()(const Strided& layout) const {
    auto pages = saturating_product(layout.source_pages.size(), layout.bases.size());
    return saturating_product(pages, saturating_product(layout.row_bytes, layout.rows));
  }
};

}  // namespace

std::uint64_t bytes_of(const Layout& layout) { return std::visit(BytesOf{}, layout); }

}  // namespace penstock::client

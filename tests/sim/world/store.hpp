// The memory of one region, real bytes, and a model of what each page must hold: what it held when
// it was last written on purpose, or, while a transfer may write to it, either that or the
// transfer's bytes. Zones before and behind the region catch what goes past its ends.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::sim {

class Store {
 public:
  static constexpr std::size_t kPageBytes = 256;
  static constexpr std::size_t kGuardPages = 2;

  /// What a transfer writes to a part of one page.
  struct Claim {
    std::uint64_t pattern = 0;
    std::size_t at = 0;  // in the page
    std::size_t length = 0;
    std::size_t transfer = 0;
  };

  Store(std::string name, std::size_t pages)
      : name_(std::move(name)),
        bytes_((pages + 2 * kGuardPages) * kPageBytes, kGuard),
        pages_(pages) {
    std::fill(bytes_.begin() + kGuardPages * kPageBytes, bytes_.end() - kGuardPages * kPageBytes,
              std::byte{0});
    model_ = bytes_;
    for (std::size_t page = 0; page < pages; ++page) free_.push_back(page);
  }

  const std::string& name() const { return name_; }
  std::size_t pages() const { return pages_.size(); }
  std::span<std::byte> bytes() {
    return std::span(bytes_).subspan(kGuardPages * kPageBytes, pages_.size() * kPageBytes);
  }

  static std::byte pattern_byte(std::uint64_t pattern, std::size_t i) {
    return static_cast<std::byte>((pattern >> (i % 8 * 8)) ^ (i / 8 * 37));
  }

  // -- which pages are free ----------------------------------------------------------------------
  std::size_t free_pages() const { return free_.size(); }
  /// The longest unused, or the last given back.
  std::size_t take(bool newest) {
    const std::size_t page = newest ? free_.back() : free_.front();
    if (newest)
      free_.pop_back();
    else
      free_.pop_front();
    return page;
  }
  void reserve(std::size_t page) { std::erase(free_, page); }
  void give_back(std::size_t page) { free_.push_back(page); }

  /// The bytes at a place of a page are those of the claim, from some place on.
  bool resembles(std::size_t page, std::size_t at, const Claim& claim) const {
    const std::size_t length = std::min<std::size_t>(16, kPageBytes - at);
    for (std::size_t from = 0; from + length <= claim.length; ++from) {
      std::size_t same = 0;
      while (same < length && this->at(page)[at + same] == pattern_byte(claim.pattern, from + same))
        ++same;
      if (same == length) return true;
    }
    return false;
  }

  // -- what they hold ----------------------------------------------------------------------------
  /// The application writes.
  void write(std::size_t page, const Claim& claim) {
    for (std::size_t i = 0; i < claim.length; ++i)
      at(page)[claim.at + i] = pattern_byte(claim.pattern, i);
    std::memcpy(model(page), at(page), kPageBytes);
    pages_[page].since = claim.transfer;
    pages_[page].why = "is its source";
  }
  /// The application uses the page for something else.
  void overwrite(std::size_t page, std::byte value, std::size_t transfer, const char* why) {
    std::memset(at(page), static_cast<int>(value), kPageBytes);
    freeze(page, transfer, why);
  }
  /// From now on a transfer may write there.
  void open(std::size_t page, const Claim& claim) {
    pages_[page].claim = claim;
    pages_[page].since = claim.transfer;
    pages_[page].why = "writes there";
  }
  /// From now on nothing may: it stays as it is.
  void freeze(std::size_t page, std::size_t transfer, const char* why) {
    std::memcpy(model(page), at(page), kPageBytes);
    pages_[page] = {std::nullopt, transfer, why};
  }
  /// It holds what the claim said.
  bool holds(std::size_t page, const Claim& claim) const {
    for (std::size_t i = 0; i < claim.length; ++i)
      if (at(page)[claim.at + i] != pattern_byte(claim.pattern, i)) return false;
    return true;
  }

  struct Wrong {
    std::optional<std::size_t> page;
    std::size_t at = 0;  // the first wrong byte in the page
    std::string what;
  };
  /// What is not as the model says.
  std::optional<Wrong> check() const {
    const std::size_t guard = kGuardPages * kPageBytes;
    if (std::memcmp(bytes_.data(), model_.data(), guard) != 0)
      return Wrong{std::nullopt, 0, fmt::format("bytes before region {} changed", name_)};
    if (std::memcmp(bytes_.data() + bytes_.size() - guard, model_.data() + bytes_.size() - guard,
                    guard) != 0)
      return Wrong{std::nullopt, 0, fmt::format("bytes behind region {} changed", name_)};
    for (std::size_t page = 0; page < pages_.size(); ++page)
      if (const auto at = std::memcmp(this->at(page), model(page), kPageBytes) != 0
                              ? unexplained(page)
                              : std::nullopt)
        return Wrong{page, *at,
                     fmt::format("page {} of {} changed after {} ({})", page, name_,
                                 pages_[page].since, pages_[page].why)};
    return std::nullopt;
  }

 private:
  static constexpr std::byte kGuard{0xee};
  struct Page {
    std::optional<Claim> claim;
    std::size_t since = 0;  // which transfer
    const char* why = "nobody used it";
  };

  std::optional<std::size_t> unexplained(std::size_t page) const {
    const auto& claim = pages_[page].claim;
    for (std::size_t i = 0; i < kPageBytes; ++i) {
      if (at(page)[i] == model(page)[i]) continue;
      if (!claim || i < claim->at || i >= claim->at + claim->length ||
          at(page)[i] != pattern_byte(claim->pattern, i - claim->at))
        return i;
    }
    return std::nullopt;
  }
  std::byte* at(std::size_t page) { return bytes_.data() + (page + kGuardPages) * kPageBytes; }
  const std::byte* at(std::size_t page) const {
    return bytes_.data() + (page + kGuardPages) * kPageBytes;
  }
  std::byte* model(std::size_t page) { return model_.data() + (page + kGuardPages) * kPageBytes; }
  const std::byte* model(std::size_t page) const {
    return model_.data() + (page + kGuardPages) * kPageBytes;
  }

  std::string name_;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> model_;
  std::vector<Page> pages_;
  std::deque<std::size_t> free_;
};

}  // namespace penstock::sim

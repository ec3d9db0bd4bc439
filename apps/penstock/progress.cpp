#include "apps/penstock/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace penstock::app {
namespace {

constexpr std::size_t kBarWidth = 32;
constexpr auto kRedrawEvery = std::chrono::milliseconds(100);

}  // namespace

Progress::Progress(std::string label, std::uint64_t total)
    : label_(std::move(label)), total_(total), visible_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (visible_) std::fputs("\r\033[K", stderr);
}

void Progress::show(std::uint64_t done, const std::string& note) {
  if (!visible_ || Clock::now() < next_) return;
  next_ = Clock::now() + kRedrawEvery;
  double share =
      total_ == 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  auto filled = static_cast<std::size_t>(share * static_cast<double>(kBarWidth));
  auto line = fmt::format("\r\033[K{} [{}{}] {:3.0f} % {}", label_, std::string(filled, '#'),
                          std::string(kBarWidth - filled, '.'), share * 100, note);
  std::fputs(line.c_str(), stderr);
}

}  // namespace penstock::app

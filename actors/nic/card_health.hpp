// What one card's health is made of, as pure logic: the poller says whether its endpoints open, and
// each peer how it appears from there. It is out while its outbound endpoint cannot be opened, or
// while no peer that is otherwise alive gets an answer over it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "actors/peer/peer_links.hpp"
#include "actors/wire/message.hpp"

namespace penstock {

class CardHealth {
 public:
  enum class Change : unsigned char { kNone, kOut, kBack };

  /// The poller's word.
  Change endpoint(bool up, const std::string& why) {
    endpoint_up_ = up;
    return judge(why);
  }
  /// A peer's word.
  Change seen(Incarnation peer, CardView view, const std::string& why) {
    if (view == CardView::kUnknown)
      views_.erase(peer);
    else
      views_[peer] = view;
    return judge(why);
  }

  bool up() const { return up_; }
  std::uint64_t outages() const { return outages_; }
  /// Why it is out, or was last.
  const std::string& last_error() const { return last_error_; }

 private:
  Change judge(const std::string& why) {
    bool works = views_.empty();
    for (const auto& [peer, view] : views_) works |= view == CardView::kWorks;
    const bool up = endpoint_up_ && works;
    if (up == up_) return Change::kNone;
    up_ = up;
    if (up) return Change::kBack;
    ++outages_;
    last_error_ = why;
    return Change::kOut;
  }

  bool endpoint_up_ = true;
  std::unordered_map<Incarnation, CardView> views_;
  bool up_ = true;
  std::uint64_t outages_ = 0;
  std::string last_error_;
};

}  // namespace penstock

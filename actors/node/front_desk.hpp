// Where the gateway's thread may do what is the node actor's to do, while that one does not run: a
// small transfer is accepted there and then, without waking an actor to say yes.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>

#include "actors/gateway/gateway.hpp"

namespace penstock {

/// Whether it is quickly looked through: a transfer of few pieces that names nothing to be opened
/// or compared, and that no other node is to carry out.
inline bool is_quick(const TransferRequest& request) {
  constexpr std::size_t kMostPieces = 4096;
  std::size_t pieces = 0;
  for (const TransferSpec& spec : request.transfers) {
    if (spec.verify || !spec.start_after.empty() || !spec.record_event.empty() || !spec.on.empty())
      return false;
    if (const auto* pages = std::get_if<Pages>(&spec.layout))
      pieces += pages->source_pages.size() * pages->bases.size();
    else
      pieces += std::get<Ranges>(spec.layout).ranges.size();
    pieces += spec.targets.size();
  }
  return pieces <= kMostPieces;
}

struct FrontDesk {
  /// Waiting this long for the actor to come to an end costs less than what waking it would.
  static constexpr std::chrono::microseconds kPatience{10};

  std::mutex mutex;  // the node actor holds it while it runs
  /// Of quick transfers; set while there is a node actor that has its devices. False: it is for the
  /// actor.
  std::function<bool(const ClientId&, Request&)> accept{};

  /// Any thread; waits for nobody longer than kPatience. False, and `request` untouched: hand it to
  /// the actor.
  bool try_accept(const ClientId& client, Request& request) {
    const auto* transfers = std::get_if<TransferRequest>(&request.body);
    if (transfers == nullptr || !is_quick(*transfers)) return false;
    std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock) {
      const auto end = std::chrono::steady_clock::now() + kPatience;
      while (!lock.try_lock() && std::chrono::steady_clock::now() < end) {
      }
    }
    return lock && accept && accept(client, request);
  }
};

}  // namespace penstock

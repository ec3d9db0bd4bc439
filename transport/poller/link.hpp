// A link: one peer card as one of our cards reaches it. What is out on it, and what waits.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "transport/fabric/nic.hpp"
#include "transport/poller/backoff.hpp"
#include "transport/poller/command.hpp"

namespace penstock {

/// An inbound address of the peer. Kept until nothing is posted to it.
struct PeerAddress {
  PeerHandle handle = 0;
  std::uint32_t posted = 0;
  bool retired = false;
};

struct Link {
  LinkId id = 0;
  std::uint16_t nic = 0;
  bool closing = false;

  PeerHandle control = 0;
  PeerAddress* inbound = nullptr;  // the current one; null until it is known
  std::uint32_t generation = 0;    // of it
  std::vector<std::unique_ptr<PeerAddress>> addresses;

  // One-sided operations that are out.
  std::uint64_t posted_bytes = 0;
  std::uint32_t posted_operations = 0;
  std::uint32_t immediates_out = 0;
  /// The step in which the provider said EAGAIN while something was out: skipped until the next.
  std::uint64_t full_in_step = 0;
  Backoff data_backoff;
  /// A failure was reported a moment ago: the rest of the batch is not news.
  bool failure_told = false;

  // Whether it stands still (loop_health.cpp).
  std::uint32_t ended = 0;       // operations that completed, well or badly
  std::uint32_t ended_seen = 0;  // of them, at the last look
  bool busy = false;             // something was out at the last look
  bool still = false;            // LinkStill was told, and nothing has completed since
  Backoff::Time still_since{};   // the look that first found what is out now
  Backoff::Time still_told{};
  bool doomed = false;  // a CutOff came: unless something completes before the next look

  std::deque<std::vector<std::byte>> outbox;
  std::uint32_t sends_posted = 0;
  Backoff send_backoff;

  bool quiet() const { return posted_operations == 0 && sends_posted == 0; }
};

}  // namespace penstock

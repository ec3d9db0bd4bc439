// Which transfer of a device may post next, and how much. Quanta of bytes go out a few ahead per
// peer, so that the poller never starves, an urgent transfer never waits behind more than they
// hold, and a peer that stands still ties up nothing but its own quanta. Transfers to one peer
// share by weight (virtual time: bytes granted / weight). The parts of a stream have one share
// together, and the oldest of them goes first.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/wire/message.hpp"
#include "transport/poller/command.hpp"

namespace penstock {

class Scheduler {
 public:
  struct Options {
    std::uint64_t quantum_bytes = 8u << 20;
    /// Quanta granted and not posted per (peer, lane), before nothing more is granted.
    std::uint32_t ahead = 2;
  };

  explicit Scheduler(Options options) : options_(options) {}

  /// `stream`: of which the transfer is a part; 0: of none. The weight of a stream is that of its
  /// first part.
  void add(TransferId transfer, Incarnation peer, Lane lane, std::uint32_t weight,
           std::uint64_t bytes, TransferId stream = 0);
  void remove(TransferId transfer);
  /// The poller has half a quantum or less of the transfer left to post. That rest is not counted
  /// any more: it will not be told of again, and must not keep others from their turn.
  void quantum_done(TransferId transfer);
  /// Forgets what was granted and makes the transfer start over with `bytes` left (after a fence).
  void restart(TransferId transfer, std::uint64_t bytes);

  /// Every grant that may go out now, urgent ones first.
  std::vector<Grant> grants();

  std::size_t size() const { return transfers_.size(); }

 private:
  /// A transfer, or a part of the stream that is its flow.
  struct Entry {
    std::pair<Incarnation, Lane> queue;
    TransferId flow = 0;
    std::uint64_t left = 0;  // not granted yet
    std::uint64_t out = 0;   // granted and, as far as we know, not posted
  };
  /// What has one share: a transfer, or the parts of a stream.
  struct Flow {
    std::uint32_t weight = 1;
    double virtual_time = 0;
    std::set<TransferId> waiting;  // those with bytes left; ids grow: the oldest first
    std::size_t members = 0;
  };
  struct Queue {
    std::set<std::pair<double, TransferId>> waiting;  // flows with waiting ones, by virtual time
    std::unordered_map<TransferId, Flow> flows;
    std::uint64_t out = 0;    // of its members together
    double virtual_time = 0;  // of the flow served last: where newcomers start
  };
  static void wait(Queue& queue, TransferId id, Flow& flow, TransferId transfer);
  static void wait_no_more(Queue& queue, TransferId id, Flow& flow, TransferId transfer);
  void serve(Queue& queue, std::vector<Grant>& out);

  Options options_;
  std::unordered_map<TransferId, Entry> transfers_;
  std::map<std::pair<Incarnation, Lane>, Queue> queues_;
};

}  // namespace penstock

// What one gossip frame of a stranger may do to a node: it is decoded, heard, and time goes on.
// Says what went wrong; must never crash.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "actors/membership/swim.hpp"
#include "tests/actors/membership/sample_frames.hpp"

namespace penstock::test {

/// "" or the promise that was broken.
inline std::string exercise_gossip(std::span<const std::byte> message) {
  // A copy of exactly this size, so that a sanitizer sees any read past it.
  const std::vector<std::byte> bytes(message.begin(), message.end());
  const auto frame = decode_gossip(bytes);
  if (!frame && frame.error().message.empty()) return "refused without words";
  if (frame) {
    const auto again = decode_gossip(encode(*frame));
    if (!again) return "what was read is not readable when written: " + again.error().message;
    if (encode(*again) != encode(*frame)) return "read, written and read again is not the same";
  }
  std::string broken;
  Swim::Options options;
  options.most_members = 8;
  options.seeds = {"tcp://seed:7412"};
  Swim swim(sample_record("a", 10), options, {[&](const std::string&, const GossipFrame& sent) {
              if (encode(sent).size() > kMaxGossipBytes) broken = "a frame nobody would take";
            }});
  TimePoint now(std::chrono::hours(1));
  for (const char* known : {"b", "c"}) {
    GossipFrame hello;
    hello.sender = sample_rumor(known, known[0] == 'b' ? 20 : 30);
    hello.body = Records{{*store_record(encode(sample_record(known, known[0] == 'b' ? 20 : 30)))}};
    swim.receive(hello, now);
  }
  for (int i = 0; i < 3 && broken.empty(); ++i) {
    swim.receive(std::span<const std::byte>(bytes), now);
    for (int step = 0; step < 5; ++step) swim.tick(now += Milliseconds(70));
  }
  if (!frame && swim.counters().malformed_frames != 3) return "malformed frames are not counted";
  if (frame && swim.counters().malformed_frames != 0) return "counted as malformed";
  if (swim.members().size() > options.most_members) return "more members than may be remembered";
  return broken;
}

}  // namespace penstock::test

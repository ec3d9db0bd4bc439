// One frame of each kind, as a node "b" would send them to a node "a" that knows "b" and "c".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "actors/membership/gossip_frame.hpp"

namespace penstock::test {

inline MemberRecord sample_record(const std::string& node, Incarnation incarnation) {
  MemberRecord record;
  record.node = node;
  record.incarnation = incarnation;
  record.service_version = "0.1.0";
  record.provider = "tcp";
  record.request_endpoint = "tcp://" + node + ":7411";
  record.gossip_endpoint = "tcp://" + node + ":7412";
  record.cards = {{"host0", 0, "eth0", FabricAddress(16, std::byte{1})}};
  record.labels = {{"rack", "r7"}};
  return record;
}

inline Rumor sample_rumor(const std::string& node, Incarnation incarnation) {
  const MemberRecord record = sample_record(node, incarnation);
  Rumor rumor;
  rumor.who = make_identity(node, incarnation, record.gossip_endpoint,
                            (*store_record(encode(record)))->digest);
  return rumor;
}

inline std::vector<std::pair<std::string, GossipFrame>> sample_frames() {
  const Rumor a = sample_rumor("a", 10);
  const Rumor c = sample_rumor("c", 30);
  const RecordPtr record = *store_record(encode(sample_record("b", 20)));
  std::vector<std::pair<std::string, GossipFrame>> frames;
  const auto add = [&](std::string name, GossipBody body) {
    GossipFrame frame;
    frame.sender = sample_rumor("b", 20);
    frame.load = 3;
    frame.body = std::move(body);
    frames.emplace_back(std::move(name), std::move(frame));
  };
  add("gossip", Gossip{});
  add("ping", Ping{1, a.who});
  add("ack", Ack{1});
  add("ping_request", PingRequest{1, c.who});
  add("nack", Nack{1});
  add("compare", Compare{"tcp://a:7412", BucketDigests(kBuckets, 7)});
  add("table", Table{"tcp://a:7412", ~std::uint64_t{0}});
  add("fetch", Fetch{{{"a", 10}, {"c", 30}}});
  add("records", Records{{record}});
  for (auto& [name, frame] : frames) {
    frame.rumors = {c, a};
    frame.rumors[0].opinion = Opinion::kSuspect;
    frame.rumors[0].accuser = 5;
    frame.rumors[1].opinion = Opinion::kDead;
    frame.rumors[1].revision = 2;
    frame.rumors[1].ended_s = 9;
  }
  frames[0].second.sender.opinion = Opinion::kLeft;
  frames[0].second.sender.revision = kFinalRevision;
  frames[4].second.sender.draining = true;
  return frames;
}

}  // namespace penstock::test

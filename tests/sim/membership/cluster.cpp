#include "tests/sim/membership/cluster.hpp"

#include <algorithm>
#include <charconv>

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kEncodeOneIn = 16;

std::string name_of_node(std::size_t node) { return fmt::format("node-{:05}", node); }
/// As long as "tcp://10.11.12.13:7412".
std::string endpoint_of(std::size_t node) { return fmt::format("tcp://10.255.{:05}:7412", node); }
std::size_t node_at(const std::string& endpoint) {
  std::size_t node = 0;
  std::from_chars(endpoint.data() + 13, endpoint.data() + 18, node);
  return node;
}
std::size_t node_of(const std::string& name) {
  std::size_t node = 0;
  std::from_chars(name.data() + 5, name.data() + name.size(), node);
  return node;
}

}  // namespace

Cluster::Cluster(Options options)
    : options_(std::move(options)), random_(options_.seed), nodes_(options_.nodes) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].incarnation = 1'000'000 + i;
    if (slow(i)) nodes_[i].turns_at = now_ + between(200ms, 3s);
    make(i, {endpoint_of(random_() % nodes_.size())});
  }
  introduce_everybody();
  for (std::size_t i = 0; i < nodes_.size(); ++i) after(i);
}

MemberRecord Cluster::record_of(std::size_t node, Incarnation incarnation) {
  MemberRecord record;
  record.node = name_of_node(node);
  record.incarnation = incarnation;
  record.service_version = "0.1.0";
  record.provider = "tcp";
  record.gossip_endpoint = endpoint_of(node);
  record.request_endpoint = endpoint_of(node);
  record.cards = {{"host0", 0, "eth0", FabricAddress(16)}};
  return record;
}

void Cluster::make(std::size_t node, std::vector<std::string> seeds) {
  Swim::Options own = options_.swim;
  own.seeds = std::move(seeds);
  own.seed = random_();
  own.most_members = std::max(own.most_members, 2 * options_.nodes);
  Swim::Network network;
  network.send = [this](const std::string& endpoint, GossipFrame frame) {
    send(endpoint, std::move(frame));
  };
  nodes_[node].swim = std::make_unique<Swim>(record_of(node, nodes_[node].incarnation),
                                             std::move(own), std::move(network));
}

/// The cluster has been up for long: one table, one set of records, shared by all.
void Cluster::introduce_everybody() {
  GossipFrame table;
  GossipFrame records;
  Records all;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const MemberRecord record = record_of(i, nodes_[i].incarnation);
    const RecordPtr stored = *store_record(encode(record));
    Rumor rumor;
    rumor.who =
        make_identity(record.node, record.incarnation, record.gossip_endpoint, stored->digest);
    table.rumors.push_back(rumor);
    all.records.push_back(stored);
  }
  table.body = Table{};
  records.body = std::move(all);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    table.sender = records.sender = table.rumors[(i + 1) % nodes_.size()];
    nodes_[i].swim->receive(table, now_);
    nodes_[i].swim->receive(records, now_);
    nodes_[i].swim->take_changes();
  }
}

void Cluster::kill(std::size_t node) {
  nodes_[node].swim = nullptr;
  nodes_[node].tick_at = TimePoint::max();
}

void Cluster::start(std::size_t node, std::size_t seed_node) {
  nodes_[node].incarnation += options_.nodes;
  make(node, {endpoint_of(seed_node)});
  after(node);
}

void Cluster::run(Duration time) {
  const TimePoint end = now_ + time;
  while (!queue_.empty() && queue_.top().at <= end) {
    const Event event = queue_.top();
    queue_.pop();
    now_ = event.at;
    ++events_;
    handle(event);
  }
  now_ = end;
}

void Cluster::handle(const Event& event) {
  Node& node = nodes_[event.node];
  if (slow(event.node) && node.swim && postponed(event)) return;
  if (event.frame == kTick) {
    if (!node.swim || node.tick_at != event.at) return;  // another tick took its place
    node.tick_at = TimePoint::max();
    node.swim->tick(now_);
    return after(event.node);
  }
  GossipFrame frame = std::move(frames_[event.frame]);
  free_frames_.push_back(event.frame);
  if (!node.swim) return;
  node.swim->receive(frame, now_);
  after(event.node);
}

bool Cluster::postponed(const Event& event) {
  Node& node = nodes_[event.node];
  if (node.turns_at <= now_) {
    node.stands_still_until = now_ + between(500ms, 3s);
    node.turns_at = node.stands_still_until + between(200ms, 1s);
  }
  if (now_ >= node.stands_still_until) return false;
  if (event.frame == kTick && node.tick_at != event.at) return true;
  // What has arrived is heard before the clock is looked at, as GossipSocket does.
  const TimePoint later =
      event.frame == kTick ? node.stands_still_until + 1us : node.stands_still_until;
  if (event.frame == kTick) node.tick_at = later;
  push(later, event.node, event.frame);
  return true;
}

void Cluster::send(const std::string& endpoint, GossipFrame frame) {
  if (traffic_.frames++ % kEncodeOneIn == 0)
    traffic_.bytes += static_cast<double>(encode(frame).size() * kEncodeOneIn);
  if (options_.loss > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < options_.loss)
    return;
  std::uint32_t place = 0;
  if (free_frames_.empty()) {
    place = static_cast<std::uint32_t>(frames_.size());
    frames_.push_back(std::move(frame));
  } else {
    place = free_frames_.back();
    free_frames_.pop_back();
    frames_[place] = std::move(frame);
  }
  push(now_ + between(options_.latency_least, options_.latency_most),
       static_cast<std::uint32_t>(node_at(endpoint)), place);
}

/// Tells what changed, and sees to the next tick.
void Cluster::after(std::size_t index) {
  Node& node = nodes_[index];
  for (const MemberChange& change : node.swim->take_changes())
    if (changed) changed(index, node_of(change.record.node), change);
  const TimePoint next = std::max(now_, node.swim->next_tick());
  if (next >= node.tick_at || next == TimePoint::max()) return;
  node.tick_at = next;
  push(next, static_cast<std::uint32_t>(index), kTick);
}

void Cluster::push(TimePoint at, std::uint32_t node, std::uint32_t frame) {
  queue_.push({at, sequence_++, node, frame});
}

Cluster::Duration Cluster::between(Duration least, Duration most) {
  return least + Duration(static_cast<Duration::rep>(
                     random_() % static_cast<std::uint64_t>((most - least).count() + 1)));
}

}  // namespace penstock

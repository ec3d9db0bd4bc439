#include "actors/device/scheduler.hpp"

#include <algorithm>

namespace penstock {

/// The transfer has bytes left. A flow that had none until now is a newcomer: it starts where the
/// others are and has no claim to the time before.
void Scheduler::wait(Queue& queue, TransferId id, Flow& flow, TransferId transfer) {
  if (flow.waiting.empty()) {
    flow.virtual_time = std::max(flow.virtual_time, queue.virtual_time);
    queue.waiting.emplace(flow.virtual_time, id);
  }
  flow.waiting.insert(transfer);
}

void Scheduler::wait_no_more(Queue& queue, TransferId id, Flow& flow, TransferId transfer) {
  if (flow.waiting.erase(transfer) > 0 && flow.waiting.empty())
    queue.waiting.erase({flow.virtual_time, id});
}

void Scheduler::add(TransferId transfer, Incarnation peer, Lane lane, std::uint32_t weight,
                    std::uint64_t bytes, TransferId stream) {
  const TransferId id = stream != 0 ? stream : transfer;
  if (!transfers_.emplace(transfer, Entry{{peer, lane}, id, bytes, 0}).second) return;
  Queue& queue = queues_[{peer, lane}];
  Flow& flow = queue.flows[id];
  if (flow.members++ == 0) flow.weight = std::max(weight, 1u);
  if (bytes > 0) wait(queue, id, flow, transfer);
}

void Scheduler::remove(TransferId transfer) {
  auto found = transfers_.find(transfer);
  if (found == transfers_.end()) return;
  const Entry& entry = found->second;
  auto queue = queues_.find(entry.queue);
  queue->second.out -= entry.out;
  auto flow = queue->second.flows.find(entry.flow);
  wait_no_more(queue->second, entry.flow, flow->second, transfer);
  if (--flow->second.members == 0) queue->second.flows.erase(flow);
  if (queue->second.flows.empty()) queues_.erase(queue);
  transfers_.erase(found);
}

void Scheduler::quantum_done(TransferId transfer) {
  auto found = transfers_.find(transfer);
  if (found == transfers_.end()) return;
  queues_.at(found->second.queue).out -= found->second.out;
  found->second.out = 0;
}

void Scheduler::restart(TransferId transfer, std::uint64_t bytes) {
  auto found = transfers_.find(transfer);
  if (found == transfers_.end()) return;
  Entry& entry = found->second;
  Queue& queue = queues_.at(entry.queue);
  Flow& flow = queue.flows.at(entry.flow);
  queue.out -= entry.out;
  entry.out = 0;
  entry.left = bytes;
  wait_no_more(queue, entry.flow, flow, transfer);
  if (bytes > 0) wait(queue, entry.flow, flow, transfer);
}

std::vector<Grant> Scheduler::grants() {
  std::vector<Grant> out;
  for (Lane lane : {Lane::kUrgent, Lane::kBulk})
    for (auto& [key, queue] : queues_)
      if (key.second == lane) serve(queue, out);
  return out;
}

void Scheduler::serve(Queue& queue, std::vector<Grant>& out) {
  while (queue.out < options_.ahead * options_.quantum_bytes && !queue.waiting.empty()) {
    const TransferId id = queue.waiting.begin()->second;
    queue.waiting.erase(queue.waiting.begin());
    Flow& flow = queue.flows.at(id);
    const TransferId transfer = *flow.waiting.begin();
    Entry& entry = transfers_.at(transfer);
    const std::uint64_t bytes = std::min(entry.left, options_.quantum_bytes);
    entry.left -= bytes;
    flow.virtual_time += static_cast<double>(bytes) / flow.weight;
    queue.virtual_time = std::max(queue.virtual_time, flow.virtual_time);
    if (entry.left == 0) flow.waiting.erase(flow.waiting.begin());
    if (!flow.waiting.empty()) queue.waiting.emplace(flow.virtual_time, id);
    entry.out += bytes;
    queue.out += bytes;
    out.push_back(Grant{transfer, bytes});
  }
}

}  // namespace penstock

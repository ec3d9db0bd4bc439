#include "actors/device/scheduler.hpp"

#include <algorithm>

namespace penstock {

void Scheduler::add(TransferId transfer, Incarnation peer, Lane lane, std::uint32_t weight,
                    std::uint64_t bytes) {
  Queue& queue = queues_[{peer, lane}];
  // A newcomer starts where the others are: it has no claim to the time before it came.
  const Entry entry{{peer, lane}, std::max(weight, 1u), bytes, 0, queue.virtual_time};
  if (!transfers_.emplace(transfer, entry).second) return;
  ++queue.members;
  if (bytes > 0) queue.waiting.emplace(entry.virtual_time, transfer);
}

void Scheduler::remove(TransferId transfer) {
  auto found = transfers_.find(transfer);
  if (found == transfers_.end()) return;
  const Entry& entry = found->second;
  auto queue = queues_.find(entry.queue);
  queue->second.out -= entry.out;
  queue->second.waiting.erase({entry.virtual_time, transfer});
  if (--queue->second.members == 0) queues_.erase(queue);
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
  queue.out -= entry.out;
  entry.out = 0;
  entry.left = bytes;
  queue.waiting.erase({entry.virtual_time, transfer});
  if (bytes == 0) return;
  entry.virtual_time = std::max(entry.virtual_time, queue.virtual_time);  // as a newcomer
  queue.waiting.emplace(entry.virtual_time, transfer);
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
    const TransferId transfer = queue.waiting.begin()->second;
    queue.waiting.erase(queue.waiting.begin());
    Entry& entry = transfers_.at(transfer);
    const std::uint64_t bytes = std::min(entry.left, options_.quantum_bytes);
    entry.left -= bytes;
    entry.virtual_time += static_cast<double>(bytes) / entry.weight;
    queue.virtual_time = std::max(queue.virtual_time, entry.virtual_time);
    if (entry.left > 0) queue.waiting.emplace(entry.virtual_time, transfer);
    entry.out += bytes;
    queue.out += bytes;
    out.push_back(Grant{transfer, bytes});
  }
}

}  // namespace penstock

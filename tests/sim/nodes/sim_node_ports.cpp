// What the simulated node's device does to the rest of it, as device_actor does.
#include <algorithm>
#include <chrono>
#include <utility>

#include "tests/sim/nodes/sim_node.hpp"

namespace penstock::sim {

Outbound::Port SimNode::outbound_port() {
  return {
      .command = [this](PollerCommand command) { commands_.push_back(std::move(command)); },
      .ask = [this](Incarnation peer, std::uint64_t token, Question question,
                    TimePoint deadline) { ask(peer, token, std::move(question), deadline); },
      .copy =
          [this](CopyTask task) {
            const auto lasts = std::chrono::microseconds(wire_.network.below(20000));
            wire_.network.after(lasts, [this, task = std::move(task)] {
              if (crashed_) return;
              Cursor cursor(*task.plan);
              Chunk chunk;
              std::uint64_t bytes = 0;
              std::uint64_t chunks = 0;
              for (; !task.stop->load() && cursor.next(chunk); ++chunks) {
                const auto from = (*task.source)->memory->bytes().subspan(chunk.source_offset);
                const auto to =
                    (*task.destination)->memory->bytes().subspan(chunk.destination_offset);
                std::copy_n(from.begin(), chunk.length, to.begin());
                bytes += chunk.length;
              }
              to_device([this, id = task.transfer, bytes, chunks] {
                outbound_->copied(id, bytes, chunks, now());
              });
            });
          },
      .notify = [this](Notification notification) { observer_.notified(std::move(notification)); },
      .ended = [this](TransferResult result) { observer_.ended(std::move(result)); },
  };
}

Inbound::Port SimNode::inbound_port() {
  return {
      .command = [this](PollerCommand command) { commands_.push_back(std::move(command)); },
      .answer =
          [this](Incarnation peer, std::uint64_t sequence, Answer answer) {
            if (!device_peers_.contains(peer)) return;
            to_peer(device_peers_.at(peer), [this, sequence, answer = std::move(answer)](Peer& p) {
              p.answer(sequence, answer, now());
            });
          },
      .revoke =
          [this](Incarnation peer, Revoke revoke) {
            ask(peer, 0, std::move(revoke), now() + options_.inbound.grace_max);
          },
      .notify = [this](Notification notification) { observer_.notified(std::move(notification)); },
      .rekey =
          [this](const std::shared_ptr<Region>& region, std::uint16_t nic) {
            const auto lasts = std::chrono::microseconds(wire_.network.below(5000));
            wire_.network.after(lasts, [this, region, nic] {
              region->void_key(nic);
              region->set_key(nic,
                              std::move(*nics_[nic]->register_memory(region->memory->bytes())));
              to_device([this, region, nic] { inbound_->rekeyed(region->name, nic, now()); });
            });
          },
      .waits_for = [this](TransferId shadow) { return options_.shadows->contains(shadow); },
      .broken = [this](Incarnation peer, TransferId transfer,
                       const Error&) { observer_.broken(peer, transfer); },
  };
}

}  // namespace penstock::sim

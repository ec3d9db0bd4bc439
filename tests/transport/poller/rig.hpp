// A poller loop on simulated cards, with simulated peers, as the poller's tests use it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tests/sim/sim_nic.hpp"
#include "tests/transport/memory/heap_memory.hpp"
#include "transport/poller/poller.hpp"

namespace penstock::test {

/// Pages of a region, shuffled by `seed` on both sides (0: in order), each page once.
inline std::shared_ptr<const Plan> shuffled_plan(std::uint32_t pages, std::uint64_t page_bytes,
                                                 std::uint64_t seed = 0) {
  std::vector<std::uint32_t> source(pages);
  for (std::uint32_t i = 0; i < pages; ++i) source[i] = i;
  auto destination = source;
  if (seed != 0) {
    std::mt19937_64 random(seed);
    std::shuffle(source.begin(), source.end(), random);
    std::shuffle(destination.begin(), destination.end(), random);
  }
  Pages layout;
  layout.row_bytes = page_bytes;
  layout.source_stride = page_bytes;
  layout.destination_stride = page_bytes;
  layout.source_pages = BlobList<std::uint32_t>::of(source);
  layout.destination_pages = BlobList<std::uint32_t>::of(destination);
  PlanLimits limits;
  limits.max_chunk_bytes = std::max<std::uint64_t>(page_bytes, 1);
  limits.merge = false;
  return Plan::make(layout, limits).value();
}

/// `cards` local cards; peers of one card each, linked to every local card.
class Rig {
 public:
  static constexpr std::uint64_t kPageBytes = 256;
  static constexpr std::uint32_t kPages = 512;

  explicit Rig(std::uint64_t seed, std::size_t cards = 1, sim::SimNicOptions card_options = {},
               PollerOptions options = {})
      : network(seed) {
    local_memory = std::make_shared<HeapMemory>(kPages * kPageBytes);
    auto region = std::make_shared<RegisteredMemory>();
    region->memory = local_memory;
    std::vector<std::unique_ptr<Nic>> nics;
    for (std::size_t i = 0; i < cards; ++i) {
      auto card = std::make_unique<sim::SimNic>(network, card_options);
      this->cards.push_back(card.get());
      region->registrations.push_back(card->register_memory(local_memory->bytes()).value());
      nics.push_back(std::move(card));
    }
    local = region;
    std::mt19937_64 random(seed);
    for (auto& byte : local_memory->bytes()) byte = static_cast<std::byte>(random());
    loop = std::make_unique<PollerLoop>(std::move(nics), options, [this] { return network.now(); });
  }

  struct Peer {
    std::unique_ptr<sim::SimNic> card;
    std::vector<std::byte> memory;
    std::unique_ptr<MemoryRegistration> registration;
    std::vector<LinkId> links;  // by local card
    std::vector<RemotePath> paths;
  };

  /// Opens a link from every local card to a new peer.
  Peer& add_peer(sim::SimNicOptions options = {}) {
    auto peer = std::make_unique<Peer>();
    peer->card = std::make_unique<sim::SimNic>(network, options);
    peer->memory.resize(kPages * kPageBytes);
    peer->registration = peer->card->register_memory(peer->memory).value();
    for (std::size_t i = 0; i < cards.size(); ++i) {
      const LinkId link = next_link++;
      loop->execute(OpenLink{link, static_cast<std::uint16_t>(i), peer->card->control_address(),
                             peer->card->inbound_address()});
      peer->links.push_back(link);
      peer->paths.push_back({link, 0, peer->registration->key()});
    }
    peers.push_back(std::move(peer));
    return *peers.back();
  }

  StartTransfer start(TransferId id, const Peer& peer, std::shared_ptr<const Plan> plan) const {
    StartTransfer command;
    command.transfer = id;
    command.plan = std::move(plan);
    command.local = local;
    command.paths = peer.paths;
    return command;
  }

  void step() {
    loop->step();
    for (auto& event : loop->take_events()) events.push_back(std::move(event));
  }
  /// Steps and lets time pass until nothing is out and nothing can be, at most `rounds`.
  void run(int rounds = 20'000) {
    for (int round = 0; round < rounds; ++round) {
      step();
      if (loop->idle() && !loop->next_retry()) return;
      if (loop->idle()) {
        network.advance(*loop->next_retry() - network.now());
      } else {
        network.advance_to_next();
      }
    }
  }
  /// Steps for a while of virtual time.
  void run_for(std::chrono::nanoseconds time) {
    const auto end = network.now() + time;
    while (network.now() < end) {
      step();
      network.advance(std::chrono::microseconds(1));
    }
  }

  template <class Event>
  std::vector<Event> take() {
    std::vector<Event> taken;
    std::vector<PollerEvent> kept;
    for (auto& event : events) {
      if (auto* match = std::get_if<Event>(&event)) {
        taken.push_back(std::move(*match));
      } else {
        kept.push_back(std::move(event));
      }
    }
    events = std::move(kept);
    return taken;
  }
  template <class Event>
  std::size_t count() const {
    return static_cast<std::size_t>(std::count_if(events.begin(), events.end(), [](const auto& e) {
      return std::holds_alternative<Event>(e);
    }));
  }

  /// Every chunk of the plan lies where it should at the peer.
  bool arrived(const Plan& plan, const Peer& peer) const {
    Cursor cursor(plan);
    Chunk chunk;
    while (cursor.next(chunk))
      if (std::memcmp(local_memory->bytes().data() + chunk.source_offset,
                      peer.memory.data() + chunk.destination_offset, chunk.length) != 0)
        return false;
    return true;
  }

  sim::SimNetwork network;
  std::vector<sim::SimNic*> cards;  // owned by the loop
  std::shared_ptr<HeapMemory> local_memory;
  std::shared_ptr<RegisteredMemory> local;
  std::unique_ptr<PollerLoop> loop;
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<PollerEvent> events;
  LinkId next_link = 1;
};

}  // namespace penstock::test

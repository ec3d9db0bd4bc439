// Two polling loops on simulated cards, with staging memory between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/sim/late_mover.hpp"
#include "tests/sim/sim_nic.hpp"
#include "tests/transport/poller/rig.hpp"

namespace penstock::test {

using sim::SimNetwork;
using sim::SimNic;

inline constexpr std::uint64_t kSlotBytes = 4096;
inline constexpr TransferId kTransfer = 77;
inline constexpr int kGpu = 3;

/// Memory that no card reaches and no processor may touch (but the simulation's does).
class GpuHeapMemory final : public RegionMemory {
 public:
  explicit GpuHeapMemory(std::size_t size) : below_(size) {}
  MemoryKind kind() const override { return MemoryKind::kCuda; }
  int gpu() const override { return kGpu; }
  std::span<std::byte> bytes() const override { return below_.bytes(); }
  const std::string& shared_name() const override { return below_.shared_name(); }

 private:
  HeapMemory below_;
};

/// A device: a loop, its cards, a region and staging memory, both registered with every card.
struct Device {
  Device(SimNetwork& network, std::size_t card_count, std::uint64_t region_bytes,
         std::uint64_t slots, bool on_gpu = false)
      : region(memory(region_bytes, on_gpu)), staging(memory(slots * kSlotBytes)) {
    std::vector<std::unique_ptr<Nic>> nics;
    for (std::size_t i = 0; i < card_count; ++i) {
      auto card = std::make_unique<SimNic>(network, sim::SimNicOptions{});
      cards.push_back(card.get());
      for (const auto& each : {region, staging})
        each->registrations.push_back(each->memory->gpu() < 0
                                          ? card->register_memory(each->memory->bytes()).value()
                                          : nullptr);
      nics.push_back(std::move(card));
    }
    loop = std::make_unique<PollerLoop>(std::move(nics), PollerOptions{},
                                        [&network] { return network.now(); });
    if (!on_gpu) return;
    auto made = std::make_shared<sim::LateMover>(network);
    mover = made.get();
    loop->execute(UseMover{kGpu, std::move(made)});
  }
  static std::shared_ptr<RegisteredMemory> memory(std::uint64_t bytes, bool on_gpu = false) {
    auto made = std::make_shared<RegisteredMemory>();
    if (on_gpu)
      made->memory = std::make_shared<GpuHeapMemory>(bytes);
    else
      made->memory = std::make_shared<HeapMemory>(bytes);
    return made;
  }
  std::span<std::byte> bytes() const { return region->memory->bytes(); }
  void step() {
    loop->step();
    for (auto& event : loop->take_events()) events.push_back(std::move(event));
  }
  template <class Event>
  const Event* last() const {
    for (auto it = events.rbegin(); it != events.rend(); ++it)
      if (const auto* event = std::get_if<Event>(&*it)) return event;
    return nullptr;
  }

  std::shared_ptr<RegisteredMemory> region;
  std::shared_ptr<RegisteredMemory> staging;
  std::vector<SimNic*> cards;
  sim::LateMover* mover = nullptr;
  std::unique_ptr<PollerLoop> loop;
  std::vector<PollerEvent> events;
};

class PackingRig : public testing::Test {
 protected:
  void open(std::size_t cards, std::uint64_t send_slots, std::uint64_t lent_slots,
            std::uint64_t region_bytes = 256 * 1024) {
    sender = std::make_unique<Device>(network, cards, region_bytes, std::max(send_slots, 1ul),
                                      sender_on_gpu);
    receiver = std::make_unique<Device>(network, cards, region_bytes, lent_slots, receiver_on_gpu);
    for (std::size_t i = 0; i < cards; ++i) {
      const auto nic = static_cast<std::uint16_t>(i);
      sender->loop->execute(OpenLink{i + 1, nic, receiver->cards[i]->control_address(),
                                     receiver->cards[i]->inbound_address(), 1});
      receiver->loop->execute(OpenLink{100 + i, nic, sender->cards[i]->control_address(), {}, 0});
      const auto& direct = receiver->region->registrations[i];
      paths.push_back(
          {i + 1, 0, direct ? direct->key() : 0, 1, 0, receiver->staging->registrations[i]->key()});
      credit_links.push_back(100 + i);
    }
    if (send_slots > 0) sender->loop->execute(UseStaging{sender->staging, kSlotBytes, send_slots});
    for (std::uint32_t i = 0; i < lent_slots; ++i) slots.push_back({1000 + i, i * kSlotBytes});
    receiver->loop->execute(ArmPacked{kTransfer, slots, kSlotBytes, receiver->staging->memory,
                                      receiver->region->memory, credit_links});
    std::mt19937_64 random(9);
    for (auto& byte : sender->bytes()) byte = static_cast<std::byte>(random());
  }
  void start(std::shared_ptr<const Plan> wanted, std::uint64_t below) {
    plan = std::move(wanted);
    StartTransfer command;
    command.transfer = kTransfer;
    command.plan = plan;
    command.local = sender->region;
    command.paths = paths;
    command.packing = Packing{below, kSlotBytes, slots, sender_on_gpu || receiver_on_gpu};
    sender->loop->execute(std::move(command));
    sender->loop->execute(Grant{kTransfer, plan->bytes()});
  }
  void run(int rounds = 2000, bool receiver_too = true) {
    for (int round = 0; round < rounds; ++round) {
      sender->step();
      if (receiver_too) receiver->step();
      network.advance(std::chrono::microseconds(20));
    }
  }
  const TransferIdle* idle() const { return sender->last<TransferIdle>(); }
  /// Every byte of the plan is where it belongs.
  bool arrived() const {
    Cursor cursor(*plan);
    Chunk chunk;
    while (cursor.next(chunk))
      if (!std::ranges::equal(sender->bytes().subspan(chunk.source_offset, chunk.length),
                              receiver->bytes().subspan(chunk.destination_offset, chunk.length)))
        return false;
    return true;
  }
  std::uint64_t posts() const {
    std::uint64_t all = 0;
    for (const SimNic* card : sender->cards) all += card->posts();
    return all;
  }

  bool sender_on_gpu = false;
  bool receiver_on_gpu = false;
  SimNetwork network{1};
  std::unique_ptr<Device> sender;
  std::unique_ptr<Device> receiver;
  std::vector<RemotePath> paths;
  std::vector<LinkId> credit_links;
  std::vector<StagingSlot> slots;
  std::shared_ptr<const Plan> plan;
};

}  // namespace penstock::test

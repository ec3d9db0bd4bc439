// Moves pages as a GPU would: later. The bytes are read and written in two halves, at moments of
// the virtual clock that nobody knows beforehand, so that whoever does not wait for the end is
// caught.
#pragma once

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/sim/sim_network.hpp"
#include "transport/packing/slot_mover.hpp"

namespace penstock::sim {

struct LateMoverOptions {
  std::chrono::nanoseconds longest{std::chrono::milliseconds(2)};
  std::size_t depth = 4;      // moves under way; then kBusy
  double failure_chance = 0;  // per move
};

class LateMover final : public SlotMover {
 public:
  explicit LateMover(SimNetwork& network, LateMoverOptions options = {})
      : network_(network), options_(options) {}
  /// Ends what is under way.
  ~LateMover() override {
    for (auto& [ticket, move] : moves_) {
      if (move->halves == 0) copy(*move, 0);
      if (move->halves == 1) copy(*move, 1);
    }
  }

  Result<Ticket> start(std::span<const MovedPage> pages, std::span<std::byte> region,
                       std::span<std::byte> slot, MoveDirection direction) override {
    if (moves_.size() >= options_.depth) return fail(ErrorCode::kBusy, "all lanes are taken");
    if (fail_starts_ > 0 && fail_starts_-- > 0) return fail(ErrorCode::kProvider, "no kernel");
    const Ticket ticket = next_++;
    auto move = std::make_shared<Move>();
    move->pages.assign(pages.begin(), pages.end());
    move->region = region;
    move->slot = slot;
    move->direction = direction;
    move->fails = network_.chance(options_.failure_chance);
    moves_.emplace(ticket, move);
    ++started_;
    const auto most = static_cast<std::uint64_t>(options_.longest.count());
    const auto half = std::chrono::nanoseconds(network_.below(most / 2 + 1));
    const auto rest = std::chrono::nanoseconds(network_.below(most / 2 + 1));
    for (const auto& [after, which] : {std::pair{half, 0}, std::pair{half + rest, 1}})
      network_.after(after, [weak = std::weak_ptr(move), which = which] {
        if (const auto strong = weak.lock()) copy(*strong, which);
      });
    return ticket;
  }

  Result<bool> poll(Ticket ticket) override {
    const auto found = moves_.find(ticket);
    if (found == moves_.end()) return fail(ErrorCode::kInternal, "no such move");
    if (found->second->halves < 2) return false;
    const bool fails = found->second->fails;
    moves_.erase(found);
    if (fails) return fail(ErrorCode::kProvider, "the kernel failed");
    return true;
  }

  void fail_next(int starts) { fail_starts_ = starts; }
  /// The machine goes out: nothing of it moves any more.
  void die() { moves_.clear(); }
  std::size_t running() const { return moves_.size(); }
  std::size_t started() const { return started_; }

 private:
  struct Move {
    std::vector<MovedPage> pages;
    std::span<std::byte> region;
    std::span<std::byte> slot;
    MoveDirection direction = MoveDirection::kGather;
    bool fails = false;
    int halves = 0;
  };

  static void copy(Move& move, int which) {
    if (move.halves != which) return;
    ++move.halves;
    if (move.fails && which == 1) return;
    for (const MovedPage& page : move.pages) {
      const std::uint64_t middle = page.bytes / 2;
      const std::uint64_t at = which == 0 ? 0 : middle;
      const std::uint64_t bytes = which == 0 ? middle : page.bytes - middle;
      std::byte* in_region = move.region.data() + page.region_offset + at;
      std::byte* in_slot = move.slot.data() + page.slot_offset + at;
      if (move.direction == MoveDirection::kGather)
        std::memcpy(in_slot, in_region, bytes);
      else
        std::memcpy(in_region, in_slot, bytes);
    }
  }

  SimNetwork& network_;
  LateMoverOptions options_;
  std::map<Ticket, std::shared_ptr<Move>> moves_;
  Ticket next_ = 1;
  std::size_t started_ = 0;
  int fail_starts_ = 0;
};

}  // namespace penstock::sim

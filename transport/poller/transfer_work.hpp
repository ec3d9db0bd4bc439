// What a poller knows of one transfer: which chunks are still to post, what of it is out, what
// completed. Posts nothing itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/packing/bundle.hpp"
#include "transport/packing/send_slots.hpp"
#include "transport/poller/chunk_run.hpp"
#include "transport/poller/command.hpp"
#include "transport/poller/event.hpp"
#include "transport/poller/link.hpp"

namespace penstock {

class TransferWork {
 public:
  enum class State : unsigned char {
    kRunning,
    kStopping,  // posts nothing more; something of it is still out
    kIdle,      // nothing is out: complete, stopped or failed
  };

  /// A path with what the write path needs of it at hand.
  struct Path {
    Link* link = nullptr;
    std::uint64_t remote_base = 0;
    std::uint64_t remote_key = 0;
    std::uint64_t staging_base = 0;
    std::uint64_t staging_key = 0;  // 0: nothing packed goes this way
  };

  /// `send_slots` and `mover` must outlive it.
  /// `pieces`: of our memory, in one operation. `mover`: of the local memory; null: the processor
  /// copies its pages.
  TransferWork(StartTransfer start, std::size_t nics, SendSlots& send_slots, std::size_t pieces = 1,
               SlotMover* mover = nullptr);

  TransferId id() const { return start_.transfer; }
  Direction direction() const { return start_.direction; }
  Lane lane() const { return start_.lane; }
  const RegisteredMemory& local() const { return *start_.local; }
  std::byte* local_base() const { return local_base_; }
  void* descriptor(std::size_t nic) const { return descriptors_[nic]; }
  std::uint64_t local_offset(const Chunk& chunk) const {
    return direction() == Direction::kWrite ? chunk.source_offset : chunk.destination_offset;
  }
  std::uint64_t remote_offset(const Chunk& chunk) const {
    return direction() == Direction::kWrite ? chunk.destination_offset : chunk.source_offset;
  }
  const std::optional<std::uint32_t>& immediate() const { return start_.immediate; }
  const Plan& plan() const { return *start_.plan; }

  // -- paths -------------------------------------------------------------------------------------
  std::vector<Path>& paths(std::size_t nic) { return paths_[nic]; }
  /// Which of paths(nic) is looked at first; moves on with every post.
  std::uint32_t& next_path(std::size_t nic) { return next_path_[nic]; }
  bool has_paths() const;
  bool uses(const Link* link) const;
  /// Drops every path over `link`. What was gathered and has no way left is due after a resume.
  void drop_paths(const Link* link);
  void drop_paths_of_nic(std::size_t nic);
  void clear_paths();

  // -- chunks ------------------------------------------------------------------------------------
  /// What to post next, null when every chunk is out or completed.
  const ChunkRun* peek();
  /// What peek() showed is posted.
  void posted_next();
  /// An operation of it ended. True: it was the last one out.
  bool completed(const ChunkRun& run, std::size_t nic);
  /// The chunk is dirty: not to be posted again before a resume.
  bool failed(const ChunkRun& run, std::size_t nic, const Error& error);
  /// Where it failed, for the fence.
  void note_dirty(LinkId link);
  /// The first failure since the start or the last resume is what is told.
  void note_error(const Error& error);
  /// Nothing is left to post but what is dirty.
  bool only_dirty_left() { return !dirty_.empty() && ready_ == nullptr && peek() == nullptr; }
  std::uint64_t operations_out() const { return operations_out_; }
  /// One of its operations went out on this card, or came back. True: none is out on it any more.
  void out_on(std::size_t nic) { ++out_on_[nic]; }
  bool back_from(std::size_t nic) { return --out_on_[nic] == 0; }
  void note_last(std::size_t nic, std::chrono::steady_clock::time_point when) {
    shares_[nic].last = when;
  }
  bool complete() const { return completed_chunks_ == plan().chunks(); }
  std::uint64_t completed_bytes() const { return completed_bytes_; }

  // -- packed ------------------------------------------------------------------------------------
  // A bundle counts as one operation that is out from the moment it is begun until its write has
  // completed and its credit has come, in either order.
  /// Nothing of it may go directly.
  bool packed_only() const { return packed_only_; }
  /// Whether the next chunk is to be packed.
  bool packs_next();
  /// Nothing can be posted before a credit comes, a slot of ours is given back, or a gathering
  /// ends.
  bool waits();
  /// A bundle that was gathered and is not posted yet.
  Bundle* ready_bundle() const { return ready_; }
  /// Copies as many of the next chunks as fit, and as were granted, into a slot of ours. Needs a
  /// free slot on both sides and a next chunk that packs. Null: that chunk is too long for a slot.
  Bundle* gather();
  /// Every slot that was lent may hold something that failed, and nothing goes without one.
  bool out_of_slots() const { return packed_only_ && bundles_ && bundles_->spent(); }

  // Where the processor cannot copy the pages, bundles are gathered ahead of posting.
  bool gathers_ahead() const { return mover_ != nullptr && bundles_.has_value(); }
  /// Looks which bundles are gathered by now; returns how many ended. After a failure the transfer
  /// is to be stopped.
  Result<std::size_t> look_at_gathering();
  /// Begins to gather more; false when nothing can be begun now.
  Result<bool> gather_ahead();
  /// Bundles are being gathered.
  bool gathering() const { return !gathering_.empty(); }
  void bundle_posted(std::size_t nic);
  /// Its write completed. True: it was the last operation out.
  bool written(Bundle* bundle);
  bool failed(Bundle* bundle, const Error& error);
  /// The receiver has scattered this slot. True: it was the last operation out.
  bool credited(std::uint32_t immediate);
  /// Bundles written and not credited: the receiver's to answer for.
  std::uint64_t credits_owed() const { return credits_owed_; }

  // -- grants ------------------------------------------------------------------------------------
  void grant(std::uint64_t bytes);
  /// Something is granted, or gathered, and not posted.
  bool may_post() {
    return state == State::kRunning && (ready_ != nullptr || (unposted_ > 0 && peek() != nullptr));
  }
  /// True once per grant: half of it or less is left to post, and more of the plan is not granted.
  bool take_hunger();

  // -- life --------------------------------------------------------------------------------------
  State state = State::kRunning;
  bool end_when_idle = false;
  std::optional<std::chrono::steady_clock::time_point> first_post;
  // Whether its credits come (loop_health.cpp).
  std::uint64_t progress_seen = 0;
  std::optional<std::chrono::steady_clock::time_point> progressed_at;
  bool queued = false;      // in a lane of the scheduler
  std::int64_t credit = 0;  // bulk lane: bytes it may still post in this round
  void stop(std::optional<Error> reason);
  /// Goes on after a stop: failed chunks first, without immediates, nothing granted. Packed only
  /// with `packing`.
  void resume(std::optional<Packing> packing = std::nullopt);
  TransferIdle idle_event() const;

 private:
  void note_failure(std::size_t nic, const Error& error);
  void add_dirty(const Chunk& chunk);
  void spoil_unless_it_has_a_way();
  bool has_packed_way() const;
  Bundle* begin_bundle();
  Result<bool> start_gathering(Bundle* bundle);
  void gathered(Bundle* bundle);
  void next_ready();
  /// The chunks of a bundle are due again after a resume.
  void spoil(Bundle* bundle);
  void abandon_bundles();
  void land(const Chunk& chunk);
  void land(const Bundle* bundle);

  StartTransfer start_;
  SendSlots* send_slots_;
  std::byte* local_base_;
  std::vector<void*> descriptors_;
  std::vector<std::vector<Path>> paths_;
  std::vector<std::uint32_t> next_path_;

  Cursor cursor_;
  bool next_chunk(Chunk& chunk);
  bool joins(const Chunk& chunk) const;
  ChunkRun ahead_;             // what peek() shows
  std::optional<Chunk> held_;  // the chunk after it, which did not join
  std::vector<Chunk> retry_;   // failed before the last resume
  std::vector<Chunk> dirty_;   // failed since
  std::uint64_t dirty_bytes_ = 0;

  std::optional<Bundles> bundles_;
  bool packed_only_ = false;
  bool resumed_ = false;
  Bundle* ready_ = nullptr;
  SlotMover* mover_;
  std::vector<Bundle*> gathered_;   // those behind ready_, in the order in which they ended
  std::vector<Bundle*> gathering_;  // by the mover; the last may have to be started yet:
  std::vector<MovedPage> pages_;    // then these are its pages
  std::uint64_t packed_bytes_ = 0;
  std::uint64_t credits_owed_ = 0;

  std::int64_t unposted_ = 0;  // granted and not posted; the last chunk may overdraw it
  std::uint64_t quantum_ = 0;  // the last grant
  bool hungry_told_ = true;

  std::uint64_t operations_out_ = 0;
  std::uint64_t bytes_out_ = 0;
  std::uint64_t completed_chunks_ = 0;
  std::uint64_t completed_bytes_ = 0;
  std::vector<std::uint64_t> landed_;  // one bit per chunk
  std::vector<CardShare> shares_;
  std::vector<std::uint32_t> out_on_;  // by card
  std::vector<bool> dirty_nics_;
  std::size_t pieces_;
  std::vector<LinkId> dirty_links_;
  std::optional<Error> error_;
};

}  // namespace penstock

// What a poller knows of one transfer: which chunks are still to post, what of it is out, what
// completed. Posts nothing itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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
  };

  TransferWork(StartTransfer start, std::size_t nics);

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
  /// Drops every path over `link`.
  void drop_paths(const Link* link);
  void drop_paths_of_nic(std::size_t nic) { paths_[nic].clear(); }
  void clear_paths();

  // -- chunks ------------------------------------------------------------------------------------
  /// The chunk to post next, null when every chunk is out or completed.
  const Chunk* peek();
  /// The chunk that peek() showed is posted.
  void posted_next();
  /// An operation of it ended. True: it was the last one out.
  bool completed(const Chunk& chunk, std::size_t nic);
  bool failed(const Chunk& chunk, std::size_t nic, const Error& error);
  /// Never posted: the chunk is due again after a resume.
  void not_posted(std::size_t nic, const Error& error);
  std::uint64_t operations_out() const { return operations_out_; }
  bool complete() const { return completed_chunks_ == plan().chunks(); }
  std::uint64_t completed_bytes() const { return completed_bytes_; }

  // -- grants ------------------------------------------------------------------------------------
  void grant(std::uint64_t bytes);
  bool may_post() const { return state == State::kRunning && unposted_ > 0; }
  /// True once per grant: half of it or less is left to post, and more of the plan is not granted.
  bool take_hunger();

  // -- life --------------------------------------------------------------------------------------
  State state = State::kRunning;
  bool end_when_idle = false;
  bool queued = false;      // in a lane of the scheduler
  std::int64_t credit = 0;  // bulk lane: bytes it may still post in this round
  void stop(std::optional<Error> reason);
  /// Goes on after a stop: failed chunks first, without immediates, nothing granted.
  void resume();
  TransferIdle idle_event() const;

 private:
  void note_failure(std::size_t nic, const Error& error);

  StartTransfer start_;
  std::byte* local_base_;
  std::vector<void*> descriptors_;
  std::vector<std::vector<Path>> paths_;
  std::vector<std::uint32_t> next_path_;

  Cursor cursor_;
  Chunk ahead_;  // the chunk that peek() shows
  bool has_ahead_ = false;
  std::vector<Chunk> retry_;  // failed before the last resume
  std::vector<Chunk> dirty_;  // failed since

  std::int64_t unposted_ = 0;  // granted and not posted; the last chunk may overdraw it
  std::uint64_t quantum_ = 0;  // the last grant
  bool hungry_told_ = true;

  std::uint64_t operations_out_ = 0;
  std::uint64_t bytes_out_ = 0;
  std::uint64_t completed_chunks_ = 0;
  std::uint64_t completed_bytes_ = 0;
  std::vector<std::uint64_t> landed_;  // one bit per chunk
  std::vector<CardShare> shares_;
  std::vector<bool> dirty_nics_;
  std::optional<Error> error_;
};

}  // namespace penstock

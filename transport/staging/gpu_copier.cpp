#include "transport/staging/gpu_copier.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace penstock {
namespace {

/// Copies that run side by side: each has its lane, so that a short one does not wait for a long
/// one.
constexpr std::uint32_t kLanes = 16;
/// What one kernel copies at most, so that a stop is seen soon; two are under way per copy, so that
/// the GPU never waits for the next.
constexpr std::uint64_t kSliceBytes = 1u << 30;       // on GPUs: half a millisecond
constexpr std::uint64_t kHostSliceBytes = 64u << 20;  // over PCIe: one
constexpr std::size_t kSlicesOut = 2;
/// How long to look for more work before sleeping: waking costs a short copy more than it takes,
/// and short copies come one after the other.
constexpr auto kSpin = std::chrono::milliseconds(1);

bool over_pcie(const GpuCopy& copy) {
  return copy.from.memory->gpu() < 0 || copy.to.memory->gpu() < 0;
}

}  // namespace

GpuCopier::GpuCopier(std::string name) : name_(std::move(name)), thread_([this] { run(); }) {}

GpuCopier::~GpuCopier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    called_.store(true);
  }
  ready_.notify_one();
  thread_.join();
}

void GpuCopier::submit(GpuCopy copy) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(copy));
    called_.store(true);
  }
  ready_.notify_one();
}

void GpuCopier::run() {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  auto active = std::chrono::steady_clock::now();
  for (;;) {
    const bool taken = called_.load(std::memory_order_acquire) && take();
    const bool begun = begin_held();
    const bool worked = work() || begun;
    if (taken || worked || !running_.empty()) {
      active = std::chrono::steady_clock::now();
      continue;
    }
    if (std::chrono::steady_clock::now() - active < kSpin) continue;
    std::unique_lock lock(mutex_);
    if (stopping_ && waiting_.empty()) break;
    ready_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_ && waiting_.empty()) break;
  }
  movers_.clear();  // here, where they were made
}

bool GpuCopier::take() {
  std::deque<GpuCopy> taken;
  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(waiting_);
    stopping = stopping_;
    called_.store(false);
  }
  for (GpuCopy& copy : taken) {
    if (stopping)
      copy.done(fail(ErrorCode::kCancelled, "the service ends"));
    else
      held_.push_back(std::move(copy));
  }
  return !taken.empty();
}

/// In their order, as far as there is room for their lists.
bool GpuCopier::begin_held() {
  bool happened = false;
  while (!held_.empty() && begin(held_.front())) {
    held_.pop_front();
    happened = true;
  }
  return happened;
}

Result<PageMover*> GpuCopier::mover_for(const GpuCopy& copy) {
  const int from = copy.from.memory->gpu();
  const int to = copy.to.memory->gpu();
  const int gpu = to >= 0 ? to : from;
  if (from >= 0 && to >= 0 && !gpu_reaches(to, from))
    return fail(ErrorCode::kUnsupported,
                "kernels of GPU {} do not reach memory of GPU {}: copy by way of host memory", to,
                from);
  auto& mover = movers_[gpu];
  if (!mover) {
    PageMoverOptions options;
    options.lanes = kLanes;
    auto made = PageMover::make(gpu, options);
    if (!made) return tl::unexpected(made.error());
    mover = std::move(*made);
  }
  return mover.get();
}

/// False: it has to wait until others have ended.
bool GpuCopier::begin(GpuCopy& copy) {
  const auto refuse = [&](const Error& error) {
    copy.done(tl::unexpected(error));
    return true;
  };
  const auto mover = mover_for(copy);
  if (!mover) return refuse(mover.error());
  const auto from = copy.from.place((*mover)->gpu());
  if (!from) return refuse(from.error());
  const auto to = copy.to.place((*mover)->gpu());
  if (!to) return refuse(to.error());
  auto lists = (*mover)->prepare(copy.plan->layout());
  if (!lists && lists.error().code == ErrorCode::kResourceExhausted && !running_.empty())
    return false;
  if (!lists) return refuse(lists.error());
  auto running = std::make_unique<Running>();
  running->copy = std::move(copy);
  running->mover = *mover;
  running->from = *from;
  running->to = *to;
  running->lists = std::move(*lists);
  running->lane = next_lane_++ % kLanes;
  running_.push_back(std::move(running));
  return true;
}

bool GpuCopier::work() {
  bool happened = false;
  for (std::size_t i = 0; i < running_.size();) {
    Running& running = *running_[i];
    happened = start_slices(running) || happened;
    happened = look(running) || happened;
    const bool all = running.next == running.lists->elements();
    const bool ends = all || running.error || running.copy.stop->load(std::memory_order_relaxed);
    if (!running.out.empty() || !ends) {
      ++i;
      continue;
    }
    const auto ended = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    if (ended->error)
      ended->copy.done(tl::unexpected(*ended->error));
    else
      ended->copy.done(ended->bytes);
    happened = true;
  }
  return happened;
}

bool GpuCopier::start_slices(Running& running) {
  const std::uint64_t elements = running.lists->elements();
  const GpuCopy& copy = running.copy;
  // Looked at, not queued behind: an event that never comes would hold its lane for all who share
  // it, and nobody could stop this copy.
  if (running.next == 0 && copy.after && !running.error) {
    const auto done = copy.after->done();
    if (!done) running.error = done.error();
    if (!done || !*done) return false;
  }
  bool happened = false;
  while (!running.error && running.out.size() < kSlicesOut && running.next < elements &&
         !copy.stop->load(std::memory_order_relaxed)) {
    const std::uint64_t count =
        running.lists->elements_of(running.next, over_pcie(copy) ? kHostSliceBytes : kSliceBytes);
    CopyOrder order;
    if (running.next + count == elements) order.record = copy.record.get();
    const auto ticket = running.mover->start(*running.lists, running.next, count, running.from,
                                             running.to, running.lane, order);
    if (!ticket) {
      if (ticket.error().code != ErrorCode::kBusy) running.error = ticket.error();
      break;
    }
    running.out.emplace_back(*ticket, running.lists->bytes(running.next, count));
    running.next += count;
    happened = true;
  }
  return happened;
}

bool GpuCopier::look(Running& running) {
  bool happened = false;
  while (!running.out.empty()) {
    const auto state = running.mover->poll(running.out.front().first);
    if (!state) {
      running.error = state.error();
      running.out.clear();  // after an error nothing of the mover runs any more
      return true;
    }
    if (*state == CopyState::kRunning) break;
    running.bytes += running.out.front().second;
    running.out.pop_front();
    happened = true;
  }
  return happened;
}

}  // namespace penstock

#include "transport/poller/poller_thread.hpp"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

/// With work out but nothing happening for so long (a stopped peer, say), look again only when a
/// card says so or this much later: a silent peer must not cost a core until its deadline.
constexpr auto kPatience = std::chrono::milliseconds(5);
constexpr auto kSilentNap = std::chrono::milliseconds(1);
/// A card without a wait object (shm) has nobody to wake us when a peer writes, and may need us for
/// the write to go on: with it, wait for this long without work before the first tick. On shm,
/// writes of 1 MiB moved at 0.2 GB/s with 50 us and at 4.4 with 20 ms.
constexpr auto kSpinWithoutWaitObject = std::chrono::milliseconds(20);

/// How often cards are tidied, and how soon they go on when that is more than one call does. A
/// stranger who has said nothing for kSilence is ended then; a member's first word follows its
/// connection at the next look of its poller.
constexpr auto kTidyEvery = std::chrono::seconds(5);
constexpr auto kTidyOn = std::chrono::milliseconds(100);
constexpr auto kSilence = std::chrono::seconds(10);

/// Where a core has several threads, a busy poller offers it to them this often. On 2 cores the p99
/// of a 4 KiB transfer beside bulk was 5.0 to 7.3 ms without and is 1.3 to 5.3 with it; between 25
/// and 200 us nothing changes that the noise would not.
constexpr auto kTurn = std::chrono::microseconds(100);

/// Nobody cancels a polling thread. Saying so with both calls spares every system call that could
/// be a cancellation point two atomic operations: glibc marks the thread around each unless it is
/// marked already.
void refuse_cancellation() {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
}

/// A polling thread without a core of its own gives way to the actors that it shares one with: they
/// need little, but what they do not get soon, urgent transfers wait for. On 2 busy cores the p99
/// of a 4 KiB transfer beside bulk was 10 to 11 ms without this and 5 to 8 ms with it.
void give_way() {
  constexpr int kNicer = 5;
  const auto self = static_cast<id_t>(gettid());
  setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + kNicer);
}

void name_thread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

Result<void> pin_thread(const std::vector<int>& cpus) {
  if (cpus.empty()) return {};
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE)
      return fail(ErrorCode::kInvalidArgument, "there is no processor {}", cpu);
    CPU_SET(cpu, &set);
  }
  if (const int status = pthread_setaffinity_np(pthread_self(), sizeof set, &set))
    return fail(ErrorCode::kInvalidArgument,
                "cannot pin to the processors asked for: {} (are they in this process's cpuset?)",
                std::strerror(status));
  return {};
}

}  // namespace

Result<std::shared_ptr<PollerThread>> PollerThread::start(
    Poller::Thread setup, std::vector<std::shared_ptr<PolledDevice>> devices) {
  if (devices.empty()) return fail(ErrorCode::kInvalidArgument, "a polling thread without devices");
  auto sleeper = Sleeper::make();
  if (!sleeper) return tl::unexpected(sleeper.error());
  std::shared_ptr<PollerThread> thread(new PollerThread(std::move(devices), std::move(*sleeper)));
  thread->name_ = setup.name;
  thread->side_work_ = setup.side_work;
  std::promise<Result<void>> promise;
  auto opened = promise.get_future();
  thread->thread_ = std::thread(
      [self = thread.get(), setup = std::move(setup), promise = std::move(promise)]() mutable {
        self->run(setup, std::move(promise));
      });
  if (auto result = opened.get(); !result) return tl::unexpected(result.error());
  return thread;
}

PollerThread::~PollerThread() {
  if (thread_.joinable()) thread_.join();
}

// -- the thread's life ---------------------------------------------------------------------------

void PollerThread::run(const Poller::Thread& setup, std::promise<Result<void>> opened) {
  name_thread(setup.name);
  refuse_cancellation();
  if (setup.cpus.empty()) give_way();
  auto result = open_devices(setup);
  pthread_getcpuclockid(pthread_self(), &cpu_clock_);
  // On this thread: libfabric objects are closed where they were used.
  if (!result) close_devices();
  if (result && side_work_) {
    side_work_->begin([this] { wake(); });
    // What waits for its turn here would wait as long.
    for (const auto& device : devices_)
      device->before_long_ones([this] { side_work_->work(false); });
  }
  const bool good = result.has_value();
  opened.set_value(std::move(result));
  if (good) poll_until_all_left();
}

Result<void> PollerThread::open_devices(const Poller::Thread& setup) {
  if (auto pinned = pin_thread(setup.cpus); !pinned) return pinned;
  for (const auto& device : devices_) {
    if (auto opened = device->open(); !opened) return opened;
    spin_ = std::max(spin_, device->options().spin);
    yields_ = yields_ || device->options().yields;
    for (const Nic* card : device->cards())
      if (card->info().wait_fd < 0)
        spin_ = std::max<std::chrono::microseconds>(spin_, kSpinWithoutWaitObject);
  }
  watch_cards();
  return {};
}

void PollerThread::close_devices() {
  for (const auto& device : devices_) device->close();
  devices_.clear();
}

void PollerThread::watch_cards() {
  untidy_.clear();
  std::vector<Nic*> cards;
  auto tick = std::chrono::milliseconds::max();
  for (const auto& device : devices_) {
    cards.insert(cards.end(), device->cards().begin(), device->cards().end());
    tick = std::min(tick, device->options().idle_tick);
  }
  sleeper_->watch(cards, tick);
}

void PollerThread::close(PolledDevice& device) {
  std::future<void> closed;
  {
    const std::lock_guard lock(mutex_);
    closed = leaving_.emplace_back(Leaving{&device, {}}).closed.get_future();
    somebody_leaves_.store(true);
  }
  sleeper_->wake();
  closed.wait();
}

void PollerThread::let_go() {
  std::vector<Leaving> leaving;
  {
    const std::lock_guard lock(mutex_);
    somebody_leaves_.store(false);
    leaving.swap(leaving_);
  }
  for (Leaving& each : leaving) {
    each.device->close();
    std::erase_if(devices_, [&](const auto& device) { return device.get() == each.device; });
  }
  if (!devices_.empty()) watch_cards();
  for (Leaving& each : leaving) each.closed.set_value();
}

// -- polling -------------------------------------------------------------------------------------

void PollerThread::poll_until_all_left() {
  // The last time at which something happened, as of the last look at the clock.
  auto active = Clock::now();
  auto last = active;  // the look at the clock before this one, whatever it found
  auto next_tidy = active;
  auto yielded = active;
  while (!devices_.empty()) {
    if (last >= next_tidy) next_tidy = last + (tidy() ? Clock::duration(kTidyOn) : kTidyEvery);
    if (somebody_leaves_.load(std::memory_order_relaxed)) {
      let_go();
      continue;
    }
    const bool happened = work();
    if (happened) active = last = account(busy_, last);
    if (yields_ && last - yielded >= kTurn) {
      std::this_thread::yield();
      yielded = last = Clock::now();
    }
    if (happened) continue;
    const auto now = Clock::now();
    last = now;
    const bool idle = all_idle();
    if (yields_ && all_quiet()) std::this_thread::yield();
    if (now - active <
        (idle ? Clock::duration(spin_) : std::max<Clock::duration>(spin_, kPatience)))
      continue;
    const auto until =
        idle ? std::min(next_retry().value_or(next_tidy), next_tidy) : now + kSilentNap;
    // After the time alone nothing may have come: one look, then sleep again. Otherwise spin, since
    // data that streams into our memory shows by nothing but the cards' wish to be polled.
    const auto woken = sleeper_->sleep(until, !idle, [&] { return called(); });
    last = account(asleep_, now);
    if (woken != Sleeper::Woken::kTime) active = last;
  }
}

/// True: there is more to be tidied.
bool PollerThread::tidy() {
  if (untidy_.empty())
    for (const auto& device : devices_)
      untidy_.insert(untidy_.end(), device->cards().begin(), device->cards().end());
  std::erase_if(untidy_, [](Nic* card) { return !card->tidy(kSilence); });
  return !untidy_.empty();
}

/// One round: a step of each device, so that none waits for longer than the others' steps.
bool PollerThread::work() {
  bool happened = false;
  for (const auto& device : devices_) happened = device->work() || happened;
  if (side_work_ && side_work_->work(all_quiet())) {
    happened = true;
    for (const auto& device : devices_) device->send();  // what it led to need not wait for a look
  }
  return happened;
}

/// Nothing but messages comes and goes.
bool PollerThread::all_quiet() {
  return std::all_of(devices_.begin(), devices_.end(),
                     [](const auto& device) { return device->loop().quiet(); });
}

bool PollerThread::all_idle() {
  return std::all_of(devices_.begin(), devices_.end(),
                     [](const auto& device) { return device->loop().idle(); });
}

std::optional<PollerThread::Clock::time_point> PollerThread::next_retry() {
  std::optional<Clock::time_point> first;
  for (const auto& device : devices_)
    if (const auto retry = device->loop().next_retry(); retry && (!first || *retry < *first))
      first = retry;
  return first;
}

/// Somebody wants something: do not sleep.
bool PollerThread::called() {
  return somebody_leaves_.load() || (side_work_ && side_work_->waiting()) ||
         std::any_of(devices_.begin(), devices_.end(),
                     [](const auto& device) { return device->commands().waiting(); });
}

/// Adds the time since `since` and returns the time now.
PollerThread::Clock::time_point PollerThread::account(std::atomic<Clock::rep>& to,
                                                      Clock::time_point since) {
  const auto now = Clock::now();
  to.store(to.load(std::memory_order_relaxed) + (now - since).count(), std::memory_order_relaxed);
  return now;
}

std::chrono::nanoseconds PollerThread::cpu_time() const {
  timespec time{};
  if (clock_gettime(cpu_clock_, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

std::chrono::nanoseconds PollerThread::cpu_time_per_device() const {
  return cpu_time() / started_with_;
}

PollerUsage PollerThread::usage() const {
  PollerUsage usage;
  usage.thread = name_;
  usage.busy = Clock::duration(busy_.load(std::memory_order_relaxed));
  usage.asleep = Clock::duration(asleep_.load(std::memory_order_relaxed));
  usage.alive = Clock::now() - started_;
  usage.cpu = cpu_time();
  return usage;
}

}  // namespace penstock

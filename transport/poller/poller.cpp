#include "transport/poller/poller.hpp"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <cstring>
#include <future>

#include "transport/poller/command_queue.hpp"
#include "transport/poller/event_queue.hpp"
#include "transport/poller/sleeper.hpp"

namespace penstock {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// With work out but nothing happening for so long (a stopped peer, say), look again only when a
/// card says so or this much later: a silent peer must not cost a core until its deadline.
constexpr auto kPatience = std::chrono::milliseconds(5);
constexpr auto kSilentNap = std::chrono::milliseconds(1);

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

struct Poller::State {
  explicit State(Setup wanted, std::unique_ptr<Sleeper> waker)
      : setup(std::move(wanted)), sleeper(std::move(waker)), events(setup.doorbell) {}

  void run(std::promise<Result<void>> opened);
  Result<void> open();
  void loop_until_stopped();
  bool run_commands();
  bool tell_events();
  Sleeper::Woken rest(std::optional<SteadyClock::time_point> until);

  Setup setup;
  std::unique_ptr<Sleeper> sleeper;
  CommandQueue commands;
  EventQueue events;
  std::atomic<bool> stop{false};
  std::thread thread;
  clockid_t cpu_clock{};
  // Written by the thread before start() returns, constant afterwards.
  std::vector<Nic*> cards;
  std::vector<const CardCounters*> counters;

  std::unique_ptr<PollerLoop> loop;  // the thread's
  std::vector<PollerCommand> taken;
  std::vector<PollerEvent> untold;
};

Result<void> Poller::State::open() {
  if (auto pinned = pin_thread(setup.cpus); !pinned) return pinned;
  auto opened = setup.open_cards();
  if (!opened) return tl::unexpected(opened.error());
  if (opened->empty()) return fail(ErrorCode::kInvalidArgument, "a poller without cards");
  loop = std::make_unique<PollerLoop>(std::move(*opened), setup.options);
  for (std::size_t i = 0; i < loop->nic_count(); ++i) {
    cards.push_back(&loop->nic(i));
    counters.push_back(&loop->counters(i));
  }
  sleeper->watch(cards, setup.options.idle_tick);
  return {};
}

void Poller::State::run(std::promise<Result<void>> opened) {
  name_thread(setup.name);
  auto result = open();
  const bool good = result.has_value();
  pthread_getcpuclockid(pthread_self(), &cpu_clock);
  opened.set_value(std::move(result));
  if (good) loop_until_stopped();
  // On this thread: libfabric objects are closed where they were used.
  loop.reset();
}

bool Poller::State::run_commands() {
  if (!commands.take(taken)) return false;
  for (auto& command : taken) loop->execute(std::move(command));
  taken.clear();
  return true;
}

/// False: some have to wait for the next round.
bool Poller::State::tell_events() {
  if (untold.empty()) {
    if (!loop->has_events()) return true;
    untold = loop->take_events();
  }
  return events.push(untold) && !loop->has_events();
}

Sleeper::Woken Poller::State::rest(std::optional<SteadyClock::time_point> until) {
  return sleeper->sleep(until, [&] { return commands.waiting() || stop.load(); });
}

void Poller::State::loop_until_stopped() {
  // The last time at which something happened, as of the last look at the clock.
  auto active = SteadyClock::now();
  while (!stop.load(std::memory_order_relaxed)) {
    const bool commanded = run_commands();
    const bool happened = loop->step() > 0 || commanded;
    const bool told = tell_events();
    if (happened || !told) {
      active = SteadyClock::now();
      continue;
    }
    const auto now = SteadyClock::now();
    const bool idle = loop->idle();
    if (now - active < (idle ? setup.options.spin : kPatience)) continue;
    const auto until = idle ? loop->next_retry() : std::optional(now + kSilentNap);
    // After the time alone nothing may have come: one look, then sleep again. Otherwise spin, since
    // data that streams into our memory shows by nothing but the cards' wish to be polled.
    const auto woken = rest(until);
    if (woken != Sleeper::Woken::kTime) active = SteadyClock::now();
  }
}

Poller::Poller() = default;

Result<std::unique_ptr<Poller>> Poller::start(Setup setup) {
  auto sleeper = Sleeper::make();
  if (!sleeper) return tl::unexpected(sleeper.error());
  std::unique_ptr<Poller> poller(new Poller);
  poller->state_ = std::make_unique<State>(std::move(setup), std::move(*sleeper));
  State& state = *poller->state_;
  std::promise<Result<void>> promise;
  auto opened = promise.get_future();
  state.thread = std::thread(
      [&state, promise = std::move(promise)]() mutable { state.run(std::move(promise)); });
  if (auto result = opened.get(); !result) return tl::unexpected(result.error());
  return poller;
}

Poller::~Poller() {
  state_->stop.store(true);
  state_->sleeper->wake();
  if (state_->thread.joinable()) state_->thread.join();
}

void Poller::push(PollerCommand command) {
  state_->commands.push(std::move(command));
  state_->sleeper->wake();
}

std::vector<PollerEvent> Poller::take_events() { return state_->events.take(); }

std::size_t Poller::nic_count() const { return state_->cards.size(); }
Nic& Poller::nic(std::size_t i) { return *state_->cards.at(i); }
const CardCounters& Poller::counters(std::size_t i) const { return *state_->counters.at(i); }

std::chrono::nanoseconds Poller::cpu_time() const {
  timespec time{};
  if (clock_gettime(state_->cpu_clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace penstock

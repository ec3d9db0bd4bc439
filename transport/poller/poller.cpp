#include "transport/poller/poller.hpp"

#include "transport/poller/polled_device.hpp"
#include "transport/poller/poller_thread.hpp"

namespace penstock {

struct Poller::State {
  std::shared_ptr<PolledDevice> device;
  std::shared_ptr<PollerThread> thread;
};

Poller::Poller() = default;

Result<std::vector<std::unique_ptr<Poller>>> Poller::start_together(Thread thread,
                                                                    std::vector<Device> devices) {
  std::vector<std::shared_ptr<PolledDevice>> polled;
  for (Device& device : devices)
    polled.push_back(std::make_shared<PolledDevice>(std::move(device)));
  auto started = PollerThread::start(std::move(thread), polled);
  if (!started) return tl::unexpected(started.error());
  std::vector<std::unique_ptr<Poller>> pollers;
  for (auto& device : polled) {
    std::unique_ptr<Poller> poller(new Poller);
    poller->state_ = std::make_unique<State>(State{std::move(device), *started});
    pollers.push_back(std::move(poller));
  }
  return pollers;
}

Result<std::unique_ptr<Poller>> Poller::start(Setup setup) {
  std::vector<Device> devices;
  devices.push_back(std::move(static_cast<Device&>(setup)));
  auto pollers = start_together(std::move(static_cast<Thread&>(setup)), std::move(devices));
  if (!pollers) return tl::unexpected(pollers.error());
  return std::move(pollers->front());
}

Poller::~Poller() { state_->thread->close(*state_->device); }

void Poller::push(PollerCommand command) {
  state_->device->commands().push(std::move(command));
  state_->thread->wake();
}

std::vector<PollerEvent> Poller::take_events() { return state_->device->events().take(); }

std::size_t Poller::nic_count() const { return state_->device->cards().size(); }
Nic& Poller::nic(std::size_t i) { return *state_->device->cards().at(i); }
const CardCounters& Poller::counters(std::size_t i) const {
  return *state_->device->counters().at(i);
}

std::chrono::nanoseconds Poller::cpu_time() const { return state_->thread->cpu_time_per_device(); }
PollerUsage Poller::usage() const { return state_->thread->usage(); }

}  // namespace penstock

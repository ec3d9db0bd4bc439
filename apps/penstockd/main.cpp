// penstockd: the service of one node. Reads the configuration, starts the Service, waits for a
// signal. SIGTERM or SIGINT drains and exits 0, a second one exits at once; a request to drain is
// the first without being a signal. SIGHUP reads the list of clients again.
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "actors/node/log.hpp"
#include "actors/node/service.hpp"
#include "actors/node/version.hpp"
#include "actors/settings/settings.hpp"

namespace {

constexpr int kUsage = 2;
constexpr std::chrono::seconds kExitAfterDrain{5};

sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  // Before any thread starts, so that all inherit it and sigwait() below is the only receiver.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

/// A request to drain, brought to the main thread as a signal of our own with the deadline in it.
void signal_drain(std::chrono::milliseconds deadline) {
  sigval value{};
  value.sival_int = static_cast<int>(deadline.count());
  sigqueue(getpid(), SIGTERM, value);
}

struct Ending {
  int signal = 0;
  bool requested = false;
  std::chrono::milliseconds deadline{0};  // of a request; 0: the configured one
};

Ending wait_for_the_end(const sigset_t& signals, penstock::Service& service) {
  siginfo_t info{};
  while (sigwaitinfo(&signals, &info) < 0 || info.si_signo == SIGHUP) {
    if (info.si_signo != SIGHUP) continue;
    if (const auto read = service.reload(); !read)
      spdlog::error("SIGHUP: {}; what was read before stays in force", read.error().message);
    info = {};
  }
  const bool requested = info.si_code == SI_QUEUE && info.si_pid == getpid();
  return {info.si_signo, requested,
          std::chrono::milliseconds(requested ? info.si_value.sival_int : 0)};
}

/// Ends the process on `more` signals from outside, or when the orderly end takes too long.
void watch_the_end(const sigset_t& signals, std::chrono::milliseconds limit, int more) {
  std::thread([signals, limit, more] {
    const auto end = std::chrono::steady_clock::now() + limit;
    for (int left = more; left > 0;) {
      const auto wait = std::max<std::chrono::nanoseconds>(end - std::chrono::steady_clock::now(),
                                                           std::chrono::nanoseconds(0));
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
      const timespec time{seconds.count(), (wait - seconds).count()};
      siginfo_t info{};
      if (sigtimedwait(&signals, &info, &time) > 0) {
        const bool ours = info.si_code == SI_QUEUE && info.si_pid == getpid();
        if (!ours && info.si_signo != SIGHUP) --left;
      } else if (std::chrono::steady_clock::now() >= end) {
        std::fputs("penstockd: the orderly end took too long, exiting now\n", stderr);
        _exit(1);
      }
    }
    std::fputs("penstockd: second signal, exiting now\n", stderr);
    _exit(1);
  }).detach();
}

int run(const penstock::Settings& settings) {
  const sigset_t signals = block_signals();
  auto service = penstock::Service::start(settings, signal_drain);
  if (!service) {
    spdlog::critical("penstockd cannot start: {}", service.error().message);
    return 1;
  }
  std::fputs((*service)->banner().c_str(), stdout);
  std::fflush(stdout);
  const Ending ending = wait_for_the_end(signals, **service);
  const auto deadline = ending.deadline.count() > 0 ? ending.deadline : settings.timeouts.drain;
  spdlog::info("{}: draining for at most {} ms",
               ending.requested ? "asked to drain" : fmt::format("signal {}", ending.signal),
               deadline.count());
  // Whoever asked for a drain may send SIGTERM too, as Kubernetes does: that is one, not the
  // second.
  watch_the_end(signals, deadline + kExitAfterDrain, ending.requested ? 2 : 1);
  (*service)->drain(deadline);
  service->reset();
  spdlog::info("stopped");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"penstockd: moves memory between the nodes of a cluster. One per node."};
  std::string file;
  std::vector<std::string> overrides;
  bool check = false;
  app.add_option("--config", file,
                 "configuration (YAML); config/penstockd.yaml documents every key")
      ->check(CLI::ExistingFile);
  app.add_option("--set", overrides, "one setting, as section.key=value; may be repeated");
  app.add_flag("--check", check, "check the configuration and exit");
  app.set_version_flag("--version", penstock::kServiceVersion);
  app.footer(
      "Settings also come from the environment: PENSTOCK_SECTION_KEY=value.\n"
      "Example: penstockd --config /etc/penstock/penstockd.yaml --set node.name=a");
  CLI11_PARSE(app, argc, argv);

  const auto settings = penstock::load_settings(file, overrides);
  if (!settings) {
    std::fprintf(stderr, "penstockd: %s\n", settings.error().message.c_str());
    return kUsage;
  }
  if (check) {
    std::puts("the configuration is good");
    return 0;
  }
  const auto& log = settings->log;
  if (auto started = penstock::start_log({log.level, log.file, log.json, log.repeat_per_s});
      !started) {
    std::fprintf(stderr, "penstockd: %s\n", started.error().message.c_str());
    return kUsage;
  }
  return run(*settings);
}

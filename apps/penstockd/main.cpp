// penstockd: the service of one node. Reads the configuration, starts the Service, waits for a
// signal. SIGTERM or SIGINT drains and exits 0; a second one exits at once.
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
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
  // Before any thread starts, so that all inherit it and sigwait() below is the only receiver.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

/// Ends the process on a second signal, or when the orderly end takes too long.
void watch_the_end(const sigset_t& signals, std::chrono::milliseconds limit) {
  std::thread([signals, limit] {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
    const timespec wait{seconds.count(), 0};
    const int signal = sigtimedwait(&signals, nullptr, &wait);
    std::fputs(signal > 0 ? "penstockd: second signal, exiting now\n"
                          : "penstockd: the orderly end took too long, exiting now\n",
               stderr);
    _exit(1);
  }).detach();
}

int run(const penstock::Settings& settings) {
  const sigset_t signals = block_signals();
  auto service = penstock::Service::start(settings);
  if (!service) {
    spdlog::critical("penstockd cannot start: {}", service.error().message);
    return 1;
  }
  std::fputs((*service)->banner().c_str(), stdout);
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("signal {}: draining for at most {} ms", signal, settings.timeouts.drain.count());
  watch_the_end(signals, settings.timeouts.drain + kExitAfterDrain);
  (*service)->drain(settings.timeouts.drain);
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

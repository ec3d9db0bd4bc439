#include "apps/penstock/globals.hpp"

#include <atomic>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>

namespace penstock::app {
namespace {

std::atomic<bool> interrupt_came{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

}  // namespace

client::Client Globals::connect() const {
  try {
    return client::Client(client::Options{
        .endpoint = endpoint,
        .client = "penstock " PENSTOCK_VERSION,
        .identity = identity,
        .timeout_ms = timeout_ms(),
        .lease_ms = 0,  // what a command makes is to stay when the command has ended
        .key_file = key_file,
        .server_key = server_key});
  } catch (const client::Error& error) {
    bool typed_wrong = error.code() == "INVALID_ARGUMENT";
    bool denied = error.code() == "DENIED";
    throw Exit(typed_wrong ? ExitCode::kUsage
               : denied    ? ExitCode::kFailed
                           : ExitCode::kUnreachable,
               error.what());
  }
}

void print_json(const std::string& text) {
  auto parsed = nlohmann::json::parse(text, nullptr, false);
  std::cout << (parsed.is_discarded() ? text : parsed.dump(2)) << std::endl;
}

void watch_interrupts() {
  auto note = [](int) { interrupt_came = true; };
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
}

bool interrupted() { return interrupt_came; }

}  // namespace penstock::app

// What every command shares: the global options, the exit codes, and how errors are told.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "client/cpp/penstock.hpp"

namespace penstock::app {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,           // the service refused it, or a check found a problem
  kUsage = 2,            // what was typed cannot be meant
  kUnreachable = 3,      // no service answers at the endpoint
  kTransferNotDone = 4,  // a transfer ended as failed, cancelled, expired, refused or lost
  kTimedOut = 5,         // the service answers, but not this in time
};

/// Ends the command: the message goes to standard error in one line, "" tells nothing more.
struct Exit : std::runtime_error {
  Exit(ExitCode exit_code, const std::string& message)
      : std::runtime_error(message), code(exit_code) {}
  ExitCode code;
};

/// Filled by the command line parser before a command runs.
struct Globals {
  std::string endpoint = "tcp://127.0.0.1:7411";
  std::string key_file;    // "": as the environment says
  std::string server_key;  // a key, or the file of one
  std::string identity;    // of the client, for the commands that have the option; "": a random one
  bool json = false;
  double timeout_s = 5;

  std::uint32_t timeout_ms() const { return static_cast<std::uint32_t>(timeout_s * 1000); }
  /// Connects; throws Exit kUnreachable.
  client::Client connect() const;
};

/// Prints `text`, a JSON document, indented and with a line end.
void print_json(const std::string& text);

/// Set by SIGINT and SIGTERM once watch_interrupts() was called: long commands look at it.
void watch_interrupts();
bool interrupted();

}  // namespace penstock::app

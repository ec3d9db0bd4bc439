// penstock: the command line. Only puts the commands together; each lives in its own file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>

#include "apps/penstock/commands.hpp"
#include "client/cli/usage_error.hpp"

namespace {

using penstock::app::Exit;
using penstock::app::ExitCode;
using penstock::app::Globals;

constexpr const char* kFooter = R"(
Exit codes:
  0  ok
  1  failed: the service refused it, or a check found a problem
  2  usage: what was typed cannot be meant
  3  unreachable: no service answers at the endpoint
  4  a transfer did not end as done
  5  timed out: the service answers, but not this in time

Every command has an example in its own help: penstock COMMAND --help)";

/// One line, whatever the message holds.
int tell(ExitCode code, std::string message) {
  std::ranges::replace(message, '\n', ' ');
  if (!message.empty()) fmt::print(stderr, "penstock: {}\n", message);
  return static_cast<int>(code);
}

void add_globals(CLI::App& app, Globals& globals) {
  app.add_option("-e,--endpoint", globals.endpoint, "Where the service listens for requests")
      ->envname("PENSTOCK_ENDPOINT")
      ->capture_default_str();
  app.add_option("--key-file", globals.key_file, "The secret key to show (penstock keygen)")
      ->envname("PENSTOCK_KEY_FILE");
  app.add_option("--server-key", globals.server_key, "The service's public key, or its file")
      ->envname("PENSTOCK_SERVER_KEY");
  app.add_flag("--json", globals.json, "Print JSON instead of tables");
  app.add_option("--timeout", globals.timeout_s, "Seconds to wait for an answer")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
  app.set_version_flag("--version", "penstock " PENSTOCK_VERSION);
}

int run(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return static_cast<int>(ExitCode::kOk);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return tell(ExitCode::kUsage, fmt::format("USAGE: {} (see --help)", error.what()));
  } catch (const penstock::cli::UsageError& error) {
    return tell(ExitCode::kUsage, fmt::format("USAGE: {}", error.what()));
  } catch (const Exit& error) {
    return tell(error.code, error.what());
  } catch (const penstock::client::Error& error) {
    bool late = error.code() == "DEADLINE_EXCEEDED";
    return tell(late ? ExitCode::kTimedOut : ExitCode::kFailed, error.what());
  } catch (const std::exception& error) {
    return tell(ExitCode::kFailed, fmt::format("INTERNAL: {}", error.what()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace penstock::app;
  CLI::App app{"Moves non-contiguous memory between machines by asking a Penstock service."};
  Globals globals;
  app.name("penstock");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();  // global options may follow the command
  add_globals(app, globals);
  add_status(app, globals);
  add_nodes(app, globals);
  add_regions(app, globals);
  add_verify(app, globals);
  add_transfer(app, globals);
  add_transfers(app, globals);
  add_top(app, globals);
  add_trace(app, globals);
  add_events(app, globals);
  add_topology(app, globals);
  add_doctor(app, globals);
  add_probe(app, globals);
  add_keygen(app, globals);
  add_demo(app);
  add_bench(app, globals);
  add_replay(app, globals);
  add_traffic(app, globals);
  add_raw_target(app);
  return run(app, argc, argv);
}

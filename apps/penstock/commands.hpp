// The commands: each function adds its own to the command line. A command runs as the callback of
// its CLI::App and ends by returning (exit code 0) or by throwing Exit, client::Error or
// cli::UsageError.
#pragma once

#include <CLI/CLI.hpp>

#include "apps/penstock/globals.hpp"

namespace penstock::app {

void add_status(CLI::App& app, Globals& globals);     // status
void add_nodes(CLI::App& app, Globals& globals);      // nodes, drain, remove
void add_regions(CLI::App& app, Globals& globals);    // regions, allocate, register, release
void add_verify(CLI::App& app, Globals& globals);     // fill, digest
void add_transfer(CLI::App& app, Globals& globals);   // transfer
void add_transfers(CLI::App& app, Globals& globals);  // transfers, cancel
void add_top(CLI::App& app, Globals& globals);        // top
void add_trace(CLI::App& app, Globals& globals);      // trace
void add_events(CLI::App& app, Globals& globals);     // events
void add_topology(CLI::App& app, Globals& globals);   // topology
void add_doctor(CLI::App& app, Globals& globals);     // doctor
void add_keygen(CLI::App& app, Globals& globals);     // keygen
void add_demo(CLI::App& app);                         // demo
void add_bench(CLI::App& app, Globals& globals);      // bench
void add_replay(CLI::App& app, Globals& globals);     // replay
void add_probe(CLI::App& app, Globals& globals);      // probe
void add_traffic(CLI::App& app, Globals& globals);    // traffic
void add_raw_target(CLI::App& app);                   // raw-target, hidden: for demo and bench

}  // namespace penstock::app

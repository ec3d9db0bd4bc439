// penstock trace
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <string>

#include "apps/penstock/commands.hpp"
#include "client/cli/transfer_trace.hpp"

namespace penstock::app {
namespace {

struct TraceArguments {
  std::uint64_t id = 0;
  std::string file;
};

void run_trace(const Globals& globals, const TraceArguments& arguments) {
  auto client = globals.connect();
  const auto trace = client.trace(arguments.id);
  if (arguments.file.empty() || arguments.file != "-") fmt::print("{}", cli::trace_text(trace));
  if (arguments.file.empty()) return;
  const auto events = cli::trace_events(trace);
  if (arguments.file == "-") return fmt::print("{}\n", events);
  std::ofstream out(arguments.file);
  if (!(out << events << '\n').flush())
    throw Exit(ExitCode::kFailed, arguments.file + " cannot be written");
}

}  // namespace

void add_trace(CLI::App& app, Globals& globals) {
  auto arguments = std::make_shared<TraceArguments>();
  auto* trace = app.add_subcommand("trace", "Where a transfer's time went, stage by stage");
  trace->add_option("id", arguments->id, "Its id, as printed by transfer")->required();
  trace->add_option("--json", arguments->file,
                    "Also write trace events for ui.perfetto.dev and chrome://tracing to this "
                    "file; -: to standard output, and nothing else");
  trace->footer("Example: penstock trace 17 --json trace.json");
  trace->callback([&globals, arguments] { run_trace(globals, *arguments); });
}

}  // namespace penstock::app

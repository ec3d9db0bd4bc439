// penstock transfer
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/penstock/commands.hpp"
#include "apps/penstock/progress.hpp"
#include "apps/penstock/table.hpp"
#include "client/cli/quantity.hpp"
#include "client/cli/transfer_arguments.hpp"

namespace penstock::app {
namespace {

using namespace std::chrono_literals;

struct TransferCommand {
  cli::TransferArguments arguments;
  bool wait = true;
};

constexpr const char* kFooter = R"(
A page list is 0-9,12,40-31 or a file of such; sizes are 4096, 64K, 1.5G.
Examples:
  penstock transfer cache --to node-b:cache --pages 0-99 --to-pages 200-299 --page-bytes 64K
  penstock transfer cache --to node-b:cache --ranges pieces.txt --deadline 10
  penstock transfer cache --to b:cache --pages 7 --page-bytes 1M --identity job-7 --key step-3
  penstock transfer cache --to b:cache --to c:cache --pages 7 --page-bytes 1M --notify ready
  penstock transfer cache --to b:cache --pages 0-7 --row-bytes 4K --rows 16 \
      --source-pitch 16K --destination-pitch 4K --bases 0:0,1G:256M)";

/// What has landed so far, as the service tells it of running and ended transfers.
std::uint64_t landed_so_far(client::Client& client, const std::vector<std::uint64_t>& ids) {
  std::uint64_t bytes = 0;
  for (const auto& transfer : client.transfers(ids, static_cast<std::uint32_t>(ids.size()))) {
    auto told =
        nlohmann::json::parse(transfer.json, nullptr, false).value("bytes", nlohmann::json());
    if (told.is_number_unsigned()) bytes += told.get<std::uint64_t>();
  }
  return bytes;
}

/// Waits for all ends with a progress bar; an interrupt cancels what still runs.
std::vector<client::TransferResult> wait_with_progress(
    client::Client& client, const std::vector<client::Transfer>& transfers, std::uint64_t bytes) {
  watch_interrupts();
  Progress progress("transfer", bytes);
  std::vector<std::uint64_t> ids;
  for (const auto& transfer : transfers) ids.push_back(transfer.id());
  bool cancelled = false;
  std::size_t ended = 0;
  while (ended < transfers.size()) {
    // The end wakes this up at once; the limit only sets the pace of the bar.
    if (transfers[ended].wait_for(100ms)) {
      ++ended;
      continue;
    }
    if (interrupted() && !cancelled) {
      client.cancel(ids);
      cancelled = true;
    }
    if (progress.visible()) {
      progress.show(landed_so_far(client, ids), fmt::format("{} of {}", ended, transfers.size()));
    }
  }
  return client::wait_all(transfers);
}

void print_results(const Globals& globals, const std::vector<client::TransferResult>& results) {
  if (globals.json) {
    nlohmann::ordered_json all{{"transfers", nlohmann::ordered_json::array()}};
    for (const auto& result : results) {
      all["transfers"].push_back(nlohmann::ordered_json::parse(cli::to_json(result)));
    }
    std::cout << all.dump(2) << std::endl;
    return;
  }
  Table table({"ID", "STATE", "NODE", "REGION", "SIZE", "WRITES", "TIME", "GBPS", "PATH"});
  for (const auto& result : results) {
    table.add({std::to_string(result.id), client::name_of(result.state),
               result.node.empty() ? "-" : result.node, result.remote_region,
               cli::format_bytes(result.bytes), std::to_string(result.writes),
               cli::format_time_us(result.elapsed_us),
               cli::format_gbps(result.bytes, result.elapsed_us), result.path});
  }
  table.print();
}

void print_ids(const Globals& globals, const std::vector<client::Transfer>& transfers) {
  auto ids = nlohmann::json::array();
  for (const auto& transfer : transfers) {
    ids.push_back(transfer.id());
    if (!globals.json) std::cout << transfer.id() << '\n';
  }
  if (globals.json) print_json(nlohmann::json{{"ids", ids}}.dump());
}

void check_all_done(const std::vector<client::TransferResult>& results) {
  for (const auto& result : results) {
    if (result.done()) continue;
    throw Exit(ExitCode::kTransferNotDone,
               fmt::format("{}: transfer {} {}: {}", result.error_code, result.id,
                           client::name_of(result.state), result.error_message));
  }
}

void run(const Globals& globals, const TransferCommand& command) {
  cli::ParsedTransfer parsed(command.arguments);
  auto client = globals.connect();
  auto transfers = client.transfer(std::vector{parsed.spec()});
  if (!command.wait) return print_ids(globals, transfers);
  auto bytes = client::bytes_of(parsed.spec().layout) * transfers.size();
  auto results = wait_with_progress(client, transfers, bytes);
  print_results(globals, results);
  check_all_done(results);
}

void add_layout_options(CLI::App& command, cli::TransferArguments& arguments) {
  const char* paged = "Pages";
  command.add_option("--pages", arguments.pages, "Source pages: a list or a file")->group(paged);
  command
      .add_option("--to-pages", arguments.destination_pages,
                  "Destination pages; default: the same as the source")
      ->group(paged);
  command.add_option("--page-bytes", arguments.page_bytes, "Size of a page")->group(paged);
  command
      .add_option("--bases", arguments.bases,
                  "SOURCE:DESTINATION,... offsets at which the lists apply, one pair per layer")
      ->group(paged);
  command.add_option("--source-stride", arguments.source_stride, "From page to page in the source")
      ->group(paged);
  command
      .add_option("--destination-stride", arguments.destination_stride,
                  "From page to page in the destination")
      ->group(paged);

  const char* strided = "Strided pages (with --pages, instead of --page-bytes)";
  command.add_option("--row-bytes", arguments.row_bytes, "Size of a row")->group(strided);
  command.add_option("--rows", arguments.rows, "Rows of a page")->group(strided);
  command.add_option("--source-pitch", arguments.source_pitch, "From row to row in the source")
      ->group(strided);
  command
      .add_option("--destination-pitch", arguments.destination_pitch,
                  "From row to row in the destination")
      ->group(strided);

  command
      .add_option("--ranges", arguments.ranges,
                  "File of lines SOURCE DESTINATION LENGTH; -: standard input")
      ->group("Ranges");
}

}  // namespace

void add_transfer(CLI::App& app, Globals& globals) {
  auto command = std::make_shared<TransferCommand>();
  auto& arguments = command->arguments;
  auto* transfer = app.add_subcommand("transfer", "Moves memory between two regions");
  transfer->add_option("region", arguments.region, "Region of the service's own node, or of --on")
      ->required();
  transfer->add_option("--to", arguments.targets, "NODE:REGION, the other side; repeat to scatter")
      ->required()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  transfer->add_flag("--read", arguments.read,
                     "Read from the other side; its offsets are then the source");
  transfer->add_flag("--urgent", arguments.urgent, "Go before bulk transfers");
  transfer->add_option("--deadline", arguments.deadline_s, "Seconds; default: the service's");
  transfer->add_option("--weight", arguments.weight, "1 to 1000: share among its peers' transfers")
      ->check(CLI::Range(1, 1000));
  auto* identity =
      transfer
          ->add_option("--identity", globals.identity,
                       "Name of the client that asks, of one command at a time; default: random")
          ->check(
              [](const std::string& name) {
                return name.empty() ? "an empty name" : std::string();
              },
              "");
  transfer
      ->add_option("--key", arguments.key,
                   "Idempotency key: asked again by the same --identity, it is the same transfer")
      ->needs(identity);
  transfer->add_option(
      "--notify", arguments.notify,
      "Up to 1 KiB for the destination's subscribers, when the last byte is there");
  transfer->add_option("--packing", arguments.packing,
                       "auto (as measured costs say), always, never: small pages in long writes");
  transfer->add_option(
      "--path", arguments.path,
      "auto, staged (through pinned host memory) or gpudirect: that way or an error");
  transfer->add_option("--on", arguments.on,
                       "Node that carries it out: REGION is one of its, and the service asks it");
  transfer->add_flag("--verify", arguments.verify,
                     "Done only when both sides have the same digests, page by page");
  transfer->add_flag("--wait,!--no-wait", command->wait,
                     "Wait for the end (default), or print the ids and go");
  add_layout_options(*transfer, arguments);
  transfer->footer(kFooter);
  transfer->callback([&globals, command] { run(globals, *command); });
}

}  // namespace penstock::app

// penstock transfers, penstock cancel
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "apps/penstock/commands.hpp"
#include "apps/penstock/table.hpp"
#include "client/cli/quantity.hpp"

namespace penstock::app {
namespace {

struct TransfersArguments {
  std::vector<std::uint64_t> ids;
  std::uint32_t limit = 20;
};

std::string text_of(const nlohmann::json& body, const char* key) {
  auto found = body.find(key);
  if (found == body.end() || found->is_null()) return "-";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::string size_of(const nlohmann::json& body) {
  auto found = body.find("bytes");
  if (found == body.end() || !found->is_number_unsigned()) return "-";
  return cli::format_bytes(found->get<std::uint64_t>());
}

/// That of the node that carries it out, where that is another one.
std::string region_of(const nlohmann::json& body) {
  return body.contains("on") ? text_of(body, "on") + ":" + text_of(body, "region")
                             : text_of(body, "region");
}

void list(const Globals& globals, const TransfersArguments& arguments) {
  auto client = globals.connect();
  auto transfers = client.transfers(arguments.ids, arguments.limit);
  auto all = nlohmann::json::array();
  Table table({"ID", "STATE", "DIRECTION", "REGION", "NODE", "REMOTE REGION", "SIZE", "ERROR"});
  for (const auto& transfer : transfers) {
    auto body = nlohmann::json::parse(transfer.json);
    table.add({std::to_string(transfer.id), transfer.state, text_of(body, "direction"),
               region_of(body), text_of(body, "node"), text_of(body, "remote_region"),
               size_of(body), transfer.result ? transfer.result->error_code : ""});
    all.push_back(std::move(body));
  }
  if (globals.json) return print_json(nlohmann::json{{"transfers", all}}.dump());
  table.print();
}

void cancel(const Globals& globals, const TransfersArguments& arguments) {
  auto client = globals.connect();
  auto reply = client.call("cancel", nlohmann::json{{"ids", arguments.ids}}.dump());
  auto unknown = nlohmann::json::parse(reply).at("unknown").get<std::vector<std::uint64_t>>();
  if (globals.json) print_json(nlohmann::json{{"unknown", unknown}}.dump());
  if (unknown.empty()) return;
  throw Exit(
      ExitCode::kFailed,
      fmt::format("NOT_FOUND: the service knows no transfer {}: mistyped, another node's, or "
                  "ended longer ago than request.results_kept_s; 'penstock transfers' lists "
                  "those it knows{}",
                  fmt::join(unknown, ", "),
                  unknown.size() < arguments.ids.size() ? "; the others are stopped" : ""));
}

}  // namespace

void add_transfers(CLI::App& app, Globals& globals) {
  auto arguments = std::make_shared<TransfersArguments>();
  auto* transfers = app.add_subcommand("transfers", "The transfers that the service knows");
  transfers->add_option("ids", arguments->ids, "Only these; default: the newest");
  transfers->add_option("--limit", arguments->limit, "How many at most")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  transfers->footer("Example: penstock transfers --limit 100 --json");
  transfers->callback([&globals, arguments] { list(globals, *arguments); });

  auto* cancel_command = app.add_subcommand("cancel", "Stops transfers; their ends still come");
  cancel_command->add_option("ids", arguments->ids, "Ids, as printed by transfer")->required();
  cancel_command->footer("Example: penstock cancel 17 18");
  cancel_command->callback([&globals, arguments] { cancel(globals, *arguments); });
}

}  // namespace penstock::app

// penstock fill, penstock digest
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/penstock/commands.hpp"
#include "client/cli/page_list.hpp"
#include "client/cli/quantity.hpp"

namespace penstock::app {
namespace {

struct VerifyArguments {
  std::string region;
  std::string seed = "0";
  std::string offset = "0";
  std::string bytes = "0";
  std::string page_bytes = "64K";
  std::string pages;
};

void fill(const Globals& globals, const VerifyArguments& arguments) {
  auto seed = cli::parse_u64(arguments.seed, "seed");
  auto offset = cli::parse_bytes(arguments.offset);
  auto bytes = cli::parse_bytes(arguments.bytes);
  auto client = globals.connect();
  client.fill(arguments.region, seed, offset, bytes);
  if (globals.json) print_json("{}");
}

std::vector<std::uint64_t> digests_of(client::Client& client, const VerifyArguments& arguments,
                                      const std::vector<std::uint32_t>& pages) {
  auto page_bytes = cli::parse_bytes(arguments.page_bytes);
  auto offset = cli::parse_bytes(arguments.offset);
  if (!arguments.pages.empty()) return client.digest(arguments.region, page_bytes, pages, offset);
  return client.digest(arguments.region, page_bytes, offset, cli::parse_bytes(arguments.bytes));
}

void digest(const Globals& globals, const VerifyArguments& arguments) {
  std::vector<std::uint32_t> pages;
  if (!arguments.pages.empty()) pages = cli::page_list_or_file(arguments.pages);
  auto client = globals.connect();
  auto digests = digests_of(client, arguments, pages);
  nlohmann::json words = nlohmann::json::array();
  for (std::size_t i = 0; i < digests.size(); ++i) {
    auto word = fmt::format("{:016x}", digests[i]);
    if (globals.json) {
      words.push_back(word);
    } else {
      std::cout << fmt::format("{} {}\n", pages.empty() ? i : pages[i], word);
    }
  }
  if (globals.json) print_json(nlohmann::json{{"digests", words}}.dump());
}

}  // namespace

void add_verify(CLI::App& app, Globals& globals) {
  auto arguments = std::make_shared<VerifyArguments>();
  auto* fill_command = app.add_subcommand("fill", "Fills a region with a pattern");
  fill_command->add_option("region", arguments->region, "Region of this node")->required();
  fill_command->add_option("--seed", arguments->seed, "Another seed, another pattern")
      ->capture_default_str();
  fill_command->add_option("--offset", arguments->offset, "Where to start")->capture_default_str();
  fill_command->add_option("--bytes", arguments->bytes, "How much; 0: to the end")
      ->capture_default_str();
  fill_command->footer("Example: penstock fill cache --seed 7");
  fill_command->callback([&globals, arguments] { fill(globals, *arguments); });

  auto* digest_command =
      app.add_subcommand("digest", "Prints the XXH3 digest of each page: PAGE DIGEST");
  digest_command->add_option("region", arguments->region, "Region of this node")->required();
  digest_command->add_option("--page-bytes", arguments->page_bytes, "Size of a page")
      ->capture_default_str();
  digest_command->add_option("--pages", arguments->pages, "Only these: 0-9,12 or a file");
  digest_command->add_option("--offset", arguments->offset, "Where page 0 starts")
      ->capture_default_str();
  digest_command->add_option("--bytes", arguments->bytes, "How much; 0: to the end")
      ->capture_default_str();
  digest_command->footer("Example: penstock digest cache --page-bytes 64K --pages 0-9,12");
  digest_command->callback([&globals, arguments] { digest(globals, *arguments); });
}

}  // namespace penstock::app

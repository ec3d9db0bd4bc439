// penstock keygen: a key pair for a service, a cluster or a client.
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "actors/security/key.hpp"
#include "apps/penstock/commands.hpp"

namespace penstock::app {

void add_keygen(CLI::App& app, Globals& globals) {
  auto file = std::make_shared<std::string>();
  auto* keygen = app.add_subcommand(
      "keygen", "Makes a key pair: FILE, the secret key (mode 0600), and FILE.pub");
  keygen->add_option("file", *file, "Where to; nothing is overwritten")->required();
  keygen->footer(
      "Example, a service and a client that may transfer:\n"
      "  penstock keygen service.key && penstock keygen me.key\n"
      "  echo \"transfer me $(cat me.key.pub)\" >> clients\n"
      "  penstockd --set security.key_file=service.key --set security.allow_list=clients ...\n"
      "  penstock --key-file me.key --server-key service.key.pub status");
  keygen->callback([&globals, file] {
    const auto made = write_key_files(*file);
    if (!made)
      throw Exit(ExitCode::kFailed,
                 fmt::format("{}: {}", name_of(made.error().code), made.error().message));
    const std::string key = z85_of(made->public_key);
    if (globals.json)
      print_json(nlohmann::json{{"file", *file}, {"public_key", key}}.dump());
    else
      std::cout << fmt::format("{}\n", key);
  });
}

}  // namespace penstock::app

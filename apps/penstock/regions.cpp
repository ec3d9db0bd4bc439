// penstock regions, allocate, register, release
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/penstock/commands.hpp"
#include "apps/penstock/table.hpp"
#include "client/cli/quantity.hpp"

namespace penstock::app {
namespace {

struct RegionArguments {
  std::string name;
  std::string bytes;
  std::string device;
  std::string shared_name;
  std::string offset = "0";
  std::string memory = "host";
  int gpu = -1;
  bool force = false;
};

void list_regions(const Globals& globals) {
  auto client = globals.connect();
  if (globals.json) return print_json(client.call("regions", "{}"));
  Table table({"REGION", "BYTES", "SIZE", "DEVICE", "KIND", "EPOCH", "SHARED MEMORY"});
  for (const auto& region : client.regions()) {
    table.add({region.name, std::to_string(region.bytes), cli::format_bytes(region.bytes),
               region.device, region.kind, std::to_string(region.epoch),
               region.shared_name.empty() ? "-" : region.shared_name});
  }
  table.print();
}

void print_made(const Globals& globals, const client::RegionInfo& region) {
  if (globals.json) {
    return print_json(nlohmann::json{{"name", region.name},
                                     {"bytes", region.bytes},
                                     {"device", region.device},
                                     {"kind", region.kind},
                                     {"epoch", region.epoch},
                                     {"shared_name", region.shared_name}}
                          .dump());
  }
  std::cout << fmt::format("{}: {} on {}, shared memory {}\n", region.name,
                           cli::format_bytes(region.bytes), region.device,
                           region.shared_name.empty() ? "none" : region.shared_name);
}

void allocate(const Globals& globals, const RegionArguments& arguments) {
  auto bytes = cli::parse_bytes(arguments.bytes);
  auto client = globals.connect();
  auto region =
      arguments.memory == "cuda"
          ? client.allocate_cuda(arguments.name, bytes, arguments.gpu, arguments.device)
          : client.allocate(arguments.name, bytes, arguments.device, client::MapMemory::kNo);
  region.detach();
  print_made(globals, region.info());
}

void register_region(const Globals& globals, const RegionArguments& arguments) {
  auto bytes = cli::parse_bytes(arguments.bytes);
  auto offset = cli::parse_bytes(arguments.offset);
  auto client = globals.connect();
  auto region = client.register_region(arguments.name, arguments.shared_name, offset, bytes,
                                       arguments.device);
  region.detach();
  print_made(globals, region.info());
}

void release(const Globals& globals, const RegionArguments& arguments) {
  auto client = globals.connect();
  client.release(arguments.name, arguments.force);
  if (globals.json) print_json("{}");
}

void add_allocate(CLI::App& app, Globals& globals, std::shared_ptr<RegionArguments> arguments) {
  auto* command = app.add_subcommand("allocate", "Lets the service allocate a region");
  command->add_option("name", arguments->name, "Name of the region")->required();
  command->add_option("bytes", arguments->bytes, "Size: 4096, 64K, 1.5G")->required();
  command->add_option("--device", arguments->device, "Device, as in status; default: its choice");
  command->add_option("--memory", arguments->memory, "host, or cuda: memory of a GPU")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  command->add_option("--gpu", arguments->gpu,
                      "Which, as the service numbers them; default: the device's");
  command->footer("Example: penstock allocate cache 1G");
  command->callback([&globals, arguments] { allocate(globals, *arguments); });
}

void add_register(CLI::App& app, Globals& globals, std::shared_ptr<RegionArguments> arguments) {
  auto* command =
      app.add_subcommand("register", "Makes a region of a shared-memory segment of your own");
  command->add_option("name", arguments->name, "Name of the region")->required();
  command->add_option("shared-name", arguments->shared_name, "Segment, as for shm_open: /mine")
      ->required();
  command->add_option("bytes", arguments->bytes, "Size: 4096, 64K, 1.5G")->required();
  command->add_option("--offset", arguments->offset, "Where in the segment it starts")
      ->capture_default_str();
  command->add_option("--device", arguments->device, "Device, as in status; default: its choice");
  command->footer("Example: penstock register cache /my-segment 256M --offset 4096");
  command->callback([&globals, arguments] { register_region(globals, *arguments); });
}

void add_release(CLI::App& app, Globals& globals, std::shared_ptr<RegionArguments> arguments) {
  auto* command = app.add_subcommand("release", "Releases a region");
  command->add_option("name", arguments->name, "Name of the region")->required();
  command->add_flag("--force", arguments->force, "Cancel the transfers that use it, then release");
  command->footer("Example: penstock release cache --force");
  command->callback([&globals, arguments] { release(globals, *arguments); });
}

}  // namespace

void add_regions(CLI::App& app, Globals& globals) {
  auto* list = app.add_subcommand("regions", "The regions of the service");
  list->footer("Example: penstock regions");
  list->callback([&globals] { list_regions(globals); });
  auto arguments = std::make_shared<RegionArguments>();
  add_allocate(app, globals, arguments);
  add_register(app, globals, arguments);
  add_release(app, globals, arguments);
}

}  // namespace penstock::app

#include "apps/penstock/raw_yardstick.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string_view>

#include "apps/penstock/child_process.hpp"
#include "apps/penstock/commands.hpp"
#include "transport/bench/raw_loop.hpp"
#include "transport/bench/raw_memory.hpp"

namespace penstock::app {
namespace {

constexpr std::chrono::milliseconds kOpenPatience(30000);  // it touches all its memory first
constexpr std::chrono::milliseconds kAnswerPatience(5000);

template <class T>
T or_throw(Result<T> result) {
  if (!result) throw Exit(ExitCode::kFailed, "the bare loop: " + result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

RawOptions raw_options(const YardstickOptions& options) {
  RawOptions raw;
  raw.provider = options.provider;
  if (options.provider == "tcp") {
    raw.domain = "lo";
    raw.address = "127.0.0.1";
  }
  raw.window_bytes = options.window_bytes;
  raw.window_operations = options.window_operations;
  raw.huge_pages = options.huge_pages;
  return raw;
}

// In the order of the enumeration.
constexpr std::array<std::string_view, 3> kHugePages{"auto", "never", "always"};

std::optional<HugePages> parse_huge_pages(std::string_view word) {
  for (std::size_t i = 0; i < kHugePages.size(); ++i) {
    if (word == kHugePages[i]) return static_cast<HugePages>(i);
  }
  return std::nullopt;
}

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      throw Exit(ExitCode::kFailed, fmt::format("no pipe: {}", std::strerror(errno)));
    }
    read_end = ends[0];
    write_end = ends[1];
  }
};

std::vector<std::string> target_command(const YardstickOptions& options) {
  return {own_binary(),
          "raw-target",
          "--provider",
          options.provider,
          "--bytes",
          std::to_string(options.region_bytes),
          "--window",
          std::to_string(options.window_bytes),
          "--window-operations",
          std::to_string(options.window_operations),
          "--huge-pages",
          std::string(kHugePages[static_cast<std::size_t>(options.huge_pages)])};
}

}  // namespace

HugePages huge_pages_of(const std::vector<std::string>& settings) {
  constexpr std::string_view kKey = "memory.huge_pages=";
  auto choice = HugePages::kAuto;
  for (const auto& setting : settings) {  // the last one holds; the services check the word
    if (!setting.starts_with(kKey)) continue;
    choice = parse_huge_pages(setting.substr(kKey.size())).value_or(HugePages::kAuto);
  }
  return choice;
}

struct RawYardstick::Parts {
  explicit Parts(const YardstickOptions& options)
      : memory(or_throw(RawMemory::allocate(options.region_bytes, options.huge_pages))) {}

  RawMemory memory;
  std::optional<RawTargetControl> control;
  std::optional<ChildProcess> target;
  std::unique_ptr<RawInitiator> initiator;
  std::vector<RawOperation> operations;
};

RawYardstick::RawYardstick(const YardstickOptions& options, std::filesystem::path log)
    : parts_(std::make_unique<Parts>(options)) {
  std::signal(SIGPIPE, SIG_IGN);  // a target that died is an error, not our end
  Pipe commands, replies;
  parts_->control.emplace(commands.write_end, replies.read_end);
  parts_->target.emplace(target_command(options), std::move(log),
                         ChildStreams{commands.read_end, replies.write_end});
  ::close(commands.read_end);
  ::close(replies.write_end);
  auto description = or_throw(parts_->control->description(kOpenPatience));
  parts_->initiator =
      or_throw(RawInitiator::open(raw_options(options), parts_->memory.bytes(), description));
}

RawYardstick::~RawYardstick() {
  parts_->initiator.reset();
  parts_->control.reset();  // the target sees the end of its pipe, gives its memory back and exits
  if (parts_->target) parts_->target->wait(kAnswerPatience);
}

const std::string& RawYardstick::shared_name() const {
  return parts_->memory.memory()->shared_name();
}

workload::Measurement RawYardstick::move(client::Direction direction, std::uint64_t page_bytes,
                                         const std::vector<std::uint32_t>& source_pages,
                                         const std::vector<std::uint32_t>& destination_pages) {
  bool read = direction == client::Direction::kRead;
  const auto& local = read ? destination_pages : source_pages;
  const auto& remote = read ? source_pages : destination_pages;
  auto& operations = parts_->operations;
  operations.clear();
  for (std::size_t i = 0; i < local.size(); ++i) {
    operations.push_back({local[i] * page_bytes, remote[i] * page_bytes, page_bytes});
  }
  auto target_cpu = parts_->target->cpu_seconds();
  or_throw(parts_->control->start(kAnswerPatience));
  auto run = or_throw(parts_->initiator->run(
      operations, read ? penstock::Direction::kRead : penstock::Direction::kWrite));
  or_throw(parts_->control->stop(kAnswerPatience));
  using Seconds = std::chrono::duration<double>;
  return {run.bytes, run.operations, Seconds(run.elapsed).count(),
          Seconds(run.cpu).count() + parts_->target->cpu_seconds() - target_cpu};
}

void add_raw_target(CLI::App& app) {
  auto options = std::make_shared<YardstickOptions>();
  auto* command = app.add_subcommand("raw-target", "The other end of the bare loop");
  command->group("");  // hidden
  command->add_option("--provider", options->provider);
  command->add_option("--bytes", options->region_bytes)->required();
  command->add_option("--window", options->window_bytes);
  command->add_option("--window-operations", options->window_operations);
  auto pages = std::make_shared<std::string>("auto");
  command->add_option("--huge-pages", *pages);
  command->callback([options, pages] {
    options->huge_pages = parse_huge_pages(*pages).value_or(HugePages::kAuto);
    int code =
        serve_raw_target(raw_options(*options), options->region_bytes, STDIN_FILENO, STDOUT_FILENO);
    if (code != 0) throw Exit(ExitCode::kFailed, "");
  });
}

}  // namespace penstock::app

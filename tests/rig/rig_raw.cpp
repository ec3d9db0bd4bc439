// The rig's yardstick: one side of a bare libfabric loop over many cards. Driven by rig.py over
// lines on standard input; answers in lines of JSON.
//
//   rig_raw target    PART_BYTES WINDOW_BYTES PAGE_BYTES DOMAIN:ADDRESS...
//     -> ["description", ...]; then go, stop -> {"cpu_s": ..}
//   rig_raw initiator (the same arguments), first line of input: the target's answer
//     -> []; then go, sample -> {"t", "cpu_s", "bytes": [..]}, stop -> {}
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>

#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "transport/bench/raw_multi.hpp"

namespace penstock {
namespace {

/// Rounds of work between looks at standard input: a look is a system call.
constexpr int kRoundsPerLook = 256;

struct Arguments {
  bool target = false;
  std::uint64_t part_bytes = 0;
  std::uint64_t page_bytes = 0;
  std::vector<RawOptions> cards;
};

template <class Value>
Value check(Result<Value> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "rig_raw: {}\n", result.error().message);
  std::exit(1);
}
void check(Result<void> result) {
  if (result) return;
  fmt::print(stderr, "rig_raw: {}\n", result.error().message);
  std::exit(1);
}

std::span<std::byte> map_memory(std::uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory != MAP_FAILED) return {static_cast<std::byte*>(memory), bytes};
  fmt::print(stderr, "rig_raw: no {} bytes of memory\n", bytes);
  std::exit(1);
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

double steady_seconds() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

void answer(const nlohmann::json& json) { std::cout << json.dump() << std::endl; }

/// The next line, "" when none is there and `wait` is false. Ends the process with its input.
std::string next_line(bool wait) {
  pollfd descriptor{STDIN_FILENO, POLLIN, 0};
  if (!wait && ::poll(&descriptor, 1, 0) == 0) return {};
  std::string line;
  if (!std::getline(std::cin, line)) std::exit(0);
  return line;
}

/// `work` runs between go and stop.
template <class Work, class Report>
void serve(Work work, Report report) {
  bool going = false;
  for (;;) {
    for (int round = 0; going && round < kRoundsPerLook; ++round) work();
    const std::string command = next_line(!going);
    if (command.empty()) continue;
    if (command == "go") going = true;
    if (command == "stop") going = false;
    answer(report(command));
  }
}

std::string to_hex(const RawDescription& bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

RawDescription from_hex(const std::string& text) {
  RawDescription bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

void run_target(const Arguments& arguments) {
  const auto memory = map_memory(arguments.part_bytes * arguments.cards.size());
  std::vector<std::unique_ptr<RawTarget>> targets;
  auto descriptions = nlohmann::json::array();
  for (std::size_t i = 0; i < arguments.cards.size(); ++i) {
    const auto part = memory.subspan(i * arguments.part_bytes, arguments.part_bytes);
    targets.push_back(check(RawTarget::open(arguments.cards[i], part)));
    descriptions.push_back(to_hex(targets.back()->description()));
  }
  answer(descriptions);
  serve(
      [&] {
        for (const auto& target : targets) target->progress();
      },
      [](const std::string&) {
        return nlohmann::json{{"t", steady_seconds()}, {"cpu_s", cpu_seconds()}};
      });
}

void run_initiator(const Arguments& arguments) {
  std::vector<RawDescription> descriptions;
  for (const auto& text : nlohmann::json::parse(next_line(true)))
    descriptions.push_back(from_hex(text.get<std::string>()));
  const auto memory = map_memory(arguments.part_bytes * arguments.cards.size());
  const auto streams =
      check(RawStreams::open(arguments.cards, descriptions, memory, arguments.page_bytes));
  answer(nlohmann::json::array());
  serve([&] { check(streams->step()); },
        [&](const std::string& command) {
          if (command == "stop") check(streams->finish());
          return nlohmann::json{{"t", steady_seconds()},
                                {"cpu_s", cpu_seconds()},
                                {"bytes", streams->completed_bytes()}};
        });
}

Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  arguments.target = words.at(0) == "target";
  arguments.part_bytes = std::stoull(words.at(1));
  arguments.page_bytes = std::stoull(words.at(3));
  for (std::size_t i = 4; i < words.size(); ++i) {
    RawOptions card;
    const auto colon = words[i].find(':');
    card.domain = words[i].substr(0, colon);
    card.address = words[i].substr(colon + 1);
    card.window_bytes = std::stoull(words.at(2));
    card.window_operations = 1024;
    arguments.cards.push_back(card);
  }
  return arguments;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  try {
    const auto arguments = penstock::parse({argv + 1, argv + argc});
    arguments.target ? penstock::run_target(arguments) : penstock::run_initiator(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "rig_raw: {}\n", error.what());
  }
  return 1;
}

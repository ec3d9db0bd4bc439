// penstock doctor: gathers the facts; client/cli/host_limits.hpp judges them.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/penstock/commands.hpp"
#include "apps/penstock/table.hpp"
#include "client/cli/host_limits.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/memory/huge_pages.hpp"
#include "transport/topology/cpu_list.hpp"
#include "transport/topology/topology.hpp"

namespace penstock::app {
namespace {

using cli::Finding;

struct DoctorArguments {
  std::string provider;
  bool no_service = false;
};

std::uint64_t soft_limit(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY ? cli::kUnlimited : limit.rlim_cur;
}

/// The number after `key:` in /proc/meminfo; sizes there are in kB.
std::uint64_t meminfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":"))
      return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10);
  }
  return 0;
}

void gather_shared_memory(cli::HostFacts& facts) {
  constexpr auto kTmpfs = 0x01021994;
  struct statfs kind {};
  struct statvfs space {};
  if (::statfs("/dev/shm", &kind) != 0 || kind.f_type != kTmpfs) return;
  if (::statvfs("/dev/shm", &space) != 0) return;
  facts.shared_total_bytes = std::uint64_t{space.f_blocks} * space.f_frsize;
  facts.shared_free_bytes = std::uint64_t{space.f_bavail} * space.f_frsize;
}

/// The word in brackets of "always within_size [never] deny".
std::string chosen_word(const char* path) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (word.starts_with('[') && word.ends_with(']')) return word.substr(1, word.size() - 2);
  }
  return "";
}

void gather_huge_pages(cli::HostFacts& facts) {
  facts.shared_huge = shared_memory_huge_option();
  facts.shmem_enabled = chosen_word("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  auto mounts = huge_page_mounts();
  if (mounts.empty()) return;
  facts.huge_page_folder = mounts.front().folder;
  facts.huge_page_bytes = mounts.front().page_bytes;
  facts.huge_pages = mounts.front().total_pages;
  facts.free_huge_pages = mounts.front().free_pages;
}

cli::HostFacts gather(const DoctorArguments& arguments) {
  cli::HostFacts facts;
  facts.open_files = soft_limit(RLIMIT_NOFILE);
  facts.locked_bytes = soft_limit(RLIMIT_MEMLOCK);
  gather_shared_memory(facts);
  facts.memory_bytes = meminfo("MemTotal") * 1024;
  gather_huge_pages(facts);
  auto cpus = process_cpus();
  facts.allowed_cpus = static_cast<unsigned>(cpus.size());
  facts.online_cpus = static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN));
  facts.allowed_cpu_list = format_cpus(cpus);
  facts.provider_locks_memory = arguments.provider == "efa" || arguments.provider == "verbs";
  return facts;
}

Finding check_provider(const std::string& provider) {
  auto subject = "provider " + provider;
  auto cards = list_cards(provider);
  if (!cards) {
    return {Finding::Severity::kProblem, subject, cards.error().message,
            "install the provider, or configure one of those that are there"};
  }
  if (cards->empty()) {
    return {Finding::Severity::kProblem, subject, "there, but it offers no card",
            "look at the network interfaces (ip addr) and their drivers"};
  }
  std::string names;
  for (const auto& card : *cards) {
    names += (names.empty() ? "" : ", ") + card.domain;
    if (!card.address.empty()) names += " " + card.address;
  }
  return {Finding::Severity::kOk, subject, fmt::format("{} cards: {}", cards->size(), names), ""};
}

Finding check_service(const Globals& globals) {
  try {
    auto service = globals.connect().service();
    return {Finding::Severity::kOk, "service",
            fmt::format("node {} answers at {}", service.node, globals.endpoint), ""};
  } catch (const Exit& error) {
    return {Finding::Severity::kProblem, "service", error.what(),
            "start penstockd, or name its endpoint with --endpoint; --no-service skips this"};
  }
}

void print(const Globals& globals, const std::vector<Finding>& findings) {
  if (globals.json) {
    auto list = nlohmann::json::array();
    for (const auto& finding : findings) {
      list.push_back({{"severity", cli::name_of(finding.severity)},
                      {"subject", finding.subject},
                      {"found", finding.found},
                      {"advice", finding.advice}});
    }
    return print_json(nlohmann::json{{"findings", list}}.dump());
  }
  Table table({"CHECK", "VERDICT", "FOUND"});
  for (const auto& finding : findings) {
    table.add({finding.subject, cli::name_of(finding.severity), finding.found});
  }
  table.print();
  for (const auto& finding : findings) {
    if (!finding.advice.empty()) {
      std::cout << fmt::format("\n{}: {}\n", finding.subject, finding.advice);
    }
  }
}

void run(const Globals& globals, const DoctorArguments& arguments) {
  auto findings = cli::judge(gather(arguments));
  findings.push_back(check_provider(arguments.provider));
  if (!arguments.no_service) findings.push_back(check_service(globals));
  print(globals, findings);
  if (cli::has_problem(findings)) throw Exit(ExitCode::kFailed, "");
}

}  // namespace

void add_doctor(CLI::App& app, Globals& globals) {
  auto arguments = std::make_shared<DoctorArguments>();
  auto* doctor = app.add_subcommand(
      "doctor", "Checks limits, memory, CPUs, provider, cards and service, and says what to do");
  doctor->add_option("--provider", arguments->provider, "tcp, shm, verbs or efa")
      ->default_val("tcp");
  doctor->add_flag("--no-service", arguments->no_service, "Do not look for a running service");
  doctor->footer("Example: penstock doctor --provider efa --no-service");
  doctor->callback([&globals, arguments] { run(globals, *arguments); });
}

}  // namespace penstock::app

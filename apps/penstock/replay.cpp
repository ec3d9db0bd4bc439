// penstock replay: a serving trace between two services on this machine.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "apps/penstock/commands.hpp"
#include "apps/penstock/local_cluster.hpp"
#include "apps/penstock/machine_room.hpp"
#include "apps/penstock/replay_run.hpp"
#include "apps/penstock/table.hpp"
#include "client/cli/quantity.hpp"
#include "client/cli/usage_error.hpp"
#include "client/workload/trace.hpp"

namespace penstock::app {
namespace {

constexpr const char* kFooter = R"(
One service prefills, the other decodes. For each request of the trace the KV-cache blocks that the
decoder lacks are written into free pages of its pool; the least recently used blocks leave. Each
page is cleared before it is written and compared after it landed.

The pools hold one rank's share of the model's KV cache, and by default only 2 of its layers, so that
the replay fits small machines: --layers 0 takes all.

Example:
  penstock replay conversation_trace.jsonl --limit 1000 --model llama-3-8b --tensor-parallel 2)";

struct Arguments {
  std::string file;
  std::uint64_t limit = 0;
  std::string model = "llama-3-70b";
  // 0: as the model has it.
  std::uint32_t layers = 2;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_size = 0;
  std::uint32_t bytes_per_value = 2;
  std::uint32_t page_tokens = 64;
  std::uint32_t tensor_parallel = 8;
  std::string pool = "1GiB";
  std::string prefill_pool = "1GiB";
  std::string page_order = "scattered";
  double speed = 0;
  std::size_t concurrency = 4;
  bool no_verify = false;
  bool corrupt_one = false;
  std::string memory = "host";
  std::string path;
  bool same_node = false;
  std::string provider = "tcp";
  std::vector<std::string> settings;
};

workload::KvGeometry geometry_of(const Arguments& arguments) {
  try {
    auto geometry = workload::model_geometry(arguments.model);
    if (arguments.layers != 0) geometry.layers = arguments.layers;
    if (arguments.kv_heads != 0) geometry.kv_heads = arguments.kv_heads;
    if (arguments.head_size != 0) geometry.head_size = arguments.head_size;
    geometry.bytes_per_value = arguments.bytes_per_value;
    geometry.page_tokens = arguments.page_tokens;
    geometry.tensor_parallel = arguments.tensor_parallel;
    geometry.check();
    return geometry;
  } catch (const std::invalid_argument& error) {
    throw cli::UsageError(error.what());
  }
}

std::vector<workload::TraceRequest> read_requests(const Arguments& arguments) {
  try {
    return workload::read_trace(arguments.file, arguments.limit);
  } catch (const workload::TraceError& error) {
    throw Exit(ExitCode::kUsage, error.what());
  }
}

void print(const workload::ReplayReport& report, const workload::KvGeometry& geometry) {
  auto percent = [&](std::uint64_t hits) {
    auto blocks = static_cast<double>(std::max<std::uint64_t>(report.blocks, 1));
    return fmt::format("{} ({:.1f} %)", hits, 100.0 * static_cast<double>(hits) / blocks);
  };
  auto latency = [](const workload::Latency& ms) {
    return fmt::format("p50 {:.2f} ms, p99 {:.2f} ms, max {:.2f} ms", ms.p50, ms.p99, ms.max);
  };
  Table table({"replay", ""});
  table.add(
      {"KV cache", fmt::format("{} layers x {} per rank, pages of {} tokens: {} per layer and "
                               "tensor",
                               geometry.layers, geometry.tensors == 1 ? "latent" : "K and V",
                               geometry.page_tokens, cli::format_bytes(geometry.page_bytes()))});
  table.add({"requests", fmt::format("{}, {} of them moved nothing", report.requests,
                                     report.requests_without_move)});
  table.add({"blocks", std::to_string(report.blocks)});
  table.add({"decoder hits", percent(report.decoder_hits)});
  table.add({"prefill hits", percent(report.prefill_hits)});
  table.add({"evicted blocks", std::to_string(report.decoder_evictions)});
  table.add({"pages moved", fmt::format("{} in {} writes", report.pages, report.writes)});
  table.add({"bytes moved", cli::format_bytes(report.bytes)});
  for (const auto& [path, transfers] : report.paths)
    table.add({"path " + path, fmt::format("{} transfers", transfers)});
  table.add({"rate", fmt::format("{:.2f} Gbps while transfers were under way ({:.2f} of {:.2f} s)",
                                 report.gbps(), report.busy_s, report.wall_s)});
  table.add({"hand-over", latency(report.hand_over_ms)});
  table.add({"queueing",
             fmt::format("{:.2f} s together, {}", report.queueing_s, latency(report.queueing_ms))});
  table.add({"verified", report.verify ? fmt::format("{} pages, {} different",
                                                     report.verified_pages, report.different_pages)
                                       : "no (--no-verify)"});
  table.print();
}

void run(const Arguments& arguments, const Globals& globals) {
  if (arguments.corrupt_one && arguments.no_verify) {
    throw cli::UsageError("--corrupt-one proves the verification; --no-verify leaves it out");
  }
  ReplayOptions options;
  options.geometry = geometry_of(arguments);
  options.decoder_pool_bytes = cli::parse_bytes(arguments.pool);
  options.prefill_pool_bytes = cli::parse_bytes(arguments.prefill_pool);
  options.scattered = arguments.page_order == "scattered";
  options.speed = arguments.speed;
  options.concurrency = arguments.concurrency;
  options.verify = !arguments.no_verify;
  options.corrupt_one = arguments.corrupt_one;
  options.memory = memory_of(arguments.memory);
  options.path = arguments.path;
  auto requests = read_requests(arguments);
  if (options.memory == Memory::kHost)
    require_memory(
        {.shared_bytes = options.decoder_pool_bytes + options.prefill_pool_bytes, .other_bytes = 0},
        "--pool or --prefill-pool");

  watch_interrupts();
  LocalCluster cluster({.nodes = arguments.same_node
                                     ? std::vector<std::string>{"prefill"}
                                     : std::vector<std::string>{"prefill", "decoder"},
                        .provider = arguments.provider,
                        .settings = arguments.settings,
                        .gpus = options.memory == Memory::kCuda});
  options.watch = [&cluster] { cluster.check(); };
  workload::ReplayReport report;
  try {
    ReplayRun replay(cluster.client(0), cluster.client(arguments.same_node ? 0 : 1), options);
    report = replay.run(requests);
  } catch (const workload::PoolTooSmall& error) {
    throw cli::UsageError(error.what());
  } catch (const cli::UsageError&) {
    throw;
  } catch (...) {
    if (!interrupted()) cluster.show_logs();
    throw;
  }
  if (globals.json) {
    print_json(workload::to_json(report).dump());
  } else {
    print(report, options.geometry);
  }
  for (const auto& difference : report.differences) {
    fmt::print(stderr, "penstock: different: {}\n", difference);
  }
  if (options.verify && !report.verified()) {
    throw Exit(ExitCode::kFailed, fmt::format("{} of {} pages are not what they should be",
                                              report.different_pages, report.pages));
  }
}

void add_geometry(CLI::App& command, Arguments& arguments) {
  command
      .add_option("--model", arguments.model, "Whose KV cache (an unknown name lists the known)")
      ->capture_default_str();
  command.add_option("--layers", arguments.layers, "Layers; 0: all of the model")
      ->capture_default_str();
  command.add_option("--kv-heads", arguments.kv_heads, "KV heads; 0: the model's");
  command.add_option("--head-size", arguments.head_size, "Values per head; 0: the model's");
  command.add_option("--bytes-per-value", arguments.bytes_per_value, "2 for bf16, 1 for fp8")
      ->capture_default_str();
  command.add_option("--page-tokens", arguments.page_tokens, "Tokens per page")
      ->capture_default_str();
  command
      .add_option("--tensor-parallel", arguments.tensor_parallel,
                  "Ranks that share the heads; one rank's share is moved")
      ->capture_default_str();
}

void add_pools(CLI::App& command, Arguments& arguments) {
  command.add_option("--pool", arguments.pool, "Size of the decoder's pool")->capture_default_str();
  command.add_option("--prefill-pool", arguments.prefill_pool, "Size of the prefill node's pool")
      ->capture_default_str();
  command
      .add_option("--page-order", arguments.page_order,
                  "How pages are first handed out: neighbours in memory merge into longer writes")
      ->check(CLI::IsMember({"scattered", "ascending"}))
      ->capture_default_str();
}

}  // namespace

void add_replay(CLI::App& app, Globals& globals) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand("replay",
                                     "Replay an LLM serving trace between two services "
                                     "started for it, and verify every page");
  command->add_option("FILE", arguments->file, "JSON lines, the Mooncake format")->required();
  command->add_option("--limit", arguments->limit, "Only the first requests; 0: all")
      ->capture_default_str();
  command
      ->add_option("--speed", arguments->speed,
                   "Trace time runs so many times faster; 0: as fast as possible")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  command->add_option("--concurrency", arguments->concurrency, "Requests in flight at most")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add_geometry(*command, *arguments);
  add_pools(*command, *arguments);
  command->add_flag("--no-verify", arguments->no_verify, "Neither clear nor compare pages");
  command->add_flag(
      "--corrupt-one", arguments->corrupt_one,
      "Flip a bit of one page that landed, to see that it is found: the command fails "
      "and names the page");
  command->add_option("--memory", arguments->memory, "Where the pools lie: host, or cuda: on a GPU")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  command
      ->add_option("--path", arguments->path,
                   "auto, staged or gpudirect: what the transfers are asked to take")
      ->check(CLI::IsMember({"auto", "staged", "gpudirect"}));
  command->add_flag("--same-node", arguments->same_node, "Both pools on one service");
  command->add_option("--provider", arguments->provider, "tcp (over loopback) or shm")
      ->capture_default_str();
  command->add_option("--set", arguments->settings,
                      "A setting of both services, as for penstockd: section.key=value");
  command->footer(kFooter);
  command->callback([arguments, &globals] { run(*arguments, globals); });
}

}  // namespace penstock::app

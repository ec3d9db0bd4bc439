// A simulated p5.48xlarge pair at full size: goodput, balance, faults and urgent work on a virtual
// clock (the same seed prints the same figures), and with --cost what our own code takes per write
// on this machine (real CPU time).
//
//   p5_pair [--seed N] [--part pages|slow|dead|unequal|urgent|windows|limit] [--window-ms N]
//   [--write-ns N] p5_pair --cost
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "tests/sim/p5/pair.hpp"
#include "tests/sim/p5/write_cost.hpp"

namespace penstock::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kPages[] = {4u << 10, 16u << 10, 64u << 10, 256u << 10, 1u << 20};
/// Long enough for the handshakes, the first transfers and full windows.
constexpr auto kRampUp = 8ms;

struct Settings {
  std::uint64_t seed = 1;
  std::string part;
  std::chrono::milliseconds window{10};
  std::chrono::nanoseconds write_cost = PairOptions{}.write_cost;
  bool cost = false;

  bool wants(const char* name) const { return part.empty() || part == name; }
};

std::string size_of(std::uint64_t bytes) {
  return bytes >= (1u << 20) ? fmt::format("{} MiB", bytes >> 20)
                             : fmt::format("{} KiB", bytes >> 10);
}

PairOptions options_of(const Settings& settings) {
  PairOptions options;
  options.seed = settings.seed;
  options.write_cost = settings.write_cost;
  return options;
}

bool failed(const Pair& pair) {
  for (const auto& failure : pair.failures()) fmt::print("FAILED: {}\n", failure);
  return !pair.failures().empty();
}

Arrivals steady(PairOptions options, std::chrono::milliseconds window) {
  Pair pair(std::move(options));
  pair.keep_busy();
  pair.run_for(kRampUp);
  Arrivals arrivals = pair.measure(window);
  failed(pair);
  return arrivals;
}

void show_pages(const Settings& settings) {
  fmt::print(
      "\nGoodput of 3200 Gbps, counted at the receivers over {} ms of steady state\n"
      "{:>8} | {:>22} | {:>40}\n{:>8} | {:>9} {:>12} | {:>9} {:>9} {:>8} {:>11}\n",
      settings.window.count(), "", "CPU free of charge",
      fmt::format("{} ns per write", settings.write_cost.count()), "page", "share", "spread",
      "share", "Gbps", "spread", "core busy");
  for (const std::uint64_t page : kPages) {
    PairOptions options = options_of(settings);
    options.page_bytes = page;
    const Arrivals real = steady(options, settings.window);
    options.write_cost = 0ns;
    options.round_cost = 0ns;
    const Arrivals free = steady(options, settings.window);
    fmt::print("{:>8} | {:>8.2f}% {:>11.2f}% | {:>8.2f}% {:>9.1f} {:>7.2f}% {:>10.1f}%\n",
               size_of(page), free.total_gbps() / 32, free.spread() * 100, real.total_gbps() / 32,
               real.total_gbps(), real.spread() * 100, real.busiest_core * 100);
  }
}

std::string cards_of(const std::vector<double>& device) {
  std::string line;
  for (const double gbps : device) line += fmt::format(" {:6.2f}", gbps);
  return line;
}

void show_slow(const Settings& settings) {
  Pair pair(options_of(settings));
  pair.sender(0, 0).options().gbps = 50;
  pair.keep_busy();
  pair.run_for(kRampUp);
  const Arrivals arrivals = pair.measure(settings.window);
  failed(pair);
  const double links = 3200 - 50;
  fmt::print("\nCard 0 of device 0 sends at half speed: {:.1f} of {:.0f} Gbps, loss {:.2f} %\n",
             arrivals.total_gbps(), links, 100 - arrivals.total_gbps() / links * 100);
  for (std::size_t i = 0; i < 2; ++i) fmt::print("  device {}:{}\n", i, cards_of(arrivals.gbps[i]));
}

void show_death(const Settings& settings, std::size_t card) {
  PairOptions options = options_of(settings);
  options.devices = 1;
  options.poller.card_stall = 10ms;
  Pair pair(options);
  pair.keep_busy();
  pair.run_for(kRampUp);
  fmt::print(
      "\nOne device, card {} of its sender falls silent after 0 ms and works again after 300 ms\n"
      "(a card counts as dead after {} ms here); Gbps by card of the receiver\n  before: {}\n",
      card, options.poller.card_stall.count(), cards_of(pair.measure(5ms).gbps[0]));
  pair.sender(0, card).die(true);
  for (int ms = 30; ms <= 480; ms += 30) {
    const Arrivals arrivals = pair.measure(30ms - Pair::kMeasureLead);
    fmt::print("  to {:>3} ms: {}  sum {:6.2f}\n", ms, cards_of(arrivals.gbps[0]),
               arrivals.total_gbps());
    if (ms == 300) pair.sender(0, card).revive();
  }
  pair.stop_load();
  const bool ended = pair.run_to_end(2s);
  fmt::print("  transfers: {} done, {} failed{}\n", pair.done(), pair.failures().size(),
             ended ? "" : ", some never ended");
  failed(pair);
}

void show_dead(const Settings& settings) {
  show_death(settings, 3);
  show_death(settings, 0);  // the one that messages go over
}

void show_unequal(const Settings& settings) {
  fmt::print("\nUnequal counts of cards\n");
  for (const auto& [ours, theirs] : {std::pair{4u, 2u}, std::pair{2u, 4u}, std::pair{3u, 2u}}) {
    PairOptions options = options_of(settings);
    options.cards = ours;
    options.remote_cards = theirs;
    const Arrivals arrivals = steady(options, settings.window);
    const double links = 800.0 * std::min(ours, theirs);
    fmt::print("  {} -> {}: {:7.1f} of {:.0f} Gbps, {:.2f} %, spread {:.2f} %; device 0:{}\n", ours,
               theirs, arrivals.total_gbps(), links, arrivals.total_gbps() / links * 100,
               arrivals.spread() * 100, cards_of(arrivals.gbps[0]));
  }
}

struct Latencies {
  double p50_us = 0;
  double p99_us = 0;
};

Latencies latencies_of(const Pair& pair) {
  auto sorted = pair.urgent_latencies();
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) return {};
  const auto at = [&](double share) {
    const auto index = static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1));
    return static_cast<double>(sorted[index].count()) * 1e-3;
  };
  return {at(0.5), at(0.99)};
}

void show_urgent(const Settings& settings) {
  constexpr std::size_t kCount = 400;
  const auto measure = [&](PairOptions options, bool beside) {
    Pair pair(options);
    if (beside) pair.keep_busy();
    pair.run_for(kRampUp);
    pair.be_urgent(0, 100us, kCount);
    pair.run_for(100us * (kCount + 20));
    const double share = beside ? pair.measure(5ms).total_gbps() / 400 : 0;
    failed(pair);
    return std::pair{latencies_of(pair), share};
  };
  PairOptions options = options_of(settings);
  options.devices = 1;
  const Latencies alone = measure(options, false).first;
  fmt::print(
      "\nUrgent transfers of one 4 KiB page, from admission to the terminal event\n"
      "  alone: p50 {:.1f} us, p99 {:.1f} us\n  beside saturating bulk of 64 KiB pages:\n",
      alone.p50_us, alone.p99_us);
  for (const std::uint64_t window : {8u << 20, 4u << 20, 2u << 20, 1u << 20, 512u << 10}) {
    options.poller.link_window_bytes = window;
    const auto [beside, share] = measure(options, true);
    const double drain = static_cast<double>(window) * 8 / 100e3;
    fmt::print(
        "  link window {:>7}: p50 {:7.1f} us, p99 {:7.1f} us (bound: 3 x alone + "
        "{:.0f} us = {:.0f}); bulk {:.2f} %\n",
        size_of(window), beside.p50_us, beside.p99_us, drain, 3 * alone.p99_us + drain,
        share * 100);
  }
}

/// Chunks in the window of a slow card are what a transfer waits for at its end.
void show_windows(const Settings& settings) {
  fmt::print(
      "\nOne device, share of the sum of its links by link window (64 KiB pages): transfers of up "
      "to\n"
      "256 MiB and 64 MiB, all cards equal and one at half speed; and 4 cards to 2\n"
      "{:>8} | {:>9} {:>9} | {:>9} {:>9} | {:>9} {:>9}\n{:>8} | {:>19} | {:>19} | {:>19}\n",
      "window", "256 MiB", "64 MiB", "256 MiB", "64 MiB", "256 MiB", "64 MiB", "", "equal",
      "half speed", "4 -> 2");
  for (const std::uint64_t window : {8u << 20, 4u << 20, 2u << 20, 1u << 20, 512u << 10}) {
    fmt::print("{:>8} |", size_of(window));
    for (const auto& [half, theirs] : {std::pair{false, 4u}, std::pair{true, 4u}, {false, 2u}}) {
      for (const std::uint64_t transfer : {256u << 20, 64u << 20}) {
        PairOptions options = options_of(settings);
        options.devices = 1;
        options.remote_cards = theirs;
        options.poller.link_window_bytes = window;
        options.transfer_bytes = transfer;
        Pair pair(options);
        if (half) pair.sender(0, 0).options().gbps = 50;
        pair.keep_busy();
        pair.run_for(kRampUp);
        const double links = half ? 350 : 100.0 * theirs;
        fmt::print(" {:>8.2f}%", pair.measure(settings.window).total_gbps() / links * 100);
        failed(pair);
      }
      fmt::print(" |");
    }
    fmt::print("\n");
  }
}

void show_limit(const Settings& settings) {
  constexpr std::chrono::nanoseconds kCosts[] = {50ns, 100ns, 150ns, 250ns, 500ns, 1000ns, 2000ns};
  fmt::print(
      "\nShare of 400 Gbps per GPU that one polling core reaches, direct writes, by what a write\n"
      "costs it in all (ours and the provider's, in ns)\n{:>8} |",
      "page");
  for (const auto cost : kCosts) fmt::print(" {:>7}", cost.count());
  fmt::print("\n");
  for (const std::uint64_t page : kPages) {
    fmt::print("{:>8} |", size_of(page));
    for (const auto cost : kCosts) {
      PairOptions options = options_of(settings);
      options.devices = 1;
      options.page_bytes = page;
      options.write_cost = cost;
      fmt::print(" {:>6.1f}%", steady(options, settings.window).total_gbps() / 4);
    }
    fmt::print("\n");
  }
}

void show_cost(const Settings& settings) {
  fmt::print(
      "\nOur own CPU time per write on this machine, one core, 4 cards that do nothing\n"
      "{:>8} | {:>8} {:>8} {:>8} | {:>8} {:>10}\n",
      "page", "own ns", "cards ns", "cursor", "scan", "own + scan");
  double own_ns = 0;
  for (const std::uint64_t page : kPages) {
    const WriteCost cost = measure_write_cost(page, 1u << 18, settings.seed);
    if (page == kPages[0]) own_ns = cost.own_ns();
    fmt::print("{:>8} | {:>8.1f} {:>8.1f} {:>8.1f} | {:>8.1f} {:>10.1f}\n", size_of(page),
               cost.own_ns(), cost.card_ns, cost.cursor_ns, cost.scan_ns,
               cost.own_ns() + cost.scan_ns);
  }
  const auto [with, without] = measure_simulated_cost(settings.seed);
  fmt::print(
      "the whole simulation at 4 KiB, both nodes and their timers: {:.0f} ns per write, {:.0f} "
      "with "
      "a\nbare loop over the same cards in our place: {:.0f} ns are ours\n",
      with, without, with - without);
  fmt::print(
      "\nShare of 400 Gbps per GPU of one polling core from these figures: direct / packed into\n"
      "256 KiB slots by the processor (its copies are the limit), by the provider's ns per write\n"
      "{:>8} | {:>7} {:>7} |",
      "page", "gather", "scatter");
  constexpr double kProvider[] = {50, 100, 350, 1000, 3500};
  for (const double provider : kProvider) fmt::print(" {:>15}", provider);
  fmt::print("\n");
  for (const std::uint64_t page : {kPages[0], 8ul << 10, kPages[1], 32ul << 10, kPages[2]}) {
    const PackedPageCost packed = measure_packed_page(page, settings.seed);
    fmt::print("{:>8} | {:>7.0f} {:>7.0f} |", size_of(page), packed.gather_ns, packed.scatter_ns);
    for (const double provider : kProvider) {
      const double line_ns = static_cast<double>(page) * 8 / 400;
      const double in_slot = std::floor((256.0 * 1024 - 32) / (static_cast<double>(page) + 16));
      const double copies = std::max(packed.gather_ns, packed.scatter_ns);
      const double per_packed = copies + (own_ns + provider) / in_slot;
      fmt::print(" {:>6.1f}% {:>6.1f}%", std::min(1.0, line_ns / (own_ns + provider)) * 100,
                 std::min(1.0, line_ns / per_packed) * 100);
    }
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace penstock::sim

int main(int argc, char** argv) {
  using namespace penstock::sim;
  Settings settings;
  long window_ms = 10;
  long write_ns = settings.write_cost.count();
  CLI::App app("A simulated p5.48xlarge pair at full size");
  app.add_option("--seed", settings.seed, "decides everything that is random");
  app.add_option("--part", settings.part, "only this table")
      ->check(CLI::IsMember({"pages", "slow", "dead", "unequal", "urgent", "windows", "limit"}));
  app.add_option("--window-ms", window_ms, "virtual time that is counted")
      ->check(CLI::Range(1, 1000));
  app.add_option("--write-ns", write_ns,
                 "what a write costs the polling core, ours and the provider's")
      ->check(CLI::Range(0, 100000));
  app.add_flag("--cost", settings.cost, "real CPU time per write instead");
  CLI11_PARSE(app, argc, argv);
  settings.window = std::chrono::milliseconds(window_ms);
  settings.write_cost = std::chrono::nanoseconds(write_ns);
  if (settings.cost) {
    show_cost(settings);
    return 0;
  }
  fmt::print(
      "seed {}: 2 nodes, 8 devices each, 4 cards of 100 Gbps per device, latency 7.5 us one\n"
      "way + up to 2 us jitter (deliveries in any order), depth 4096, no bytes moved\n",
      settings.seed);
  if (settings.wants("pages")) show_pages(settings);
  if (settings.wants("slow")) show_slow(settings);
  if (settings.wants("dead")) show_dead(settings);
  if (settings.wants("unequal")) show_unequal(settings);
  if (settings.wants("urgent")) show_urgent(settings);
  if (settings.wants("windows")) show_windows(settings);
  if (settings.wants("limit")) show_limit(settings);
  return 0;
}

// What a write of many pages takes by the C++ client: one line a round, ms from the call until it
// is accepted and until it has ended. client/python/benchmarks/write_pages.py sets the Python
// client beside it.
//
//     write_pages_bench ENDPOINT REGION NODE REMOTE_REGION PAGES PAGE_BYTES ROUNDS
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "client/cpp/penstock.hpp"

namespace {

using namespace penstock::client;
using Steady = std::chrono::steady_clock;

double ms_since(Steady::time_point start) {
  return std::chrono::duration<double, std::milli>(Steady::now() - start).count();
}

std::vector<std::uint32_t> shuffled(std::uint32_t pages, std::uint32_t seed) {
  std::vector<std::uint32_t> list(pages);
  std::iota(list.begin(), list.end(), 0u);
  std::ranges::shuffle(list, std::mt19937(seed));
  return list;
}

void run(char** argument) {
  Client client({.endpoint = argument[0], .client = "write_pages_bench"});
  const auto pages = static_cast<std::uint32_t>(std::stoul(argument[4]));
  const auto source = shuffled(pages, 1), destination = shuffled(pages, 2);
  TransferSpec spec{.region = argument[1], .targets = {{argument[2], argument[3]}}};
  spec.layout = Pages{.page_bytes = std::stoul(argument[5]),
                      .source_pages = source,
                      .destination_pages = destination};
  for (int rounds = std::stoi(argument[6]); rounds > 0; --rounds) {
    const auto start = Steady::now();
    const auto transfer = client.transfer(spec);
    const double accepted_ms = ms_since(start);
    const auto result = transfer.wait();
    if (!result.done()) throw Error(result.error_code, result.error_message);
    fmt::print("{} {}\n", accepted_ms, ms_since(start));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    fmt::print(stderr, "usage: {} ENDPOINT REGION NODE REMOTE_REGION PAGES PAGE_BYTES ROUNDS\n",
               argv[0]);
    return 2;
  }
  try {
    run(argv + 1);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

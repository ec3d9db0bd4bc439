#include "apps/penstock/page_mover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "apps/penstock/globals.hpp"
#include "client/workload/block_pool.hpp"

namespace penstock::app {
namespace {

constexpr std::uint32_t kDeadlineMs = 120000;
constexpr auto kLookEvery = std::chrono::milliseconds(100);

}  // namespace

client::Region allocate_in(client::Client& client, Memory memory, const std::string& name,
                           std::uint64_t bytes) {
  if (memory == Memory::kCuda) return client.allocate_cuda(name, bytes);
  return client.allocate(name, bytes, "", client::MapMemory::kNo);
}

PageLists random_pages(std::uint64_t region_pages, std::uint64_t count, std::uint64_t seed,
                       std::uint32_t run) {
  auto runs = static_cast<std::uint32_t>(region_pages / run);
  auto pages_of_runs = [&](std::uint64_t runs_seed) {
    std::vector<std::uint32_t> pages;
    for (std::uint32_t first : workload::shuffled_pages(runs, runs_seed))
      for (std::uint32_t i = 0; i < run; ++i) pages.push_back(first * run + i);
    pages.resize(std::min<std::uint64_t>(count, pages.size()));
    return pages;
  };
  return {pages_of_runs(2 * seed), pages_of_runs(2 * seed + 1)};
}

std::uint64_t Moved::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& result : results) sum += result.bytes;
  return sum;
}

std::uint64_t Moved::writes() const {
  std::uint64_t sum = 0;
  for (const auto& result : results) sum += result.writes;
  return sum;
}

std::vector<client::TransferResult::Card> Moved::cards() const {
  std::map<std::string, client::TransferResult::Card> by_name;
  for (const auto& result : results) {
    for (const auto& card : result.cards) {
      auto& sum = by_name[card.name];
      sum.name = card.name;
      sum.bytes += card.bytes;
      sum.writes += card.writes;
    }
  }
  std::vector<client::TransferResult::Card> cards;
  for (auto& [name, card] : by_name) cards.push_back(std::move(card));
  return cards;
}

std::uint64_t Batch::bytes_done() const {
  std::lock_guard lock(tally->mutex);
  return tally->bytes;
}

Moved wait(const Batch& batch, const std::function<void()>& tick) {
  auto& tally = *batch.tally;
  auto all_ended = [&] { return tally.results.size() == batch.transfers.size(); };
  std::unique_lock lock(tally.mutex);
  while (!tally.changed.wait_for(lock, kLookEvery, all_ended)) {
    lock.unlock();
    if (interrupted()) throw Exit(ExitCode::kFailed, "interrupted");
    if (tick) tick();
    lock.lock();
  }
  for (const auto& result : tally.results) {
    if (result.done()) continue;
    throw Exit(ExitCode::kTransferNotDone,
               fmt::format("a transfer {}: {} {}", client::name_of(result.state), result.error_code,
                           result.error_message));
  }
  return {batch.begin, tally.last_end, tally.results};
}

PageMover::PageMover(client::Client& source, client::Client& destination, const std::string& name,
                     std::uint64_t bytes, std::uint64_t seed, Memory source_memory,
                     Memory destination_memory)
    : source_(source), destination_(destination) {
  source_region_ = allocate_in(source, source_memory, name + ".source", bytes);
  destination_region_ = allocate_in(destination, destination_memory, name + ".destination", bytes);
  source.fill(source_region_.name(), seed);
}

Batch PageMover::submit(client::Direction direction, std::uint64_t page_bytes,
                        const PageLists& lists, std::size_t parts, client::Lane lane) {
  bool write = direction == client::Direction::kWrite;
  const auto& local = write ? source_region_ : destination_region_;
  const auto& remote = write ? destination_region_ : source_region_;
  client::Client& asked = write ? source_ : destination_;
  client::Client& other = write ? destination_ : source_;
  std::span<const std::uint32_t> from(lists.source), to(lists.destination);
  std::vector<client::TransferSpec> specs;
  for (std::size_t part = 0; part < parts; ++part) {
    auto begin = from.size() * part / parts;
    auto count = from.size() * (part + 1) / parts - begin;
    client::TransferSpec spec;
    spec.direction = direction;
    spec.region = local.name();
    spec.targets = {{other.service().node, remote.name(), remote.epoch()}};
    spec.layout = client::Pages{.page_bytes = page_bytes,
                                .source_pages = from.subspan(begin, count),
                                .destination_pages = to.subspan(begin, count)};
    spec.deadline_ms = kDeadlineMs;
    spec.lane = lane;
    spec.path = path_;
    spec.packing = packing_;
    specs.push_back(std::move(spec));
  }
  Batch batch{std::chrono::steady_clock::now(), asked.submit(specs)};
  for (const auto& transfer : batch.transfers) {
    transfer.on_done([tally = batch.tally](const client::TransferResult& result) {
      std::lock_guard lock(tally->mutex);
      tally->last_end = std::chrono::steady_clock::now();
      tally->bytes += result.bytes;
      tally->results.push_back(result);
      tally->changed.notify_all();
    });
  }
  return batch;
}

std::vector<workload::DifferentPage> PageMover::verify(std::uint64_t page_bytes,
                                                       const PageLists& lists) {
  auto& digests = source_digests_[page_bytes];
  if (digests.empty()) {
    digests =
        workload::digest_region(source_, source_region_.name(), page_bytes, source_region_.bytes());
  }
  auto found = workload::digest_pages(destination_, destination_region_.name(), page_bytes,
                                      lists.destination);
  return workload::compare_pages(lists.source, lists.destination, digests, found);
}

}  // namespace penstock::app

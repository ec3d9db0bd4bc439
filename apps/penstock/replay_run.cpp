#include "apps/penstock/replay_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "apps/penstock/globals.hpp"
#include "apps/penstock/progress.hpp"
#include "client/cli/usage_error.hpp"

namespace penstock::app {
namespace {

using workload::HandOver;

constexpr const char* kSourceRegion = "replay.prefill";
constexpr const char* kDestinationRegion = "replay.decoder";
constexpr const char* kBlankRegion = "replay.blank";
constexpr std::uint64_t kSeed = 0x70656e73746f636b;
constexpr std::uint32_t kDeadlineMs = 60000;
constexpr int kCleared = 0xa5;
constexpr auto kLookEvery = std::chrono::milliseconds(100);
constexpr std::size_t kDifferencesTold = 10;

double milliseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

std::uint64_t pool_pages(const char* pool, std::uint64_t bytes,
                         const workload::KvGeometry& geometry) {
  auto pages = bytes / geometry.page_bytes_all_planes();
  if (pages == 0) {
    throw cli::UsageError(
        fmt::format("the {} pool of {} bytes holds no page: one of all layers has "
                    "{} bytes",
                    pool, bytes, geometry.page_bytes_all_planes()));
  }
  if (pages * geometry.planes() > UINT32_MAX) {
    throw cli::UsageError(fmt::format(
        "the {} pool would have {} pages; page lists count to 2^32. Make it smaller, or "
        "its pages larger",
        pool, pages * geometry.planes()));
  }
  return pages;
}

std::vector<std::uint32_t> page_order(std::uint64_t pages, bool scattered, std::uint64_t seed) {
  auto count = static_cast<std::uint32_t>(pages);
  if (scattered) return workload::shuffled_pages(count, seed);
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

/// The pages of every plane, counted through the region.
std::vector<std::uint32_t> in_all_planes(const std::vector<std::uint32_t>& pages,
                                         std::uint32_t planes, std::uint64_t pool) {
  std::vector<std::uint32_t> flat;
  flat.reserve(pages.size() * planes);
  for (std::uint32_t plane = 0; plane < planes; ++plane) {
    for (auto page : pages) flat.push_back(static_cast<std::uint32_t>(plane * pool + page));
  }
  return flat;
}

}  // namespace

// ---- before the first request ----

ReplayRun::ReplayRun(client::Client& prefill, client::Client& decoder, ReplayOptions options)
    : options_(std::move(options)),
      prefill_(prefill),
      decoder_(decoder),
      prefill_pages_(pool_pages("prefill", options_.prefill_pool_bytes, options_.geometry)),
      decoder_pages_(pool_pages("decoder", options_.decoder_pool_bytes, options_.geometry)),
      planner_(make_planner()) {
  const auto& geometry = options_.geometry;
  source_ = allocate_in(prefill_, options_.memory, kSourceRegion,
                        prefill_pages_ * geometry.page_bytes_all_planes());
  destination_ = allocate_in(decoder_, options_.memory, kDestinationRegion,
                             decoder_pages_ * geometry.page_bytes_all_planes());
  if (options_.memory == Memory::kHost) {
    destination_.map();
  } else if (options_.verify) {
    blank_ = allocate_in(decoder_, options_.memory, kBlankRegion, geometry.page_bytes());
    decoder_.fill(kBlankRegion, ~kSeed);
  }
  for (std::uint32_t plane = 0; plane < geometry.planes(); ++plane) {
    planes_.push_back({geometry.plane_offset(plane, prefill_pages_),
                       geometry.plane_offset(plane, decoder_pages_)});
  }
  prefill_.fill(kSourceRegion, kSeed);
  if (!options_.verify) return;
  source_digests_ =
      workload::digest_region(prefill_, kSourceRegion, geometry.page_bytes(), source_.bytes());
  if (!workload::all_distinct(source_digests_)) {
    throw cli::UsageError(
        fmt::format("pages of {} bytes are too small to tell apart", geometry.page_bytes()));
  }
  expected_.resize(decoder_pages_ * geometry.planes());
}

workload::HandOverPlanner ReplayRun::make_planner() const {
  return {options_.geometry, workload::BlockPool(page_order(prefill_pages_, options_.scattered, 1)),
          workload::BlockPool(page_order(decoder_pages_, options_.scattered, 2))};
}

// ---- the replay ----

workload::ReplayReport ReplayRun::run(const std::vector<workload::TraceRequest>& requests) {
  for (const auto& request : requests) planner_.check_fits(request);
  Progress progress("replay", requests.size());
  const auto start = Clock::now();
  auto arrival_of = [&](const workload::TraceRequest& request) {
    if (options_.speed == 0) return start;
    auto after_ms = static_cast<double>(request.timestamp_ms - requests.front().timestamp_ms);
    return start + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double, std::milli>(after_ms / options_.speed));
  };

  auto next = requests.begin();
  head_since_ = start;
  while (next != requests.end() || !in_flight_.empty()) {
    while (next != requests.end() && arrival_of(*next) <= Clock::now()) {
      head_since_ = options_.speed == 0 ? head_since_ : arrival_of(*next);
      if (in_flight_.size() >= options_.concurrency || !admit(*next)) break;
      head_since_ = Clock::now();
      ++next;
    }
    if (interrupted()) throw Exit(ExitCode::kFailed, "interrupted");
    options_.watch();
    progress.show(report_.requests,
                  fmt::format("{} of {} requests, {:.2f} GB", report_.requests, requests.size(),
                              static_cast<double>(report_.bytes) * 1e-9));
    auto until = Clock::now() + kLookEvery;
    if (next != requests.end() && in_flight_.size() < options_.concurrency) {
      auto arrival = arrival_of(*next);
      if (arrival > Clock::now()) until = std::min(until, arrival);
    }
    for (const auto& ended : wait_for_ended(until)) on_ended(ended);
    finish_complete();
  }
  report_.wall_s = milliseconds(Clock::now() - start) / 1000;
  if (options_.verify) verify_at_the_end();

  report_.page_bytes = options_.geometry.page_bytes();
  report_.busy_s = workload::busy_seconds(busy_);
  report_.hand_over_ms = workload::latency_of(hand_over_ms_);
  report_.queueing_s = std::accumulate(queueing_ms_.begin(), queueing_ms_.end(), 0.0) / 1000;
  report_.queueing_ms = workload::latency_of(queueing_ms_);
  report_.decoder_evictions = planner_.decoder().evicted_blocks();
  report_.verify = options_.verify;
  return report_;
}

/// False when the pools have no room before an earlier hand-over is over.
bool ReplayRun::admit(const workload::TraceRequest& request) {
  auto plan = planner_.plan(request);
  if (!plan) return false;
  InFlight& flight = in_flight_.emplace_back();
  flight.hand_over = std::move(*plan);
  const auto& hand_over = flight.hand_over;
  report_.blocks += hand_over.blocks.size();
  report_.decoder_hits += hand_over.decoder_hits();
  report_.prefill_hits += hand_over.prefill_hits;
  if (!hand_over.moved.empty()) {
    if (options_.verify) clear_destination(hand_over);
    submit(flight);
  } else {
    flight.submitted = Clock::now();
    flight.landed = flight.complete = flight.submitted;
  }
  queueing_ms_.push_back(milliseconds(flight.submitted - head_since_));
  return true;
}

/// A page that no write reaches must not pass for the one that was there before.
void ReplayRun::clear_destination(const HandOver& hand_over) {
  const auto page_bytes = options_.geometry.page_bytes();
  const auto pages =
      in_all_planes(hand_over.destination_pages, options_.geometry.planes(), decoder_pages_);
  if (options_.memory == Memory::kCuda) return clear_on_gpu(pages);
  for (auto page : pages) std::memset(destination_page(page), kCleared, page_bytes);
}

/// The decoder's service copies a page there that holds nothing of the source.
void ReplayRun::clear_on_gpu(const std::vector<std::uint32_t>& pages) {
  const std::vector<std::uint32_t> blanks(pages.size(), 0);
  client::TransferSpec spec;
  spec.region = kBlankRegion;
  spec.targets = {{"", kDestinationRegion, destination_.epoch()}};
  spec.layout = client::Pages{.page_bytes = options_.geometry.page_bytes(),
                              .source_pages = blanks,
                              .destination_pages = pages};
  const auto result = decoder_.transfer(spec).wait();
  if (result.done()) return;
  throw Exit(ExitCode::kTransferNotDone,
             fmt::format("clearing pages on the GPU {}: {} {}", client::name_of(result.state),
                         result.error_code, result.error_message));
}

void ReplayRun::submit(InFlight& flight) {
  const auto& hand_over = flight.hand_over;
  client::TransferSpec spec;
  spec.region = kSourceRegion;
  spec.targets = {{decoder_.service().node, kDestinationRegion, destination_.epoch()}};
  spec.layout = client::Pages{.page_bytes = options_.geometry.page_bytes(),
                              .source_pages = hand_over.source_pages,
                              .destination_pages = hand_over.destination_pages,
                              .bases = planes_};
  spec.deadline_ms = kDeadlineMs;
  spec.path = options_.path;
  moving_.insert(hand_over.id);
  flight.submitted = Clock::now();
  prefill_.submit(spec).on_done(
      [mailbox = mailbox_, id = hand_over.id](const client::TransferResult& result) {
        std::lock_guard lock(mailbox->mutex);
        mailbox->ended.push_back({id, result, Clock::now()});
        mailbox->changed.notify_one();
      });
}

std::vector<ReplayRun::Ended> ReplayRun::wait_for_ended(Clock::time_point until) {
  // A request that moves nothing ends without an event.
  if (std::ranges::any_of(in_flight_, [this](const auto& f) { return is_complete(f); })) return {};
  std::unique_lock lock(mailbox_->mutex);
  mailbox_->changed.wait_until(lock, until, [this] { return !mailbox_->ended.empty(); });
  return std::exchange(mailbox_->ended, {});
}

void ReplayRun::on_ended(const Ended& ended) {
  const auto& result = ended.result;
  auto flight = std::find_if(in_flight_.begin(), in_flight_.end(),
                             [&](const auto& f) { return f.hand_over.id == ended.hand_over; });
  if (flight == in_flight_.end()) return;
  if (!result.done()) {
    throw Exit(
        ExitCode::kTransferNotDone,
        fmt::format("the hand-over of the request on line {} {}: {} {}", flight->hand_over.line,
                    client::name_of(result.state), result.error_code, result.error_message));
  }
  flight->landed = ended.time;
  moving_.erase(ended.hand_over);
  planner_.landed(flight->hand_over);
  busy_.push_back({flight->submitted, ended.time});
  report_.bytes += result.bytes;
  report_.writes += result.writes;
  ++report_.paths[result.path];
  report_.pages += flight->hand_over.destination_pages.size() * options_.geometry.planes();
  for (auto& other : in_flight_) {
    const auto& waits = other.hand_over.waits_for;
    bool waited = std::find(waits.begin(), waits.end(), ended.hand_over) != waits.end();
    if (waited || &other == &*flight) other.complete = std::max(other.complete, ended.time);
  }
  if (options_.corrupt_one && !corrupted_) corrupt(flight->hand_over);
  if (options_.verify) verify(flight->hand_over);
}

bool ReplayRun::is_complete(const InFlight& flight) const {
  if (!flight.landed) return false;
  return std::ranges::none_of(flight.hand_over.waits_for,
                              [this](auto id) { return moving_.contains(id); });
}

void ReplayRun::finish_complete() {
  for (auto flight = in_flight_.begin(); flight != in_flight_.end();) {
    if (!is_complete(*flight)) {
      ++flight;
      continue;
    }
    const auto& hand_over = flight->hand_over;
    if (hand_over.moved.empty() && hand_over.waits_for.empty()) {
      ++report_.requests_without_move;
    } else {
      hand_over_ms_.push_back(milliseconds(flight->complete - flight->submitted));
    }
    ++report_.requests;
    planner_.finish(hand_over);
    flight = in_flight_.erase(flight);
  }
}

// ---- verification ----

std::byte* ReplayRun::destination_page(std::uint32_t flat_page) {
  return destination_.data().data() + flat_page * options_.geometry.page_bytes();
}

void ReplayRun::verify(const HandOver& hand_over) {
  auto planes = options_.geometry.planes();
  compare(in_all_planes(hand_over.source_pages, planes, prefill_pages_),
          in_all_planes(hand_over.destination_pages, planes, decoder_pages_), hand_over);
}

void ReplayRun::compare(const std::vector<std::uint32_t>& source,
                        const std::vector<std::uint32_t>& target, const HandOver& hand_over) {
  auto found =
      workload::digest_pages(decoder_, kDestinationRegion, options_.geometry.page_bytes(), target);
  for (std::size_t i = 0; i < target.size(); ++i) expected_[target[i]] = found[i];
  report_.verified_pages += target.size();
  for (const auto& page : workload::compare_pages(source, target, source_digests_, found)) {
    auto per_plane = hand_over.destination_pages.size();
    auto plane = static_cast<std::uint32_t>(page.index / per_plane);
    tell_difference(fmt::format("request on line {}, block {}, {}: {}", hand_over.line,
                                hand_over.block_of(page.index % per_plane).id,
                                options_.geometry.plane_name(plane), page.text()));
  }
}

/// Nothing may have touched a page after its hand-over, nor the source at any time.
void ReplayRun::verify_at_the_end() {
  auto page_bytes = options_.geometry.page_bytes();
  auto now =
      workload::digest_region(decoder_, kDestinationRegion, page_bytes, destination_.bytes());
  for (std::size_t page = 0; page < expected_.size(); ++page) {
    if (!expected_[page] || *expected_[page] == now[page]) continue;
    tell_difference(
        fmt::format("destination page {} changed after its hand-over: digest {:016x}, "
                    "was {:016x}",
                    page, now[page], *expected_[page]));
  }
  auto source = workload::digest_region(prefill_, kSourceRegion, page_bytes, source_.bytes());
  for (std::size_t page = 0; page < source.size(); ++page) {
    if (source[page] == source_digests_[page]) continue;
    tell_difference(fmt::format("source page {} changed: digest {:016x}, was {:016x}", page,
                                source[page], source_digests_[page]));
  }
}

void ReplayRun::tell_difference(std::string words) {
  ++report_.different_pages;
  if (report_.differences.size() < kDifferencesTold)
    report_.differences.push_back(std::move(words));
}

void ReplayRun::corrupt(const HandOver& hand_over) {
  auto pages =
      in_all_planes(hand_over.destination_pages, options_.geometry.planes(), decoder_pages_);
  auto page = pages[pages.size() / 2];
  const auto page_bytes = options_.geometry.page_bytes();
  if (options_.memory == Memory::kCuda)
    decoder_.fill(kDestinationRegion, ~kSeed, page * page_bytes + page_bytes / 2, 1);
  else
    destination_page(page)[page_bytes / 2] ^= std::byte{1};
  corrupted_ = true;
  fmt::print(stderr, "penstock: flipped one bit in destination page {} on purpose\n", page);
}

}  // namespace penstock::app

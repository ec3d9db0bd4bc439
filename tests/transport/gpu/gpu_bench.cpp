// gpu_bench [--json PATH] [--gpu N]: what the page copy kernel reaches beside the driver's own
// copies. Prints a line per case; the last column is the part of the contiguous device copy's rate.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/transport/gpu/bench_report.hpp"
#include "transport/gpu/gpu_memory.hpp"
#include "transport/gpu/gpu_pattern.hpp"
#include "transport/gpu/inventory.hpp"
#include "transport/gpu/page_mover.hpp"
#include "transport/gpu/pinned.hpp"
#include "transport/gpu/scope.hpp"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr int kSamples = 7;

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return *std::move(result);
}
void must(Result<void> result) {
  if (!result) throw std::runtime_error(result.error().message);
}
void must(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The median of some runs after one that does not count.
double median_seconds(const std::function<void()>& work) {
  work();
  std::vector<double> all;
  for (int i = 0; i < kSamples; ++i) all.push_back(seconds_of(work));
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

std::uint64_t address_of(const RegionMemory& memory) {
  return reinterpret_cast<std::uint64_t>(memory.bytes().data());
}

std::string size_words(std::uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

class Bench {
 public:
  Bench(int gpu, std::string json) : gpu_(gpu), json_(std::move(json)), scope_(gpu) {
    must(scope_.entered());
    source_ = must(allocate_gpu_memory(gpu, kGiB + 4096));
    destination_ = must(allocate_gpu_memory(gpu, kGiB + 4096));
    host_ = must(allocate_pinned_memory(kGiB, -1, gpu));
    must(fill_gpu_pattern(*source_, 0, source_->bytes().size(), 1));
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }

  void run() {
    contiguous();
    for (const std::uint64_t bytes : {4096u, 16384u, 65536u, 262144u, 1u << 20})
      pages("shuffled", bytes, bytes, 0, 0);
    pages("odd", 1000, 1000, 1, 3);
    pages("odd", 4096, 4097, 1, 2);
    leaving_multiprocessors();
    peers();
    driver_copies();
    host_copies();
    slots();
    fixed_costs();
    digests();
    report_.write(json_);
  }

 private:
  CopyPlace gpu_place(const GpuMemory& memory) const { return {address_of(memory), gpu_}; }
  CopyPlace host_place() const { return {host_->device_address(), -1}; }

  void rate(const std::string& name, const std::string& words, std::uint64_t bytes,
            double seconds) {
    const double value = static_cast<double>(bytes) / seconds / 1e9;
    const double whole = report_.value("copy/contiguous");
    report_.add({name, words, value, "GB/s", whole > 0 ? value / whole : 0});
  }

  void finish(PageMover& mover, const CopyTicket& ticket) {
    while (must(mover.poll(ticket)) != CopyState::kDone) {
    }
  }

  void contiguous() {
    constexpr int kTimes = 20;
    const double seconds = median_seconds([&] {
      for (int i = 0; i < kTimes; ++i)
        must(cudaMemcpyAsync(destination_->bytes().data(), source_->bytes().data(), kGiB,
                             cudaMemcpyDeviceToDevice, stream_));
      must(cudaStreamSynchronize(stream_));
    });
    rate("copy/contiguous", "contiguous device copy (cudaMemcpyAsync)", kTimes * kGiB, seconds);
  }

  Pages shuffled(std::uint64_t bytes, std::uint64_t stride, std::uint64_t source_start,
                 std::uint64_t destination_start) {
    Pages pages;
    pages.row_bytes = bytes;
    pages.source_stride = stride;
    pages.destination_stride = stride;
    pages.bases = {{source_start, destination_start}};
    std::vector<std::uint32_t> list(kGiB / stride);
    for (std::uint32_t i = 0; i < list.size(); ++i) list[i] = i;
    std::mt19937_64 random(7);
    std::shuffle(list.begin(), list.end(), random);
    pages.source_pages = BlobList<std::uint32_t>::of(list);
    std::shuffle(list.begin(), list.end(), random);
    pages.destination_pages = BlobList<std::uint32_t>::of(list);
    return pages;
  }

  double plan_seconds(PageMover& mover, const Layout& layout, CopyPlace from, CopyPlace to,
                      int times) {
    const auto plan = must(mover.prepare(layout));
    return median_seconds([&] {
      CopyTicket last;
      for (int i = 0; i < times; ++i)
        last = must(mover.start(*plan, 0, plan->elements(), from, to, 0));
      finish(mover, last);
    });
  }

  void pages(const std::string& kind, std::uint64_t bytes, std::uint64_t stride,
             std::uint64_t source_start, std::uint64_t destination_start) {
    constexpr int kTimes = 20;
    const auto mover = must(PageMover::make(gpu_));
    const Pages layout = shuffled(bytes, stride, source_start, destination_start);
    const double seconds =
        plan_seconds(*mover, layout, gpu_place(*source_), gpu_place(*destination_), kTimes);
    rate(fmt::format("copy/{}/{}", kind, bytes),
         fmt::format("{} pages of {}, one kernel", kind, size_words(bytes)),
         kTimes * layout.source_pages.size() * bytes, seconds);
  }

  void leaving_multiprocessors() {
    const int all = must(require_gpu(gpu_))->multiprocessors;
    for (const int leave : {all / 8, all / 4, all / 2, all * 3 / 4, all * 7 / 8}) {
      PageMoverOptions options;
      options.leave_multiprocessors = leave;
      const auto mover = must(PageMover::make(gpu_, options));
      const Pages layout = shuffled(65536, 65536, 0, 0);
      const double seconds =
          plan_seconds(*mover, layout, gpu_place(*source_), gpu_place(*destination_), 10);
      rate(fmt::format("copy/leaving/{}", leave),
           fmt::format("shuffled pages of 64 KiB, leaving {} of {} multiprocessors", leave, all),
           10 * kGiB, seconds);
    }
  }

  /// To another GPU of the node, by kernels of either.
  void peers() {
    const auto& others = must(require_gpu(gpu_))->peers;
    if (others.empty()) return;
    const int other = others.front();
    const auto there = must(allocate_gpu_memory(other, kGiB));
    if (cudaDeviceEnablePeerAccess(other, 0) != cudaSuccess) (void)cudaGetLastError();
    const double driver = median_seconds([&] {
      must(cudaMemcpyPeerAsync(there->bytes().data(), other, source_->bytes().data(), gpu_, kGiB,
                               stream_));
      must(cudaStreamSynchronize(stream_));
    });
    rate("peer/driver", "to another GPU, cudaMemcpyPeerAsync of 1 GiB", kGiB, driver);
    for (const int runs_on : {gpu_, other}) {
      const auto mover = must(PageMover::make(runs_on));
      for (const std::uint64_t bytes : {4096u, 65536u}) {
        const Pages layout = shuffled(bytes, bytes, 0, 0);
        const double seconds =
            plan_seconds(*mover, layout, gpu_place(*source_), {address_of(*there), other}, 5);
        const char* how = runs_on == gpu_ ? "pushed" : "pulled";
        rate(fmt::format("peer/{}/{}", how, bytes),
             fmt::format("to another GPU, shuffled pages of {}, {}", size_words(bytes), how),
             5 * kGiB, seconds);
      }
    }
    must(enter_gpu(gpu_));
  }

  /// What others do: a call a page, or the driver's batch.
  void driver_copies() {
    for (const std::uint64_t bytes : {4096u, 65536u, 1u << 20}) {
      const Pages layout = shuffled(bytes, bytes, 0, 0);
      const std::size_t count = std::min<std::size_t>(layout.source_pages.size(), 8192);
      std::vector<void*> to(count);
      std::vector<const void*> from(count);
      std::vector<std::size_t> sizes(count, bytes);
      for (std::size_t i = 0; i < count; ++i) {
        from[i] = source_->bytes().data() + layout.source_pages[i] * bytes;
        to[i] = destination_->bytes().data() + layout.destination_pages[i] * bytes;
      }
      const double loop = median_seconds([&] {
        for (std::size_t i = 0; i < count; ++i)
          must(cudaMemcpyAsync(to[i], from[i], bytes, cudaMemcpyDeviceToDevice, stream_));
        must(cudaStreamSynchronize(stream_));
      });
      rate(fmt::format("copy/loop/{}", bytes),
           fmt::format("cudaMemcpyAsync for each page of {}", size_words(bytes)), count * bytes,
           loop);
      cudaMemcpyAttributes attributes{};
      attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
      std::size_t first = 0;
      const double batch = median_seconds([&] {
        must(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, &attributes, &first,
                                  1, stream_));
        must(cudaStreamSynchronize(stream_));
      });
      rate(fmt::format("copy/batch/{}", bytes),
           fmt::format("cudaMemcpyBatchAsync of pages of {}", size_words(bytes)), count * bytes,
           batch);
    }
  }

  void host_copies() {
    const auto driver = [&](void* to, const void* from, cudaMemcpyKind kind, const char* name,
                            const char* words) {
      const double seconds = median_seconds([&] {
        must(cudaMemcpyAsync(to, from, kGiB, kind, stream_));
        must(cudaStreamSynchronize(stream_));
      });
      rate(name, words, kGiB, seconds);
    };
    auto* host = host_->memory()->bytes().data();
    driver(host, source_->bytes().data(), cudaMemcpyDeviceToHost, "host/to/driver",
           "GPU to pinned host, cudaMemcpyAsync of 1 GiB");
    driver(destination_->bytes().data(), host, cudaMemcpyHostToDevice, "host/from/driver",
           "pinned host to GPU, cudaMemcpyAsync of 1 GiB");
    for (const int multiprocessors : {2, 4, 8, 16, 32}) {
      PageMoverOptions options;
      options.host_multiprocessors = multiprocessors;
      const auto mover = must(PageMover::make(gpu_, options));
      for (const std::uint64_t bytes : {4096u, 65536u}) {
        const Pages layout = shuffled(bytes, bytes, 0, 0);
        const double out = plan_seconds(*mover, layout, gpu_place(*source_), host_place(), 1);
        rate(fmt::format("host/to/{}/{}", bytes, multiprocessors),
             fmt::format("GPU to pinned host, pages of {}, {} multiprocessors", size_words(bytes),
                         multiprocessors),
             kGiB, out);
        const double in = plan_seconds(*mover, layout, host_place(), gpu_place(*destination_), 1);
        rate(fmt::format("host/from/{}/{}", bytes, multiprocessors),
             fmt::format("pinned host to GPU, pages of {}, {} multiprocessors", size_words(bytes),
                         multiprocessors),
             kGiB, in);
      }
    }
    cudaStream_t other = nullptr;
    must(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    const double driver_both = median_seconds([&] {
      must(cudaMemcpyAsync(host, source_->bytes().data(), kGiB / 2, cudaMemcpyDeviceToHost,
                           stream_));
      must(cudaMemcpyAsync(destination_->bytes().data(), host + kGiB / 2, kGiB / 2,
                           cudaMemcpyHostToDevice, other));
      must(cudaStreamSynchronize(stream_));
      must(cudaStreamSynchronize(other));
    });
    must(cudaStreamDestroy(other));
    rate("host/both/driver", "both ways at once, cudaMemcpyAsync (sum)", kGiB, driver_both);
    const auto mover = must(PageMover::make(gpu_));
    const Pages layout = shuffled(65536, 65536, 0, 0);
    const auto plan = must(mover->prepare(layout));
    const double both = median_seconds([&] {
      const auto out =
          must(mover->start(*plan, 0, plan->elements() / 2, gpu_place(*source_), host_place(), 0));
      const auto in = must(mover->start(*plan, plan->elements() / 2, plan->elements() / 2,
                                        host_place(), gpu_place(*destination_), 1));
      finish(*mover, out);
      finish(*mover, in);
    });
    rate("host/both", "both ways at once, pages of 64 KiB (sum)", kGiB, both);
  }

  /// As the staged path does it: many copies to or from slots of 256 KiB, a list each.
  void slots() {
    for (const std::uint32_t lanes : {1u, 4u, 8u})
      for (const std::uint64_t slots_at_once : {1u, 4u})
        for (const bool gather : {true, false}) slots(lanes, slots_at_once, gather);
  }

  void slots(std::uint32_t lanes, std::uint64_t slots_at_once, bool gather) {
    constexpr std::uint64_t kPage = 4096;
    const std::uint64_t bytes = slots_at_once * 256 * 1024;
    PageMoverOptions options;
    options.lanes = lanes;
    const auto mover = must(PageMover::make(gpu_, options));
    const auto from = gather ? gpu_place(*source_) : host_place();
    const auto to = gather ? host_place() : gpu_place(*destination_);
    std::vector<CopyPiece> pieces(bytes / kPage);
    const double seconds = median_seconds([&] {
      std::vector<CopyTicket> last(lanes);
      for (std::uint64_t copy = 0; copy < kGiB / bytes; ++copy) {
        for (std::uint64_t i = 0; i < pieces.size(); ++i)
          pieces[i] = {copy * bytes + i * 37 % pieces.size() * kPage, copy * bytes + i * kPage,
                       kPage};
        const auto lane = static_cast<std::uint32_t>(copy % lanes);
        for (;;) {
          const auto ticket = mover->start(pieces, from, to, lane);
          if (ticket) {
            last[lane] = *ticket;
            break;
          }
          if (ticket.error().code != ErrorCode::kBusy) must(ticket);
        }
      }
      for (const CopyTicket& ticket : last) finish(*mover, ticket);
    });
    rate(fmt::format("slots/{}/{}/{}", gather ? "gather" : "scatter", slots_at_once, lanes),
         fmt::format("{} slots of 4 KiB pages, {} KiB a launch, {} lanes",
                     gather ? "gather to" : "scatter from", bytes / 1024, lanes),
         kGiB, seconds);
  }

  void microseconds(const std::string& name, const std::string& words, double seconds) {
    report_.add({name, words, seconds * 1e6, "us", 0});
  }

  void fixed_costs() {
    const auto mover = must(PageMover::make(gpu_));
    std::vector<CopyPiece> pieces(64);
    for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i] = {i * 8192, i * 4096, 4096};
    const auto from = gpu_place(*source_);
    const auto to = gpu_place(*destination_);
    const auto timed = [&](std::size_t count, CopyPlace target, bool only_start) {
      std::vector<double> all;
      for (int i = 0; i < 2000; ++i) {
        const auto start = Clock::now();
        const auto ticket = must(mover->start(std::span(pieces).first(count), from, target, 0));
        if (only_start) all.push_back(std::chrono::duration<double>(Clock::now() - start).count());
        finish(*mover, ticket);
        if (!only_start) all.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      }
      std::sort(all.begin(), all.end());
      return all[all.size() / 2];
    };
    microseconds("cost/start", "starting a copy of 64 pieces, p50", timed(64, to, true));
    microseconds("cost/one_page", "one page of 4 KiB on the GPU, start to done, p50",
                 timed(1, to, false));
    microseconds("cost/one_page_host", "one page of 4 KiB to pinned host, start to done, p50",
                 timed(1, host_place(), false));
    microseconds("cost/slot", "64 pages of 4 KiB to pinned host, start to done, p50",
                 timed(64, host_place(), false));
    const auto ticket = must(mover->start({}, from, to, 0));
    finish(*mover, ticket);
    microseconds("cost/poll", "asking whether a copy is done", seconds_of([&] {
                                                                 for (int i = 0; i < 1'000'000; ++i)
                                                                   must(mover->poll(ticket));
                                                               }) / 1e6);
    const Pages layout = shuffled(4096, 4096, 0, 0);
    const double prepare = median_seconds([&] {
      const auto plan = must(mover->prepare(layout));
      must(synchronise_gpu(gpu_));
    });
    microseconds("cost/prepare", "lists of 262144 pages to the GPU, until they are there", prepare);
    microseconds("cost/visible", "make_visible()", seconds_of([&] {
                                                     for (int i = 0; i < 1000; ++i)
                                                       must(make_visible(gpu_));
                                                   }) / 1e3);
  }

  void digests() {
    for (const std::uint64_t bytes : {4096u, 65536u, 1u << 20}) {
      std::vector<std::uint64_t> offsets(kGiB / bytes);
      for (std::size_t i = 0; i < offsets.size(); ++i) offsets[i] = i * bytes;
      std::vector<std::uint64_t> results(offsets.size());
      const double seconds =
          median_seconds([&] { must(digest_gpu_pages(*source_, bytes, offsets, results)); });
      rate(fmt::format("digest/{}", bytes), fmt::format("digest of pages of {}", size_words(bytes)),
           kGiB, seconds);
    }
    const double fill = median_seconds([&] { must(fill_gpu_pattern(*source_, 0, kGiB, 1)); });
    rate("fill", "fill with the pattern", kGiB, fill);
  }

  int gpu_;
  std::string json_;
  GpuScope scope_;
  BenchReport report_;
  std::shared_ptr<GpuMemory> source_;
  std::shared_ptr<GpuMemory> destination_;
  std::shared_ptr<PinnedMemory> host_;
  cudaStream_t stream_ = nullptr;
};

int run(int argc, char** argv) {
  int gpu = 0;
  std::string json;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--gpu") == 0) gpu = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
  }
  if (const auto found = require_gpu(gpu); !found) {
    fmt::print(stderr, "gpu_bench: {}\n", found.error().message);
    return 2;
  }
  const GpuInventory& inventory = gpu_inventory();
  fmt::print("{}, CUDA {} (driver) {} (runtime)\n",
             inventory.gpus[static_cast<std::size_t>(gpu)].name, inventory.driver_version,
             inventory.runtime_version);
  Bench(gpu, json).run();
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  try {
    return penstock::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
}

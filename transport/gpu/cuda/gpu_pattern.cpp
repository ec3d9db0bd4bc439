#include "transport/gpu/gpu_pattern.hpp"

#include <algorithm>

#include "transport/gpu/cuda/driver.hpp"
#include "transport/gpu/cuda/pattern_kernels.hpp"
#include "transport/gpu/cuda/secret.hpp"
#include "transport/gpu/scope.hpp"

namespace penstock {
namespace {

/// Digests are asked for so many pages at a time.
constexpr std::size_t kPagesAtOnce = 1u << 20;

/// A stream of this call's own: the default one would wait for the model's.
class Stream {
 public:
  Stream() : error_(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (stream_ != nullptr && cudaStreamDestroy(stream_) != cudaSuccess) (void)cudaGetLastError();
  }
  cudaError_t error() const { return error_; }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaError_t error_;
};

/// Offsets and digests of a call, in the GPU's memory.
class Room {
 public:
  explicit Room(std::size_t words) : error_(cudaMalloc(&memory_, words * sizeof(std::uint64_t))) {}
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() {
    if (memory_ != nullptr && cudaFree(memory_) != cudaSuccess) (void)cudaGetLastError();
  }
  cudaError_t error() const { return error_; }
  std::uint64_t* words() const { return static_cast<std::uint64_t*>(memory_); }

 private:
  void* memory_ = nullptr;
  cudaError_t error_;
};

std::uint64_t start_of(const RegionMemory& memory) {
  return reinterpret_cast<std::uint64_t>(memory.bytes().data());
}

}  // namespace

Result<void> fill_gpu_pattern(const RegionMemory& memory, std::uint64_t offset,
                              std::uint64_t length, std::uint64_t seed) {
  const std::uint64_t size = memory.bytes().size();
  if (offset > size || length > size - offset)
    return fail(ErrorCode::kOutOfRange, "[{}, +{}) is not inside {} bytes", offset, length, size);
  GpuScope scope(memory.gpu());
  if (!scope.entered()) return scope.entered();
  Stream stream;
  cudaError_t error = stream.error();
  if (error == cudaSuccess)
    error = gpu::launch_fill(start_of(memory) + offset, length, seed, offset, stream.get());
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream.get());
  return gpu::check_cuda(error, "filling GPU memory");
}

Result<void> digest_gpu_pages(const RegionMemory& memory, std::uint64_t page_bytes,
                              std::span<const std::uint64_t> offsets,
                              std::span<std::uint64_t> digests) {
  const std::uint64_t size = memory.bytes().size();
  if (offsets.size() != digests.size())
    return fail(ErrorCode::kInvalidArgument, "{} pages and room for {} digests", offsets.size(),
                digests.size());
  for (const std::uint64_t offset : offsets)
    if (offset > size || page_bytes > size - offset)
      return fail(ErrorCode::kOutOfRange, "[{}, +{}) is not inside {} bytes", offset, page_bytes,
                  size);
  if (offsets.empty()) return {};
  GpuScope scope(memory.gpu());
  if (!scope.entered()) return scope.entered();
  const std::size_t most = std::min(offsets.size(), kPagesAtOnce);
  Stream stream;
  Room room(2 * most);
  cudaError_t error = stream.error() != cudaSuccess ? stream.error() : room.error();
  for (std::size_t first = 0; first < offsets.size() && error == cudaSuccess; first += most) {
    const std::size_t count = std::min(most, offsets.size() - first);
    const std::size_t bytes = count * sizeof(std::uint64_t);
    error = cudaMemcpyAsync(room.words(), offsets.data() + first, bytes, cudaMemcpyHostToDevice,
                            stream.get());
    if (error == cudaSuccess)
      error = gpu::launch_digest(start_of(memory), page_bytes, room.words(), count,
                                 room.words() + most, gpu::default_secret(), stream.get());
    if (error == cudaSuccess)
      error = cudaMemcpyAsync(digests.data() + first, room.words() + most, bytes,
                              cudaMemcpyDeviceToHost, stream.get());
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream.get());
  }
  return gpu::check_cuda(error, "digesting GPU memory");
}

}  // namespace penstock

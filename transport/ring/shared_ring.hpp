// Two rings of bytes in memory that two processes share, one each way: how a client and the service
// of its node exchange messages without a system call. The layout is docs/protocol.md's.
//
// Neither side trusts the other. Each keeps its own index for itself and only publishes it; what it
// reads of the other's is checked before it is used, and records are copied out before anybody
// looks at them. Whatever the other writes costs at most a kBroken.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace penstock {

inline constexpr std::uint32_t kRingVersion = 1;
inline constexpr std::uint64_t kRingMagic = 0x314e525453504e50;  // "PNPSTRN1"
inline constexpr std::size_t kRingHeaderBytes = 4096;
inline constexpr std::size_t kRingRecordBytes = 8;  // length and kind, before the payload
inline constexpr std::size_t kLeastRingBytes = 4096;
inline constexpr std::size_t kMostRingBytes = std::size_t{64} << 20;

enum class RingRecord : std::uint32_t {
  kMessage = 1,
  /// In this place belongs the message that comes by ZeroMQ with this number (8 bytes).
  kBySocket = 2,
};

/// The indices of one direction, each on cache lines of its own: its owner writes it, the other
/// side reads it. Bytes since the beginning, never wrapped.
struct RingIndices {
  alignas(128) std::atomic<std::uint64_t> head;  // the writer's
  alignas(128) std::atomic<std::uint64_t> tail;  // the reader's
  /// Set by the reader before it sleeps; whoever takes it back rings.
  alignas(128) std::atomic<std::uint32_t> asleep;
};

/// The first page of the segment; the two rings follow it.
struct RingHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t ring_bytes;  // of each direction, a power of two
  RingIndices requests;      // client to service
  RingIndices answers;       // service to client
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(RingIndices) == 384 &&
              offsetof(RingHeader, requests) == 128 && offsetof(RingHeader, answers) == 512 &&
              sizeof(RingHeader) <= kRingHeaderBytes);

/// What a message of so many bytes takes up.
constexpr std::size_t ring_bytes_of(std::size_t payload) {
  return kRingRecordBytes + (payload + 7) / 8 * 8;
}
/// Longer messages go by ZeroMQ, so that one cannot fill the ring.
constexpr std::size_t longest_in_ring(std::size_t ring_bytes) { return ring_bytes / 4; }

enum class RingResult : unsigned char { kDone, kNotNow, kBroken };  // kNotNow: full, or empty

/// One thread at a time.
class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(RingIndices& indices, std::span<std::byte> data) : indices_(&indices), data_(data) {}

  RingResult write(RingRecord kind, std::span<const std::byte> payload) {
    const std::uint64_t used = head_ - indices_->tail.load(std::memory_order_acquire);
    if (used > data_.size()) return RingResult::kBroken;
    const std::size_t bytes = ring_bytes_of(payload.size());
    if (bytes > data_.size() - used) return RingResult::kNotNow;
    const std::uint32_t words[2] = {static_cast<std::uint32_t>(payload.size()),
                                    static_cast<std::uint32_t>(kind)};
    put(head_, std::as_bytes(std::span(words)));
    put(head_ + kRingRecordBytes, payload);
    head_ += bytes;
    indices_->head.store(head_, std::memory_order_seq_cst);  // see must_ring()
    return RingResult::kDone;
  }

  /// After write(): whether the reader sleeps and has to be woken. The reader says that it sleeps
  /// and then looks once more; we write and then look whether it sleeps. All four accesses are
  /// seq_cst, so one of the two sees what the other did: with anything weaker both loads may pass
  /// the stores before them, the reader sleeps on a message and nobody rings.
  bool must_ring() {
    return indices_->asleep.load(std::memory_order_seq_cst) != 0 &&
           indices_->asleep.exchange(0, std::memory_order_seq_cst) != 0;
  }

 private:
  void put(std::uint64_t at, std::span<const std::byte> bytes) {
    const std::size_t from = at & (data_.size() - 1);
    const std::size_t first = std::min(bytes.size(), data_.size() - from);
    if (first > 0) std::memcpy(data_.data() + from, bytes.data(), first);
    if (first < bytes.size()) std::memcpy(data_.data(), bytes.data() + first, bytes.size() - first);
  }

  RingIndices* indices_ = nullptr;
  std::span<std::byte> data_;
  std::uint64_t head_ = 0;
};

/// One thread at a time.
class RingReader {
 public:
  RingReader() = default;
  RingReader(RingIndices& indices, std::span<const std::byte> data)
      : indices_(&indices), data_(data) {}

  /// Takes the next record; `payload` is the copy. Once broken it stays so.
  RingResult read(RingRecord& kind, std::vector<std::byte>& payload) {
    const std::uint64_t there = indices_->head.load(std::memory_order_acquire) - tail_;
    if (there == 0) return RingResult::kNotNow;
    if (there > data_.size() || there < kRingRecordBytes) return RingResult::kBroken;
    std::uint32_t words[2] = {};
    take(tail_, std::as_writable_bytes(std::span(words)));  // once: the other side may change it
    if (words[0] > longest_in_ring(data_.size()) || ring_bytes_of(words[0]) > there)
      return RingResult::kBroken;
    kind = static_cast<RingRecord>(words[1]);
    if (kind != RingRecord::kMessage && (kind != RingRecord::kBySocket || words[0] != 8))
      return RingResult::kBroken;
    payload.resize(words[0]);
    take(tail_ + kRingRecordBytes, payload);
    tail_ += ring_bytes_of(words[0]);
    indices_->tail.store(tail_, std::memory_order_release);
    return RingResult::kDone;
  }

  bool empty() const { return indices_->head.load(std::memory_order_acquire) == tail_; }

  /// Before the reader sleeps. False: something came, it is awake. See RingWriter::must_ring().
  bool sleep() {
    indices_->asleep.store(1, std::memory_order_seq_cst);
    if (indices_->head.load(std::memory_order_seq_cst) == tail_) return true;
    awake();
    return false;
  }
  void awake() { indices_->asleep.store(0, std::memory_order_relaxed); }

 private:
  void take(std::uint64_t at, std::span<std::byte> bytes) const {
    const std::size_t from = at & (data_.size() - 1);
    const std::size_t first = std::min(bytes.size(), data_.size() - from);
    if (first > 0) std::memcpy(bytes.data(), data_.data() + from, first);
    if (first < bytes.size()) std::memcpy(bytes.data() + first, data_.data(), bytes.size() - first);
  }

  RingIndices* indices_ = nullptr;
  std::span<const std::byte> data_;
  std::uint64_t tail_ = 0;
};

/// A file descriptor that is closed.
class RingDescriptor {
 public:
  RingDescriptor() = default;
  explicit RingDescriptor(int fd) : fd_(fd) {}
  RingDescriptor(RingDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RingDescriptor& operator=(RingDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~RingDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// The shared memory, mapped. Nothing here throws; errno says why something is empty.
class RingSegment {
 public:
  /// A new one, and the descriptor that maps it elsewhere. Its size is sealed: the other side
  /// cannot take pages away from under us. `ring_bytes` is a power of two within the limits above.
  static std::optional<std::pair<RingSegment, RingDescriptor>> make(std::size_t ring_bytes) {
    RingDescriptor fd(::memfd_create("penstock-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const std::size_t bytes = kRingHeaderBytes + 2 * ring_bytes;
    if (fd.get() < 0 || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
      return std::nullopt;
    auto segment = map(fd.get(), bytes);
    if (!segment) return std::nullopt;
    segment->ring_bytes_ = ring_bytes;
    auto* header = new (segment->base_) RingHeader{};
    header->magic = kRingMagic;
    header->version = kRingVersion;
    header->header_bytes = kRingHeaderBytes;
    header->ring_bytes = ring_bytes;
    return std::pair(std::move(*segment), std::move(fd));
  }
  /// One that the other side made. EPROTO: it is none, or of another version.
  static std::optional<RingSegment> open(int fd) {
    struct stat file {};
    if (::fstat(fd, &file) != 0) return std::nullopt;
    const auto bytes = static_cast<std::size_t>(file.st_size);
    errno = EPROTO;
    if (bytes < kRingHeaderBytes + 2 * kLeastRingBytes) return std::nullopt;
    auto segment = map(fd, bytes);
    if (!segment) return std::nullopt;
    const RingHeader& header = segment->header();
    const std::uint64_t ring_bytes = header.ring_bytes;
    errno = EPROTO;
    if (header.magic != kRingMagic || header.version != kRingVersion ||
        header.header_bytes != kRingHeaderBytes || !std::has_single_bit(ring_bytes) ||
        ring_bytes < kLeastRingBytes || ring_bytes > kMostRingBytes ||
        bytes < kRingHeaderBytes + 2 * ring_bytes)
      return std::nullopt;
    segment->ring_bytes_ = ring_bytes;
    return segment;
  }

  RingSegment(RingSegment&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        bytes_(other.bytes_),
        ring_bytes_(other.ring_bytes_) {}
  RingSegment& operator=(RingSegment&&) = delete;
  ~RingSegment() {
    if (base_ != nullptr) ::munmap(base_, bytes_);
  }

  RingHeader& header() const { return *static_cast<RingHeader*>(base_); }
  std::size_t ring_bytes() const { return ring_bytes_; }
  std::span<std::byte> requests() const { return {data(), ring_bytes_}; }
  std::span<std::byte> answers() const { return {data() + ring_bytes_, ring_bytes_}; }

 private:
  RingSegment(void* base, std::size_t bytes) : base_(base), bytes_(bytes) {}
  static std::optional<RingSegment> map(int fd, std::size_t bytes) {
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return std::nullopt;
    return RingSegment(base, bytes);
  }
  std::byte* data() const { return static_cast<std::byte*>(base_) + kRingHeaderBytes; }

  void* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t ring_bytes_ = 0;
};

/// One end of a pair of sockets: wakes the other side, and closes when it dies, which an eventfd
/// would not tell.
class RingBell {
 public:
  RingBell() = default;
  explicit RingBell(RingDescriptor fd) : fd_(std::move(fd)) {}
  static std::optional<std::pair<RingBell, RingBell>> make() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      return std::nullopt;
    return std::pair(RingBell(RingDescriptor(ends[0])), RingBell(RingDescriptor(ends[1])));
  }

  int fd() const { return fd_.get(); }
  int release() { return fd_.release(); }
  /// Never blocks; one that finds no room finds a bell that is rung already.
  void ring() const {
    const char byte = 1;
    [[maybe_unused]] const auto sent = ::send(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  /// False: the other side is gone.
  bool quiet() const {
    char bytes[256];
    const ssize_t got = ::recv(fd_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  }

 private:
  RingDescriptor fd_;
};

}  // namespace penstock

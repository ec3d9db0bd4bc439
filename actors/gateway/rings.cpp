#include "actors/gateway/rings.hpp"

#include <sys/epoll.h>

#include <array>
#include <cstring>
#include <system_error>
#include <utility>

namespace penstock {
namespace {

/// Of one ring before the next has its turn.
constexpr std::size_t kRequestsPerTurn = 64;
constexpr std::size_t kNumberBytes = sizeof(std::uint64_t);

std::span<const std::byte> as_bytes(const std::vector<std::uint8_t>& bytes) {
  return std::as_bytes(std::span(bytes));
}

}  // namespace

struct Rings::Ring {
  Ring(std::string of, Principal by, RingSegment memory, RingBell ours)
      : client(std::move(of)),
        asker(std::move(by)),
        segment(std::move(memory)),
        bell(std::move(ours)),
        requests(segment.header().requests, segment.requests()),
        answers(segment.header().answers, segment.answers()) {}

  const std::string client;
  const Principal asker;
  const RingSegment segment;
  const RingBell bell;
  std::function<void()> withdraw{};  // what its client has not fetched
  std::atomic<bool> ended{false};
  std::atomic<bool> attached{false};  // its client has spoken here: answers may go this way

  // The gateway's thread.
  RingReader requests;
  std::uint64_t numbers_read = 0;            // of messages that come by ZeroMQ
  std::optional<std::uint64_t> waits_for{};  // read on when this one has come

  std::mutex mutex;  // of all below
  RingWriter answers;
  std::uint64_t numbers_sent = 0;
  std::atomic<bool> answers_broken{false};
  std::deque<Queued> queue;  // in the order of sending, for lack of room
  std::size_t queued_bytes = 0;
};

Rings::Rings(Options options, Port port, Audit& audit)
    : options_(options),
      port_(std::move(port)),
      audit_(audit),
      watched_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (watched_.get() < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
}

Rings::~Rings() = default;

std::shared_ptr<Rings::Ring> Rings::of(const std::string& client) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_client_.find(client);
  return found == by_client_.end() ? nullptr : found->second;
}

// -- their lives ---------------------------------------------------------------------------------

Result<std::uint64_t> Rings::hand_out(const std::string& client, Principal asker,
                                      DescriptorSocket& descriptors) {
  end(client);
  forget_ended();
  if (all_.size() >= options_.most)
    return fail(ErrorCode::kResourceExhausted, "{} rings are open, request.rings is {}",
                all_.size(), options_.most);
  auto segment = RingSegment::make(options_.bytes);
  auto bells = RingBell::make();
  if (!segment || !bells)
    return fail(ErrorCode::kResourceExhausted, "no ring: {}", std::strerror(errno));
  auto ring = std::make_shared<Ring>(client, std::move(asker), std::move(segment->first),
                                     std::move(bells->first));
  epoll_event wanted{};
  wanted.events = EPOLLIN | EPOLLRDHUP;
  wanted.data.ptr = ring.get();
  if (::epoll_ctl(watched_.get(), EPOLL_CTL_ADD, ring->bell.fd(), &wanted) != 0)
    return fail(ErrorCode::kResourceExhausted, "no ring: epoll_ctl: {}", std::strerror(errno));
  std::vector<GpuDescriptor> parts;
  parts.emplace_back(segment->second.release());
  parts.emplace_back(bells->second.release());
  auto token = descriptors.offer(std::move(parts));
  if (!token) return token;
  ring->withdraw = [&descriptors, token = *token] { descriptors.withdraw(token); };
  all_.push_back(ring);
  counters_.open = all_.size();
  const std::lock_guard lock(mutex_);
  by_client_[client] = std::move(ring);
  return token;
}

void Rings::end(const std::string& client) {
  const std::lock_guard lock(mutex_);
  const auto found = by_client_.find(client);
  if (found == by_client_.end()) return;
  found->second->ended = true;
  ended_ = true;
  by_client_.erase(found);
  port_.wake();
}

void Rings::end_keyed() {
  for (const auto& ring : all_)
    if (!ring->asker.name.empty()) end(ring->client);
}

void Rings::forget_ended() {
  if (!ended_.exchange(false)) return;
  std::erase_if(all_, [this](const auto& ring) {
    if (!ring->ended) return false;
    if (ring->attached) --attached_;
    ring->withdraw();
    const std::lock_guard lock(ring->mutex);
    if (!ring->queue.empty()) --waiting_;
    ring->queue.clear();
    ring->queued_bytes = 0;
    // Now, though a sender may hold the ring yet: the client sees that it is over.
    ::epoll_ctl(watched_.get(), EPOLL_CTL_DEL, ring->bell.fd(), nullptr);
    ::shutdown(ring->bell.fd(), SHUT_RDWR);
    return true;
  });
  counters_.open = all_.size();
}

void Rings::broken(Ring& ring, const char* why) {
  counters_.broken++;
  audit_.refused(ring.client, why);
  end(ring.client);
  port_.broken(ring.client);
}

void Rings::serve() {
  if (all_.empty() && !changed()) return;
  std::array<epoll_event, 16> events{};
  const int count = ::epoll_wait(watched_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    auto& ring = *static_cast<Ring*>(events.at(static_cast<std::size_t>(i)).data.ptr);
    if (!ring.ended && !ring.bell.quiet()) end(ring.client);
  }
  if (answers_broken_.exchange(false))
    for (const auto& ring : all_)
      if (ring->answers_broken && !ring->ended) broken(*ring, "its ring is broken");
  forget_ended();
}

// -- requests ------------------------------------------------------------------------------------

std::size_t Rings::receive(std::size_t most, const Take& take) {
  std::size_t received = 0;
  const std::size_t rings = all_.size();
  for (std::size_t i = 0; i < rings && received < most && !all_.empty(); ++i) {
    const std::shared_ptr<Ring> ring = all_[next_++ % all_.size()];
    if (!ring->ended && !ring->waits_for)
      received += receive(*ring, std::min(most - received, kRequestsPerTurn), take);
  }
  return received;
}

bool Rings::receive_until(const std::string& client, std::uint64_t number, const Take& take) {
  const auto ring = of(client);
  if (!ring) return false;
  // No more than the ring holds: its client may be writing all the while.
  if (!ring->waits_for) receive(*ring, options_.bytes / kRingRecordBytes, take);
  if (!ring->ended && ring->waits_for == number) {
    ring->waits_for.reset();
    return true;
  }
  if (!ring->ended) broken(*ring, "its ring does not say where its message by ZeroMQ belongs");
  return false;
}

void Rings::spoke_apart(const std::string& client) {
  if (counters_.open == 0) return;
  const auto ring = of(client);
  // What it sent before its ring began is behind the first record of that, and may come later.
  if (ring && ring->attached && ring->waits_for != 1) end(client);
}

std::size_t Rings::receive(Ring& ring, std::size_t most, const Take& take) {
  std::size_t received = 0;
  while (received < most && !ring.waits_for && !ring.ended && !ring.requests.empty()) {
    auto message = std::make_shared<std::vector<std::byte>>();
    RingRecord kind{};
    const RingResult read = ring.requests.read(kind, *message);
    if (read == RingResult::kNotNow) break;
    if (read == RingResult::kBroken) {
      broken(ring, "its ring is broken");
      break;
    }
    if (!ring.attached) attach(ring);
    if (kind == RingRecord::kBySocket) {
      std::uint64_t number = 0;
      std::memcpy(&number, message->data(), kNumberBytes);
      if (!take_marker(ring, number)) break;
      continue;
    }
    ++received;
    counters_.requests++;
    take(ring.client, ring.asker, std::move(message));
  }
  return received;
}

bool Rings::take_marker(Ring& ring, std::uint64_t number) {
  if (number != ring.numbers_read + 1) {
    broken(ring, "its ring is broken: messages by ZeroMQ are numbered from 1");
    return false;
  }
  ring.numbers_read = number;
  ring.waits_for = number;
  return true;
}

bool Rings::sleep() {
  for (const auto& ring : all_)
    if (!ring->waits_for && !ring->requests.sleep()) return false;
  return true;
}

void Rings::awake() {
  for (const auto& ring : all_) ring->requests.awake();
}

// -- answers -------------------------------------------------------------------------------------

/// The first word of the client. What was sent to it before is on its way by ZeroMQ, so the first
/// record of the answers is a message of nothing that comes by ZeroMQ behind all of that.
void Rings::attach(Ring& ring) {
  const std::lock_guard lock(ring.mutex);
  ring.attached = true;
  ++attached_;
  by_socket(ring, {});
}

bool Rings::send(const std::string& client, std::vector<std::uint8_t>& bytes) {
  if (counters_.open == 0) return false;
  const auto ring = of(client);
  if (!ring) return false;
  const std::lock_guard lock(ring->mutex);
  if (ring->ended) return false;
  if (!ring->attached) {  // under the lock, so that none of these is sent behind attach()'s
    port_.by_socket(client, std::move(bytes), 0);
    return true;
  }
  counters_.answers++;
  if (bytes.size() > longest_in_ring(ring->segment.ring_bytes()))
    by_socket(*ring, std::move(bytes));
  else
    put(*ring, {RingRecord::kMessage, std::move(bytes)});
  return true;
}

void Rings::by_socket(Ring& ring, std::vector<std::uint8_t> bytes) {
  const std::uint64_t number = ++ring.numbers_sent;
  Queued marker{RingRecord::kBySocket, std::vector<std::uint8_t>(kNumberBytes)};
  std::memcpy(marker.bytes.data(), &number, kNumberBytes);
  put(ring, std::move(marker));
  port_.by_socket(ring.client, std::move(bytes), number);
}

void Rings::put(Ring& ring, Queued message) {
  const bool was_empty = ring.queue.empty();
  if (!was_empty && ring.queued_bytes + message.bytes.size() > options_.max_unsent_bytes)
    return port_.slow(ring.client);
  ring.queued_bytes += message.bytes.size();
  ring.queue.push_back(std::move(message));
  if (was_empty) ++waiting_;
  write_waiting(ring);
  if (was_empty && !ring.queue.empty()) port_.wake();
}

void Rings::write_waiting(Ring& ring) {
  bool wrote = false;
  while (!ring.queue.empty()) {
    const Queued& next = ring.queue.front();
    const RingResult result = ring.answers.write(next.kind, as_bytes(next.bytes));
    if (result == RingResult::kBroken) {
      ring.answers_broken = answers_broken_ = true;
      port_.wake();
      break;
    }
    if (result == RingResult::kNotNow) break;
    wrote = true;
    ring.queued_bytes -= next.bytes.size();
    ring.queue.pop_front();
  }
  if (ring.queue.empty()) --waiting_;
  if (wrote && ring.answers.must_ring()) ring.bell.ring();
}

void Rings::flush() {
  if (!waits()) return;
  for (const auto& ring : all_) {
    const std::lock_guard lock(ring->mutex);
    if (!ring->queue.empty()) write_waiting(*ring);
  }
}

}  // namespace penstock

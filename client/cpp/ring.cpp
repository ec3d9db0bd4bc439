#include "client/cpp/ring.hpp"

#include <cstring>
#include <utility>

#include "client/cpp/descriptors.hpp"

namespace penstock::client {
namespace {

constexpr std::size_t kNumberBytes = sizeof(std::uint64_t);
// No more than this is kept of messages that came before the ring said where they belong.
constexpr std::size_t kMostAhead = 1024;

}  // namespace

Ring::Ring(const std::string& socket_path, std::uint64_t token) {
  auto parts = take_descriptors(socket_path, token);
  if (parts.size() != 2) throw Error("INTERNAL", "the service gave no ring of this version");
  bell_ = RingBell(std::move(parts[1]));
  auto segment = RingSegment::open(parts[0].get());
  if (!segment)
    throw Error("INTERNAL",
                std::string("the service's ring cannot be used: ") + std::strerror(errno));
  segment_.emplace(std::move(*segment));
  requests_ = RingWriter(segment_->header().requests, segment_->requests());
  answers_ = RingReader(segment_->header().answers, segment_->answers());
}

Ring::Sent Ring::send(const Message& message) {
  if (message.size() > longest_in_ring(segment_->ring_bytes())) return Sent::kTooLong;
  switch (requests_.write(RingRecord::kMessage, std::as_bytes(std::span(message)))) {
    case RingResult::kDone:
      if (requests_.must_ring()) bell_.ring();
      return Sent::kSent;
    case RingResult::kBroken:
      broken_ = true;
      break;
    case RingResult::kNotNow:
      break;
  }
  return Sent::kNoRoom;
}

std::optional<std::uint64_t> Ring::announce() {
  const std::uint64_t number = numbers_sent_ + 1;
  if (requests_.write(RingRecord::kBySocket, std::as_bytes(std::span(&number, 1))) !=
      RingResult::kDone)
    return std::nullopt;
  if (requests_.must_ring()) bell_.ring();
  return numbers_sent_ = number;
}

std::size_t Ring::receive(std::size_t most, const Deliver& deliver) {
  std::size_t received = 0;
  RingRecord kind{};
  while (received < most && !broken_) {
    if (waits_for_ != 0) {
      const auto found = by_socket_.find(waits_for_);
      if (found == by_socket_.end()) break;
      const Message message = std::move(found->second);
      by_socket_.erase(found);
      waits_for_ = 0;
      if (message.empty()) continue;  // it only says where the answers begin
      ++received;
      deliver(message);
      continue;
    }
    const RingResult read = answers_.read(kind, payload_);
    if (read == RingResult::kNotNow) break;
    if (read == RingResult::kBroken) {
      broken_ = true;
    } else if (kind == RingRecord::kBySocket) {
      std::memcpy(&waits_for_, payload_.data(), kNumberBytes);
    } else {
      ++received;
      deliver({reinterpret_cast<const std::uint8_t*>(payload_.data()), payload_.size()});
    }
  }
  return received;
}

void Ring::came_by_socket(std::uint64_t number, std::span<const std::uint8_t> message) {
  if (by_socket_.size() >= kMostAhead)
    broken_ = true;
  else
    by_socket_[number].assign(message.begin(), message.end());
}

void Ring::receive_left(const Deliver& deliver) {
  for (const auto& [number, message] : std::exchange(by_socket_, {}))
    if (!message.empty()) deliver(message);
}

bool Ring::sleep() {
  // What is in the ring behind a message that comes by ZeroMQ waits for that one.
  return waits_for_ != 0 ? !by_socket_.contains(waits_for_) : answers_.sleep();
}

}  // namespace penstock::client

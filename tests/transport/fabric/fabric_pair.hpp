// Two real cards of one provider in this process, polled in turn.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "transport/fabric/provider.hpp"

namespace penstock::test {

inline CardRequest request_for(const std::string& provider) {
  CardRequest request;
  request.provider = provider;
  if (provider == "tcp") request.domain = "lo";
  return request;
}

struct Operation : OperationContext {
  int completions = 0;
  bool ok = false;
  int error_number = 0;
};

/// A card with a registered buffer, and what came out of its polls.
struct Side {
  explicit Side(const std::string& provider, std::size_t bytes = 1u << 20) : memory(bytes) {
    auto opened = open_card(request_for(provider));
    if (!opened) throw std::runtime_error(opened.error().message);
    nic = std::move(*opened);
    registration = nic->register_memory(memory).value();
  }

  std::size_t poll() {
    std::array<Completion, 32> completions;
    const auto count = nic->poll(completions);
    for (std::size_t i = 0; i < count; ++i) {
      const auto& each = completions[i];
      if (each.kind == Completion::Kind::kImmediate) immediates.push_back(each.immediate);
      if (each.kind == Completion::Kind::kMessage)
        messages.emplace_back(each.payload.begin(), each.payload.end());
      if (each.kind != Completion::Kind::kOperation) continue;
      auto* operation = static_cast<Operation*>(each.context);
      ++operation->completions;
      operation->ok = each.ok;
      operation->error_number = each.error_number;
    }
    return count;
  }

  OneSided write(PeerHandle peer, const Side& target, std::uint64_t from, std::uint64_t to,
                 std::uint64_t length) {
    OneSided operation;
    operation.peer = peer;
    operation.local[0] = {memory.data() + from, length};
    operation.local_descriptor = registration->descriptor();
    operation.length = length;
    operation.remote_address = target.registration->remote_base() + to;
    operation.remote_key = target.registration->key();
    return operation;
  }

  void fill(unsigned seed) {
    for (std::size_t i = 0; i < memory.size(); ++i)
      memory[i] = std::byte((i * 2654435761u + seed) >> 7);
  }

  std::vector<std::byte> memory;
  std::unique_ptr<Nic> nic;
  std::unique_ptr<MemoryRegistration> registration;
  std::vector<std::uint32_t> immediates;
  std::vector<std::vector<std::byte>> messages;
};

class FabricPair : public ::testing::TestWithParam<std::string> {
 protected:
  FabricPair() : a(GetParam()), b(GetParam()) {
    to_b = a.nic->add_peer(b.nic->inbound_address()).value();
    to_b_control = a.nic->add_peer(b.nic->control_address()).value();
    to_a_control = b.nic->add_peer(a.nic->control_address()).value();
  }

  /// Polls both until `done`, at most for 20 seconds.
  template <class Done>
  bool until(Done done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      a.poll();
      b.poll();
    }
    return true;
  }

  /// Posts, polling while the card says kAgain.
  bool post(Side& side, const OneSided& request, Operation* operation) {
    Post result;
    return until([&] {
             result = side.nic->post(request, operation);
             return result.status != PostStatus::kAgain;
           }) &&
           result.status == PostStatus::kPosted;
  }
  bool send(Side& side, PeerHandle peer, std::span<const std::byte> payload, Operation* operation) {
    Post result;
    return until([&] {
             result = side.nic->send(peer, payload, operation);
             return result.status != PostStatus::kAgain;
           }) &&
           result.status == PostStatus::kPosted;
  }

  Side a;
  Side b;
  PeerHandle to_b = 0;
  PeerHandle to_b_control = 0;
  PeerHandle to_a_control = 0;
};

}  // namespace penstock::test

// A peer in a process of its own, killed without a word.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>

#include "transport/fabric/provider.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

struct Words {
  std::array<std::byte, 64> inbound;
  std::uint64_t inbound_size;
  std::uint64_t key;
};

CardRequest loopback() {
  CardRequest request;
  request.domain = "lo";
  return request;
}

/// The child: opens a card, tells where it is, polls until it is killed.
[[noreturn]] void serve(int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto nic = open_card(loopback());
  if (!nic) _exit(1);
  std::vector<std::byte> memory(8u << 20);
  const auto registration = (*nic)->register_memory(memory).value();
  Words words{};
  const auto address = (*nic)->inbound_address();
  std::memcpy(words.inbound.data(), address.data(), address.size());
  words.inbound_size = address.size();
  words.key = registration->key();
  if (write(out, &words, sizeof words) != sizeof words) _exit(1);
  std::array<Completion, 16> completions;
  for (;;) (*nic)->poll(completions);
}

TEST(KilledPeer, EveryWriteThatWasOutEndsAsAnError) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();  // before this process opens anything
  ASSERT_GE(child, 0);
  if (child == 0) serve(pipe_ends[1]);
  close(pipe_ends[1]);
  Words words{};
  ASSERT_EQ(read(pipe_ends[0], &words, sizeof words), static_cast<ssize_t>(sizeof words));
  close(pipe_ends[0]);

  auto nic = open_card(loopback());
  ASSERT_TRUE(nic) << nic.error().message;
  std::vector<std::byte> memory(8u << 20);
  const auto registration = (*nic)->register_memory(memory).value();
  const auto peer =
      (*nic)->add_peer({words.inbound.begin(),
                        words.inbound.begin() + static_cast<std::ptrdiff_t>(words.inbound_size)});
  ASSERT_TRUE(peer);
  OneSided request;
  request.peer = *peer;
  request.local[0] = {memory.data(), 1u << 20};
  request.length = 1u << 20;
  request.remote_key = words.key;

  std::vector<OperationContext> contexts(64);
  std::size_t posted = 0;
  std::size_t well = 0;
  std::size_t badly = 0;
  std::array<Completion, 16> completions;
  const auto poll = [&] {
    const auto count = (*nic)->poll(completions);
    for (std::size_t i = 0; i < count; ++i) ++(completions[i].ok ? well : badly);
  };
  const auto deadline = SteadyClock::now() + 20s;
  const auto post_until = [&](std::size_t wanted) {
    while (posted < wanted && SteadyClock::now() < deadline) {
      if ((*nic)->post(request, &contexts[posted]).status == PostStatus::kPosted) {
        ++posted;
      } else {
        poll();
      }
    }
  };
  // The first proves the connection. Then the peer stands still: however fast the machine is, it
  // confirms none of the rest.
  post_until(1);
  while (well + badly < 1 && SteadyClock::now() < deadline) poll();
  ASSERT_EQ(well, 1u);
  kill(child, SIGSTOP);
  ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child);
  post_until(contexts.size());
  ASSERT_EQ(posted, contexts.size());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  while (well + badly < posted && SteadyClock::now() < deadline) poll();
  EXPECT_EQ(well + badly, posted);
  EXPECT_GT(badly, 0u);
  // Later posts are refused or wait; the card lives.
  for (int i = 0; i < 100; ++i) {
    EXPECT_NE((*nic)->post(request, &contexts[0]).status, PostStatus::kPosted);
    poll();
  }
}

}  // namespace
}  // namespace penstock

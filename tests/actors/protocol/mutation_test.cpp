// Well-formed requests with seeded damage, under any compiler; tests/fuzz goes further with clang.
#include <gtest/gtest.h>

#include <random>

#include "tests/actors/protocol/sample_requests.hpp"
#include "tests/fuzz/exercise_request.hpp"

namespace penstock::test {
namespace {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {
    for (const Sample& sample : sample_requests()) samples_.push_back(sample.bytes());
  }

  Bytes next() {
    Bytes message = samples_[below(samples_.size())];
    for (std::size_t damage = 1 + below(3); damage > 0; --damage) mutate(message);
    return message;
  }

 private:
  std::size_t below(std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_);
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(below(256)); }

  void mutate(Bytes& message) {
    if (message.empty()) return message.push_back(byte());
    auto at = static_cast<std::ptrdiff_t>(below(message.size()));
    switch (below(6)) {
      case 0:
        message[static_cast<std::size_t>(at)] = byte();
        break;
      case 1:
        message[static_cast<std::size_t>(at)] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 2:
        message.erase(message.begin() + at);
        break;
      case 3:
        message.resize(static_cast<std::size_t>(at));
        break;
      case 4: {  // a header that declares anything from nothing to 4 G
        std::uint8_t declared = below(2) ? 0xff : byte();
        message.insert(message.begin() + at, {static_cast<std::uint8_t>(0xc0 + below(32)), declared,
                                              declared, byte(), byte()});
        break;
      }
      default: {  // a piece of another request
        const Bytes& other = samples_[below(samples_.size())];
        std::size_t from = below(other.size());
        std::size_t length = 1 + below(other.size() - from);
        auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
        message.insert(message.begin() + at, begin, begin + static_cast<std::ptrdiff_t>(length));
      }
    }
  }

  std::mt19937_64 random_;
  std::vector<Bytes> samples_;
};

TEST(MutatedRequests, CostAtMostAnErrorThatHasWords) {
  constexpr int kMessages = 300'000;
  constexpr std::uint64_t kSeed = 20'260'101;
  Mutator mutator(kSeed);
  for (int i = 0; i < kMessages; ++i) {
    Bytes message = mutator.next();
    std::string broken = exercise_request(std::as_bytes(std::span(message)));
    ASSERT_EQ(broken, "") << "message " << i << " of seed " << kSeed;
  }
}

TEST(MutatedRequests, EverySampleTruncatedAnywhereIsRefused) {
  for (const Sample& sample : sample_requests()) {
    Bytes whole = sample.bytes();
    for (std::size_t size = 0; size < whole.size(); ++size) {
      auto part = std::as_bytes(std::span(whole)).first(size);
      ASSERT_FALSE(decode_request(part, nullptr)) << sample.name << " cut to " << size;
    }
  }
}

}  // namespace
}  // namespace penstock::test

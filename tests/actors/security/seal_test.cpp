#include "actors/security/seal.hpp"

#include <gtest/gtest.h>

namespace penstock {
namespace {

struct Member {
  explicit Member(const Key& cluster_key)
      : session(make_key_pair()), secrets{session.secret_key, cluster_key} {}
  KeyPair session;
  Seal::Secrets secrets;
};

std::vector<std::byte> message() { return std::vector<std::byte>(100, std::byte{7}); }

/// What `from` closes for `to`, checked as `at` would check it.
bool opens(const Seal& closed_with, const Seal& checked_with, const Seal::Challenge& closed_for,
           const Seal::Challenge& checked_for) {
  auto sealed = message();
  closed_with.close(sealed, closed_for);
  const std::span all(sealed);
  return checked_with.fits(all.first(all.size() - Seal::kBytes), all.last(Seal::kBytes),
                           checked_for);
}

class ASeal : public testing::Test {
 protected:
  Key cluster_ = make_key_pair().secret_key;
  Member a_{cluster_}, b_{cluster_}, c_{cluster_};
  Seal at_a_{a_.secrets, b_.session.public_key};
  Seal at_b_{b_.secrets, a_.session.public_key};
  Seal::Challenge challenge_ = Seal::new_challenge();
};

TEST_F(ASeal, FitsAtTheOtherMemberOfThePair) {
  EXPECT_TRUE(opens(at_a_, at_b_, challenge_, challenge_));
  EXPECT_TRUE(opens(at_b_, at_a_, challenge_, challenge_));
}

TEST_F(ASeal, OfAnotherMemberDoesNotFit) {
  const Seal at_c(c_.secrets, b_.session.public_key);
  EXPECT_FALSE(opens(at_c, at_b_, challenge_, challenge_));
}

TEST_F(ASeal, OfWhoHasTheSessionKeysButNotTheClustersDoesNotFit) {
  const Seal stranger({a_.session.secret_key, make_key_pair().secret_key}, b_.session.public_key);
  EXPECT_FALSE(opens(stranger, at_b_, challenge_, challenge_));
}

TEST_F(ASeal, ForAnEarlierLifeOfItsReceiverDoesNotFit) {
  EXPECT_FALSE(opens(at_a_, at_b_, challenge_, Seal::new_challenge()));
  const Member restarted(cluster_);  // another session key
  EXPECT_FALSE(
      opens(at_a_, Seal(restarted.secrets, a_.session.public_key), challenge_, challenge_));
}

TEST_F(ASeal, DoesNotFitWhereOneBitDiffers) {
  auto sealed = message();
  at_a_.close(sealed, challenge_);
  const std::span all(sealed);
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    sealed[i] ^= std::byte{1};
    EXPECT_FALSE(
        at_b_.fits(all.first(all.size() - Seal::kBytes), all.last(Seal::kBytes), challenge_))
        << i;
    sealed[i] ^= std::byte{1};
  }
  EXPECT_FALSE(at_b_.fits(all, {}, challenge_));
}

TEST_F(ASeal, WithAKeyThatCannotBeOneFitsNowhere) {
  const Seal with_nothing(a_.secrets, Key{});
  const Seal at_other(b_.secrets, Key{});
  EXPECT_FALSE(opens(with_nothing, at_other, challenge_, challenge_));
}

}  // namespace
}  // namespace penstock

// The ways that a request may ask for, between real services. What needs a GPU is tested by
// tests/device/run.sh; here is what holds without one.
#include <gtest/gtest.h>

#include <string>

#include "tests/integration/nodes.hpp"

namespace penstock::integration {
namespace {

using State = client::TransferResult::State;

class Paths : public testing::Test {
 protected:
  void make(std::uint64_t bytes) {
    nodes["a"].allocate("src", bytes).detach();
    nodes["b"].allocate("dst", bytes).detach();
  }
  Nodes nodes{{"a", "b"}, {"devices.gpus=none"}};
};

TEST_F(Paths, StagedMovesPagesShorterAndLongerThanASlot) {
  make(64 << 20);
  for (const std::uint64_t page : {4096ull, 65536ull, 1048576ull, 4194304ull}) {
    Shuffle shuffle(64 << 20, page, page);
    auto spec = shuffle.write("src", "b", "dst");
    spec.path = "staged";
    const auto result = nodes["a"].transfer(spec).wait();
    EXPECT_EQ(result.state, State::kDone) << result.error_message;
    EXPECT_EQ(result.path, "staged");
    EXPECT_TRUE(shuffle.verify(nodes["a"], "src", nodes["b"], "dst")) << page;
  }
}

TEST_F(Paths, ManyStagedTransfersShareTheSlots) {
  make(8 << 20);
  Shuffle shuffle(8 << 20, 65536, 3);
  std::vector<client::TransferSpec> specs;
  for (int i = 0; i < 64; ++i) {
    specs.push_back(shuffle.write("src", "b", "dst"));
    specs.back().path = "staged";
  }
  for (auto& transfer : nodes["a"].transfer(specs)) {
    const auto result = transfer.wait();
    EXPECT_EQ(result.state, State::kDone) << result.error_message;
  }
  EXPECT_TRUE(shuffle.verify(nodes["a"], "src", nodes["b"], "dst"));
}

TEST_F(Paths, WhatCannotBeTakenIsAnErrorAndNothingElseIsTaken) {
  make(1 << 20);
  Shuffle shuffle(1 << 20, 65536, 3);
  auto gpudirect = shuffle.write("src", "b", "dst");
  gpudirect.path = "gpudirect";
  const auto result = nodes["a"].transfer(gpudirect).wait();
  EXPECT_EQ(result.state, State::kFailed);
  EXPECT_EQ(result.error_code, "INVALID_ARGUMENT") << "both are host memory";
  EXPECT_EQ(result.bytes, 0u);

  auto read = shuffle.write("src", "b", "dst");
  read.direction = client::Direction::kRead;
  read.path = "staged";
  EXPECT_EQ(nodes["a"].transfer(read).wait().error_code, "UNSUPPORTED");

  auto local = shuffle.write("src", "", "src");
  local.path = "staged";
  try {
    nodes["a"].transfer(local);
    ADD_FAILURE() << "accepted";
  } catch (const client::Error& error) {
    EXPECT_EQ(error.code(), "INVALID_ARGUMENT");
  }
}

TEST_F(Paths, AServiceThatUsesNoGpuSaysWhy) {
  try {
    nodes["a"].allocate_cuda("gpu", 1 << 20);
    ADD_FAILURE() << "the services of this test are told to use no GPU";
  } catch (const client::Error& error) {
    EXPECT_EQ(error.code(), "UNSUPPORTED");
    EXPECT_GT(error.message().size(), 20u) << error.message();
  }
  nodes["a"].allocate("gpu", 1 << 20);  // the name is free
}

}  // namespace
}  // namespace penstock::integration

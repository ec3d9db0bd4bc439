#include "client/workload/kv_geometry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace penstock::workload {
namespace {

using testing::HasSubstr;

std::string refusal(const KvGeometry& geometry) {
  try {
    geometry.check();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

// "Insights into DeepSeek-V3" (arXiv 2505.09343), table 1: KV cache per token in BF16.
TEST(KvGeometry, BytesPerTokenMeetThePublishedOnes) {
  EXPECT_EQ(model_geometry("deepseek-v3").bytes_per_token(), 70'272u);
  EXPECT_EQ(model_geometry("qwen2.5-72b").bytes_per_token(), 327'680u);
  EXPECT_EQ(model_geometry("llama-3.1-405b").bytes_per_token(), 516'096u);
}

// 128 KiB and 320 KiB per token are the numbers usually given for these two.
TEST(KvGeometry, BytesPerTokenOfLlama3) {
  EXPECT_EQ(model_geometry("llama-3-8b").bytes_per_token(), 128u * 1024);
  EXPECT_EQ(model_geometry("llama-3-70b").bytes_per_token(), 320u * 1024);
  EXPECT_EQ(model_geometry("mistral-7b").bytes_per_token(), 128u * 1024);
  EXPECT_EQ(model_geometry("qwen2.5-7b").bytes_per_token(), 56u * 1024);
}

TEST(KvGeometry, EveryPresetIsValid) {
  for (const auto& preset : model_presets()) {
    EXPECT_NO_THROW(preset.geometry.check()) << preset.name;
    EXPECT_EQ(&model_geometry(preset.name), &preset.geometry);
  }
}

TEST(KvGeometry, UnknownModelListsTheKnown) {
  try {
    model_geometry("llama-9");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("unknown model 'llama-9'; known are llama-3-8b, "));
  }
}

TEST(KvGeometry, RanksShareTheHeadsAndNeverHoldLessThanOne) {
  auto geometry = model_geometry("llama-3-70b");
  EXPECT_EQ(geometry.page_bytes(), 16u * 8 * 128 * 2);
  geometry.tensor_parallel = 8;
  EXPECT_EQ(geometry.page_bytes(), 16u * 128 * 2);
  geometry.tensor_parallel = 16;
  EXPECT_EQ(geometry.page_bytes(), 16u * 128 * 2);
  EXPECT_EQ(geometry.page_bytes_all_planes(), 16u * 128 * 2 * 160);
}

TEST(KvGeometry, EveryRankHoldsTheWholeLatent) {
  auto geometry = model_geometry("deepseek-v3");
  geometry.tensor_parallel = 8;
  EXPECT_EQ(geometry.page_bytes(), 16u * 576 * 2);
  EXPECT_EQ(geometry.planes(), 61u);
  EXPECT_EQ(geometry.plane_name(60), "layer 60 latent");
}

TEST(KvGeometry, PlanesLieOneAfterTheOther) {
  auto geometry = model_geometry("llama-3-8b");
  EXPECT_EQ(geometry.plane_offset(0, 1000), 0u);
  EXPECT_EQ(geometry.plane_offset(3, 1000), 3u * 1000 * geometry.page_bytes());
  EXPECT_EQ(geometry.plane_name(0), "layer 0 K");
  EXPECT_EQ(geometry.plane_name(3), "layer 1 V");
  // 64 bits: the whole of a pool above 4 GiB.
  EXPECT_EQ(geometry.plane_offset(63, 1u << 20), 63ull * (1u << 20) * 32768);
}

TEST(KvGeometry, ImpossibleSharesAreRefused) {
  auto geometry = model_geometry("llama-3-8b");
  geometry.tensor_parallel = 3;
  EXPECT_THAT(refusal(geometry), HasSubstr("8 KV heads cannot be shared evenly by 3"));
  geometry = model_geometry("llama-3-8b");
  geometry.page_tokens = 48;
  EXPECT_THAT(refusal(geometry), HasSubstr("48 does not divide a block of 512"));
  geometry.page_tokens = 0;
  EXPECT_THAT(refusal(geometry), HasSubstr("page tokens"));
  geometry = model_geometry("llama-3-8b");
  geometry.layers = 0;
  EXPECT_THAT(refusal(geometry), HasSubstr("layers"));
}

}  // namespace
}  // namespace penstock::workload

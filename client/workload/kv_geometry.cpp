#include "client/workload/kv_geometry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "client/workload/trace.hpp"

namespace penstock::workload {
namespace {

// Numbers that no model comes near; they keep every product here far inside 64 bits.
constexpr std::uint32_t kMaxLayers = 4096;
constexpr std::uint32_t kMaxHeads = 4096;
constexpr std::uint32_t kMaxHeadSize = 65536;

KvGeometry grouped_heads(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_size) {
  return {.layers = layers, .tensors = 2, .kv_heads = kv_heads, .head_size = head_size};
}

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

}  // namespace

std::uint32_t KvGeometry::heads_per_rank() const {
  return std::max<std::uint32_t>(1, kv_heads / tensor_parallel);
}

std::uint64_t KvGeometry::bytes_per_token() const {
  return std::uint64_t{layers} * tensors * kv_heads * head_size * bytes_per_value;
}

std::uint64_t KvGeometry::page_bytes() const {
  return std::uint64_t{page_tokens} * heads_per_rank() * head_size * bytes_per_value;
}

std::string KvGeometry::plane_name(std::uint32_t plane) const {
  const char* tensor = tensors == 1 ? "latent" : plane % tensors == 0 ? "K" : "V";
  return fmt::format("layer {} {}", plane / tensors, tensor);
}

void KvGeometry::check() const {
  require(layers >= 1 && layers <= kMaxLayers, fmt::format("layers: 1 to {}", kMaxLayers));
  require(tensors >= 1 && tensors <= 2, "tensors per layer: 1 or 2");
  require(kv_heads >= 1 && kv_heads <= kMaxHeads, fmt::format("KV heads: 1 to {}", kMaxHeads));
  require(head_size >= 1 && head_size <= kMaxHeadSize,
          fmt::format("head size: 1 to {} values", kMaxHeadSize));
  require(bytes_per_value >= 1 && bytes_per_value <= 8, "bytes per value: 1 to 8");
  require(page_tokens >= 1 && kTraceBlockTokens % page_tokens == 0,
          fmt::format("page tokens: {} does not divide a block of {} tokens; use a power of two "
                      "of at most {}",
                      page_tokens, kTraceBlockTokens, kTraceBlockTokens));
  require(tensor_parallel >= 1 && tensor_parallel <= kMaxHeads,
          fmt::format("tensor-parallel ranks: 1 to {}", kMaxHeads));
  require(kv_heads % tensor_parallel == 0 || tensor_parallel % kv_heads == 0,
          fmt::format("{} KV heads cannot be shared evenly by {} tensor-parallel ranks", kv_heads,
                      tensor_parallel));
}

// From each model's config.json on Hugging Face: num_hidden_layers, num_key_value_heads, and
// head_dim or hidden_size / num_attention_heads.
const std::vector<ModelPreset>& model_presets() {
  static const std::vector<ModelPreset> presets{
      // meta-llama/Meta-Llama-3-8B, Llama-3.1-8B: 32 layers, 8 KV heads, 4096 / 32
      {"llama-3-8b", grouped_heads(32, 8, 128)},
      // meta-llama/Meta-Llama-3-70B, Llama-3.1-70B, Llama-3.3-70B: 80 layers, 8 KV heads, 8192 / 64
      {"llama-3-70b", grouped_heads(80, 8, 128)},
      // meta-llama/Llama-3.1-405B: 126 layers, 8 KV heads, 16384 / 128
      {"llama-3.1-405b", grouped_heads(126, 8, 128)},
      // mistralai/Mistral-7B-v0.1: 32 layers, 8 KV heads, 4096 / 32
      {"mistral-7b", grouped_heads(32, 8, 128)},
      // mistralai/Mixtral-8x7B-v0.1: 32 layers, 8 KV heads, 4096 / 32
      {"mixtral-8x7b", grouped_heads(32, 8, 128)},
      // Qwen/Qwen2.5-7B: 28 layers, 4 KV heads, 3584 / 28
      {"qwen2.5-7b", grouped_heads(28, 4, 128)},
      // Qwen/Qwen2.5-72B: 80 layers, 8 KV heads, 8192 / 64
      {"qwen2.5-72b", grouped_heads(80, 8, 128)},
      // deepseek-ai/DeepSeek-V3: 61 layers; MLA caches per token and layer one latent of
      // kv_lora_rank 512 + qk_rope_head_dim 64 values, which every rank holds whole
      {"deepseek-v3", {.layers = 61, .tensors = 1, .kv_heads = 1, .head_size = 576}},
  };
  return presets;
}

const KvGeometry& model_geometry(const std::string& name) {
  std::string known;
  for (const auto& preset : model_presets()) {
    if (preset.name == name) return preset.geometry;
    known += (known.empty() ? "" : ", ") + preset.name;
  }
  throw std::invalid_argument(fmt::format("unknown model '{}'; known are {}", name, known));
}

}  // namespace penstock::workload

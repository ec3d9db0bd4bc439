// How large the KV cache of a model is, and how one rank's share of it lies in a region: a plane
// per layer and tensor (K, then V), each plane an array of the pool's pages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::workload {

struct KvGeometry {
  std::uint32_t layers = 0;
  std::uint32_t tensors = 2;  // per layer: K and V; 1 where both share one latent (MLA)
  std::uint32_t kv_heads = 0;
  std::uint32_t head_size = 0;  // values per head
  std::uint32_t bytes_per_value = 2;
  std::uint32_t page_tokens = 16;
  std::uint32_t tensor_parallel = 1;

  /// Of one rank. Where there are fewer heads than ranks each rank holds a copy of one.
  std::uint32_t heads_per_rank() const;
  /// Of the whole model, all layers, each value once.
  std::uint64_t bytes_per_token() const;
  /// One page in one plane of one rank.
  std::uint64_t page_bytes() const;
  std::uint32_t planes() const { return layers * tensors; }
  /// One page in all planes of one rank.
  std::uint64_t page_bytes_all_planes() const { return page_bytes() * planes(); }
  /// Where a plane starts in a region that holds `pool_pages` pages.
  std::uint64_t plane_offset(std::uint32_t plane, std::uint64_t pool_pages) const {
    return plane * pool_pages * page_bytes();
  }
  /// "layer 3 V".
  std::string plane_name(std::uint32_t plane) const;

  /// Throws std::invalid_argument that says which value cannot be and what could.
  void check() const;
};

struct ModelPreset {
  std::string name;
  KvGeometry geometry;  // of one rank out of one, pages of 16 tokens, 2 bytes per value
};

const std::vector<ModelPreset>& model_presets();
/// Throws std::invalid_argument that lists the names.
const KvGeometry& model_geometry(const std::string& name);

}  // namespace penstock::workload

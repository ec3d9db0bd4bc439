#include "client/workload/hand_over.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::workload {

const BlockKey& HandOver::block_of(std::size_t i) const {
  for (const auto& block : moved) {
    if (i < block.pages) return block;
    i -= block.pages;
  }
  throw std::out_of_range("no such moved page");
}

HandOverPlanner::HandOverPlanner(KvGeometry geometry, BlockPool prefill, BlockPool decoder)
    : geometry_(geometry), prefill_(std::move(prefill)), decoder_(std::move(decoder)) {}

std::vector<BlockKey> HandOverPlanner::blocks_of(const TraceRequest& request) const {
  std::vector<BlockKey> blocks;
  blocks.reserve(request.blocks.size());
  auto tokens = request.input_tokens;
  for (auto id : request.blocks) {
    auto held = std::min(tokens, kTraceBlockTokens);
    auto pages = (held + geometry_.page_tokens - 1) / geometry_.page_tokens;
    blocks.push_back({id, static_cast<std::uint32_t>(pages)});
    tokens -= held;
  }
  return blocks;
}

void HandOverPlanner::check_fits(const TraceRequest& request) const {
  std::uint64_t pages = 0;
  for (const auto& block : blocks_of(request)) pages += block.pages;
  auto pool = std::min(prefill_.pages(), decoder_.pages());
  if (pages <= pool) return;
  throw PoolTooSmall(fmt::format(
      "the request on line {} has {} tokens: {} pages, {} bytes of KV cache; the smaller pool has "
      "{} pages, {} bytes. Give larger pools, or a smaller share of the model (fewer layers, more "
      "tensor-parallel ranks)",
      request.line, request.input_tokens, pages, pages * geometry_.page_bytes_all_planes(), pool,
      pool * geometry_.page_bytes_all_planes()));
}

std::optional<HandOver> HandOverPlanner::plan(const TraceRequest& request) {
  HandOver hand_over;
  hand_over.line = request.line;
  hand_over.blocks = blocks_of(request);
  if (!prefill_.can_pin(hand_over.blocks) || !decoder_.can_pin(hand_over.blocks)) {
    return std::nullopt;
  }
  hand_over.id = ++last_id_;
  hand_over.prefill_hits = hand_over.blocks.size() - prefill_.pin(hand_over.blocks).size();
  hand_over.moved = decoder_.pin(hand_over.blocks);

  for (const auto& block : hand_over.blocks) {
    auto found = arriving_.find(block);
    if (found != arriving_.end()) hand_over.waits_for.push_back(found->second);
  }
  auto& waits = hand_over.waits_for;
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());

  auto append = [](std::vector<std::uint32_t>& list, const std::vector<std::uint32_t>& pages) {
    list.insert(list.end(), pages.begin(), pages.end());
  };
  for (const auto& block : hand_over.moved) {
    append(hand_over.source_pages, prefill_.pages_of(block));
    append(hand_over.destination_pages, decoder_.pages_of(block));
    arriving_.emplace(block, hand_over.id);
  }
  return hand_over;
}

void HandOverPlanner::landed(const HandOver& hand_over) {
  for (const auto& block : hand_over.moved) arriving_.erase(block);
}

void HandOverPlanner::finish(const HandOver& hand_over) {
  prefill_.unpin(hand_over.blocks);
  decoder_.unpin(hand_over.blocks);
}

}  // namespace penstock::workload

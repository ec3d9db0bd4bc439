// What `penstock top` shows: a node at one moment, with rates since another.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

namespace penstock::cli {

/// The replies of status, nodes and transfers (under_way_first), and when they came.
struct NodeSample {
  nlohmann::json status;
  nlohmann::json nodes;
  nlohmann::json transfers;
  std::chrono::steady_clock::time_point when;
};

struct FrameStyle {
  std::size_t columns = 100;
  std::size_t lines = 0;  // 0: as many as there are
  bool color = false;     // ANSI colours
};

/// Lines of at most `columns` characters, each with a line end. `before` may be `now` itself: then
/// there are no rates yet.
std::string top_frame(const NodeSample& now, const NodeSample& before, const FrameStyle& style);

}  // namespace penstock::cli

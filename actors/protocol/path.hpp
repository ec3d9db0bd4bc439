// The ways that a transfer's bytes can take: what a request asks for, and what its result says.
#pragma once

#include <string_view>

namespace penstock {

/// What a request may insist on. A way that cannot be taken ends the transfer with an error;
/// nothing else is taken in its place.
enum class PathChoice : unsigned char {
  kAuto,
  kStaged,     // everything through slots of staging memory, also what a card could reach
  kGpuDirect,  // cards read and write the GPU's memory themselves
};
inline constexpr std::string_view kPathChoices[] = {"auto", "staged", "gpudirect"};

/// The way that was taken.
enum class Path : unsigned char {
  kLocalCopy,    // both regions in host memory of this node
  kLocalKernel,  // both on this node, one of them or both on a GPU
  kInline,       // inside the question for it
  kDirect,       // one-sided operations on the pages themselves, host memory on both sides
  kPacked,       // small pages gathered into long writes
  kGpuDirect,    // as kDirect, with a GPU's memory on one side or both
  kStaged,       // through staging slots, since no card reaches a GPU's memory or on request
};

constexpr std::string_view name_of(Path path) {
  constexpr std::string_view kNames[] = {"local_copy", "local_kernel", "inline", "direct",
                                         "packed",     "gpudirect",    "staged"};
  return kNames[static_cast<unsigned char>(path)];
}

}  // namespace penstock

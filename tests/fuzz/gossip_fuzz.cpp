// libFuzzer's way in: any bytes as a gossip frame (tests/fuzz/CMakeLists.txt builds and runs it).
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/exercise_gossip.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto broken = penstock::test::exercise_gossip(std::as_bytes(std::span(data, size)));
  if (broken.empty()) return 0;
  std::fprintf(stderr, "broken promise: %s\n", broken.c_str());
  std::abort();
}

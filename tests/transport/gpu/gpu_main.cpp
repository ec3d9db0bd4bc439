// The tests start this program once more as "the other process": the client of a service, say.
#include <gtest/gtest.h>

#include <cstring>

#ifdef PENSTOCK_WITH_CUDA
#include "tests/transport/gpu/other_process.hpp"
#endif

int main(int argc, char** argv) {
#ifdef PENSTOCK_WITH_CUDA
  if (argc == 3 && std::strcmp(argv[1], penstock::kOtherProcessFlag) == 0)
    return penstock::run_other_process(std::atoi(argv[2]));
#endif
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

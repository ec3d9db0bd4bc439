// libFuzzer's way in: any text as a trace of requests (tests/fuzz/CMakeLists.txt builds and runs
// it).
#include "client/workload/trace.hpp"
#include "tests/fuzz/memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static penstock::test::MemoryFile file;
  file.hold(data, size);
  try {
    penstock::workload::read_trace(file.path(), 64);
  } catch (const penstock::workload::TraceError& error) {
    if (*error.what() == '\0') std::abort();
  }
  return 0;
}

// libFuzzer's way in: any text as a topology file. hwloc reads it in a process of its own, which
// may die of it; this one gets an error (tests/fuzz/CMakeLists.txt builds and runs it).
#include <cstdlib>
#include <string>

#include "transport/topology/hwloc_reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto read =
      penstock::read_xml_isolated(std::string(reinterpret_cast<const char*>(data), size));
  if (!read && read.error().message.empty()) std::abort();
  return 0;
}

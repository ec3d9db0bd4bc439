// libFuzzer's way in: any text as a configuration file, and its first line as an override
// (tests/fuzz/CMakeLists.txt builds and runs it).
#include <cstdio>
#include <cstdlib>
#include <string>

#include "actors/settings/settings.hpp"
#include "tests/fuzz/memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static penstock::test::MemoryFile file;
  file.hold(data, size);
  const auto from_file = penstock::load_settings(file.path(), {}, {});
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto from_flag = penstock::load_settings("", {text.substr(0, text.find('\n'))}, {});
  for (const auto* loaded : {&from_file, &from_flag}) {
    if (*loaded || !loaded->error().message.empty()) continue;
    std::fputs("broken promise: refused without words\n", stderr);
    std::abort();
  }
  return 0;
}

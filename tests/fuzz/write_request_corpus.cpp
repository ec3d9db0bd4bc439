// Writes the sample requests as files, the seeds of request_fuzz: write_request_corpus FOLDER
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/actors/protocol/sample_requests.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_request_corpus FOLDER\n");
    return 2;
  }
  std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  for (const auto& sample : penstock::test::sample_requests()) {
    auto bytes = sample.bytes();
    std::ofstream file(folder / sample.name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", (folder / sample.name).c_str());
      return 1;
    }
  }
}

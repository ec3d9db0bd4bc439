// Writes the sample frames as files, the seeds of gossip_fuzz: write_gossip_corpus FOLDER
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/actors/membership/sample_frames.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_gossip_corpus FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  for (const auto& [name, frame] : penstock::test::sample_frames()) {
    const auto bytes = encode(frame);
    std::ofstream file(folder / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", (folder / name).c_str());
      return 1;
    }
  }
}

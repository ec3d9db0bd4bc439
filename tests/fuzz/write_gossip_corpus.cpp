// Writes the sample frames as files, the seeds of gossip_fuzz: write_gossip_corpus FOLDER
#include "tests/actors/membership/sample_frames.hpp"
#include "tests/fuzz/write_corpus.hpp"

int main(int argc, char** argv) {
  penstock::test::Samples samples;
  for (const auto& [name, frame] : penstock::test::sample_frames())
    samples.emplace(name, encode(frame));
  return penstock::test::write_corpus(argc, argv, samples);
}

// Writes the sample requests as files, the seeds of request_fuzz: write_request_corpus FOLDER
#include <span>

#include "tests/actors/protocol/sample_requests.hpp"
#include "tests/fuzz/write_corpus.hpp"

int main(int argc, char** argv) {
  penstock::test::Samples samples;
  for (const auto& sample : penstock::test::sample_requests()) {
    const auto packed = sample.bytes();
    const auto bytes = std::as_bytes(std::span(packed));
    samples[sample.name].assign(bytes.begin(), bytes.end());
  }
  return penstock::test::write_corpus(argc, argv, samples);
}

// Reads LLM serving traces in the public Mooncake format: JSON lines, one request each, ordered by
// time:
//   {"timestamp": 27, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, ...]}
// timestamp is in ms, lengths are in tokens, and hash_ids holds one id per block of 512 input
// tokens (the last one may be shorter); equal ids mean equal blocks. Other fields are ignored.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock::workload {

inline constexpr std::uint64_t kTraceBlockTokens = 512;

struct TraceRequest {
  std::uint64_t line = 0;  // in the file, from 1
  std::uint64_t timestamp_ms = 0;
  std::uint64_t input_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::vector<std::uint64_t> blocks;  // ids, each once
};

/// what() is "FILE:LINE: what was found; what was expected".
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class TraceReader {
 public:
  /// `name` is for errors. `input` must outlive the reader.
  TraceReader(std::istream& input, std::string name);

  /// nullopt at the end. Blank lines are skipped. Throws TraceError.
  std::optional<TraceRequest> next();

 private:
  bool read_line();
  TraceRequest decode();
  [[noreturn]] void refuse(const std::string& what) const;

  std::istream& input_;
  const std::string name_;
  std::vector<char> buffer_;  // grows with the longest line
  std::size_t length_ = 0;
  std::uint64_t line_ = 0;
  std::uint64_t latest_ms_ = 0;
};

/// Up to `limit` requests of a file; 0: all. Throws TraceError, also when the file cannot be read
/// or holds no request.
std::vector<TraceRequest> read_trace(const std::string& path, std::uint64_t limit);

}  // namespace penstock::workload

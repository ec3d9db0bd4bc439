// The lines of a benchmark: printed as a table, written as JSON.
#pragma once

#include <string>
#include <vector>

namespace penstock {

struct BenchLine {
  std::string name;   // "copy/shuffled/4096": stable, for those who compare runs
  std::string words;  // "shuffled pages of 4 KiB"
  double value = 0;
  std::string unit;  // "GB/s", "us"
  double ratio = 0;  // of the contiguous copy; 0: none
};

class BenchReport {
 public:
  /// Prints it at once.
  void add(BenchLine line);
  /// Of a line before; 0 when there is none.
  double value(const std::string& name) const;
  /// With what it ran on. An empty path writes nothing.
  void write(const std::string& path) const;

 private:
  std::vector<BenchLine> lines_;
};

}  // namespace penstock

// Aligned columns on standard output. A column whose cells are all numbers is right-aligned.
#pragma once

#include <string>
#include <vector>

namespace penstock::app {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  /// As many cells as the header has.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace penstock::app

// A transfer as typed on the command line, and what it means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cpp/transfer.hpp"

namespace penstock::cli {

/// The options of `penstock transfer`, as typed. "" is "not given". Sizes as in parse_bytes.
struct TransferArguments {
  std::string region;
  std::vector<std::string> targets;  // NODE:REGION
  bool read = false;
  bool urgent = false;
  double deadline_s = 0;
  std::uint32_t weight = 1;
  std::string key;
  std::string notify;
  std::string packing;
  std::string path;
  bool verify = false;
  std::string on;

  std::string ranges;             // a file of ranges, or "-"
  std::string pages;              // source pages, a list or a file
  std::string destination_pages;  // "": the same pages
  std::string page_bytes;
  std::string bases;
  std::string source_stride;
  std::string destination_stride;
  std::string row_bytes;  // given: strided
  std::uint32_t rows = 1;
  std::string source_pitch;
  std::string destination_pitch;
};

/// A spec together with the lists that its layout refers to.
class ParsedTransfer {
 public:
  /// Reads the files that the arguments name. Throws UsageError.
  explicit ParsedTransfer(const TransferArguments& arguments);
  ParsedTransfer(const ParsedTransfer&) = delete;
  ParsedTransfer& operator=(const ParsedTransfer&) = delete;

  const client::TransferSpec& spec() const { return spec_; }

 private:
  client::Layout paged_layout(const TransferArguments& arguments);

  std::vector<std::uint32_t> source_pages_;
  std::vector<std::uint32_t> destination_pages_;
  client::TransferSpec spec_;
};

/// A result as JSON text, named as in the protocol; `landed` as [source, destination, length]
/// lists.
std::string to_json(const client::TransferResult& result);

}  // namespace penstock::cli

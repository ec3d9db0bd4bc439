// What the traffic between the members of a cluster came to, as one node saw it. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "client/cpp/penstock.hpp"

namespace penstock::workload {

class TrafficTally {
 public:
  enum class Check : unsigned char {
    kRight,
    kWrong,
    kNotPossible,  // the other node left before its pages could be read back
  };

  void submitted();
  /// Every transfer that was submitted ends once, as whatever: also refused or lost.
  void ended(const client::TransferResult& result);
  /// Pages that a done write brought, read back.
  void checked(std::uint64_t pages, Check check, std::uint64_t wrong_pages = 0);
  void probed();

  /// {"submitted","ended","open","done","bytes","failed":{code:n},"refused":{..},"lost":{..},
  ///  "verified_pages","wrong_pages","unchecked_pages","probes"}. "failed" has those that the
  ///  service
  /// ended otherwise than done, by their error's code.
  nlohmann::json to_json() const;
  std::uint64_t open() const;
  std::uint64_t wrong_pages() const;

 private:
  using Counts = std::map<std::string, std::uint64_t>;

  mutable std::mutex mutex_;
  std::uint64_t submitted_ = 0;
  std::uint64_t ended_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t bytes_ = 0;
  Counts failed_, refused_, lost_;
  std::uint64_t verified_pages_ = 0;
  std::uint64_t wrong_pages_ = 0;
  std::uint64_t unchecked_pages_ = 0;
  std::uint64_t probes_ = 0;
};

}  // namespace penstock::workload

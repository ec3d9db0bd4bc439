// Where a transfer's time went.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::client {

/// The stages follow one another, and a stage may come again after a failure: what they took sums
/// up to total_ns. Times are of the service's steady clock, from the arrival of the request on.
struct TransferTrace {
  struct Stage {
    std::string name;  // "admission", "queue", "metadata", "posting", "wire", "recovery",
                       // "completion", "copy", "verification", "notification"
    std::uint64_t at_ns = 0;
    std::uint64_t took_ns = 0;
  };
  struct Card {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t writes = 0;
    std::uint64_t last_ns = 0;  // its last completion; 0: it had none
  };

  std::uint64_t id = 0;
  std::string state;  // as in TransferInfo
  std::string node;   // the other one
  std::string region;
  std::string remote_region;
  std::string direction;
  std::string lane;
  std::string path;
  std::uint64_t bytes = 0;
  std::uint64_t writes = 0;
  std::uint64_t started_unix_us = 0;  // the request's arrival, by the wall clock
  std::uint64_t total_ns = 0;         // until now while it has not ended
  std::vector<Stage> stages;
  std::vector<Card> cards;
};

}  // namespace penstock::client

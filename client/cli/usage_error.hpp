// What a user typed and cannot be meant. The command line exits with 2.
#pragma once

#include <stdexcept>

namespace penstock::cli {

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace penstock::cli

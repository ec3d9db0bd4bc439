// What the whole process takes of the machine.
#pragma once

#include <nlohmann/json.hpp>

namespace penstock {

/// {"open_files", "open_files_limit", "resident_bytes"}; 0 for what /proc does not tell. Takes the
/// longer the more files are open.
nlohmann::json process_report();

}  // namespace penstock

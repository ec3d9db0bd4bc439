// A transfer's trace as a person reads it, and as Chrome's and Perfetto's viewers do.
#pragma once

#include <string>

#include "client/cpp/trace.hpp"

namespace penstock::cli {

std::string trace_text(const client::TransferTrace& trace);

/// A JSON document of trace events: open it in ui.perfetto.dev or chrome://tracing. A track for the
/// stages and one for each card; times are microseconds since 1970.
std::string trace_events(const client::TransferTrace& trace);

}  // namespace penstock::cli

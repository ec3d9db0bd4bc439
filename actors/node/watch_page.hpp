// What the node serves for looking: metrics for Prometheus, its state as JSON, and a page that
// draws it.
#pragma once

#include <memory>

#include "actors/caf.hpp"
#include "actors/monitor/http_server.hpp"
#include "actors/settings/settings.hpp"

namespace penstock {

/// `endpoint` must not be "off". The server goes before the actors do.
Result<std::unique_ptr<HttpServer>> open_watch_page_server(const MetricsSettings& settings,
                                                           caf::actor_system& system,
                                                           caf::actor node);

}  // namespace penstock

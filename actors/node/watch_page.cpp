#include "actors/node/watch_page.hpp"

#include <fstream>

#include "actors/messages.hpp"
#include "actors/monitor/exposition.hpp"
#include "actors/monitor/page.hpp"
#include "actors/monitor/process_report.hpp"

namespace penstock {
namespace {

constexpr Milliseconds kPatience{3000};

using Everything = std::shared_ptr<const nlohmann::json>;

/// On a thread of the server.
Result<Everything> ask(caf::actor_system& system, const caf::actor& node) {
  caf::scoped_actor self(system);
  Everything everything;
  self->request(node, kPatience, AskWatched{})
      .receive([&](const Watched& watched) { everything = watched.everything; },
               [](const caf::error&) {});
  if (!everything)
    return fail(ErrorCode::kBusy, "the service did not answer within {} ms", kPatience.count());
  return everything;
}

Result<std::string> read_password(const std::filesystem::path& file) {
  if (file.empty()) return std::string();
  std::ifstream in(file);
  std::string password;
  if (!in || !std::getline(in, password) || password.empty())
    return fail(ErrorCode::kInvalidArgument,
                "metrics.password_file: {} cannot be read, or its first line is empty",
                file.string());
  return password;
}

}  // namespace

Result<std::unique_ptr<HttpServer>> open_watch_page_server(const MetricsSettings& settings,
                                                           caf::actor_system& system,
                                                           caf::actor node) {
  const bool any = settings.endpoint == "auto";
  auto address = http_address(any ? kMetricsEndpoint : settings.endpoint);
  if (!address) return tl::unexpected(address.error());
  auto password = read_password(settings.password_file);
  if (!password) return tl::unexpected(password.error());
  HttpServer::Setup setup;
  setup.address = address->address;
  setup.port = address->port;
  setup.password = *password;
  setup.pages["/metrics"] = [&system, node]() -> Result<HttpServer::Content> {
    auto everything = ask(system, node);
    if (!everything) return tl::unexpected(everything.error());
    return HttpServer::Content{kExpositionType, exposition(**everything, process_report())};
  };
  setup.pages["/state"] = [&system, node]() -> Result<HttpServer::Content> {
    auto everything = ask(system, node);
    if (!everything) return tl::unexpected(everything.error());
    return HttpServer::Content{
        "application/json",
        (*everything)->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
  };
  setup.pages["/"] = []() -> Result<HttpServer::Content> {
    return HttpServer::Content{kWatchPageType, watch_page_html};
  };
  auto opened = HttpServer::start(setup);
  if (opened || !any || opened.error().code != ErrorCode::kAlreadyExists) return opened;
  setup.port = 0;
  return HttpServer::start(std::move(setup));
}

}  // namespace penstock

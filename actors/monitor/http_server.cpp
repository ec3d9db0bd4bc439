#include "actors/monitor/http_server.hpp"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>

#include "actors/gateway/endpoint.hpp"

namespace penstock {
namespace {

/// Of simultaneous requests; the rest wait. Prometheus and a few people at their browsers.
constexpr const char* kThreads = "3";
constexpr const char* kRequestTimeoutMs = "5000";

/// Takes as long whatever the characters are.
bool same(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() != b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return difference == 0;
}

/// The password in "Basic base64(user:password)"; "" when it is none.
std::string password_in(const char* header) {
  constexpr std::string_view kBasic = "Basic ";
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (header == nullptr || !std::string_view(header).starts_with(kBasic)) return {};
  std::string text;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : std::string_view(header).substr(kBasic.size())) {
    const auto digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    text += static_cast<char>(bits >> count & 0xff);
  }
  const auto colon = text.find(':');
  return colon == std::string::npos ? std::string() : text.substr(colon + 1);
}

/// The library tells it in words only: "cannot bind to +7413: 98 (Address already in use)". 0:
/// none.
int error_number_in(const std::string& complaint) {
  int number = 0;
  if (const auto colon = complaint.rfind(": "); colon != std::string::npos)
    std::from_chars(complaint.data() + colon + 2, complaint.data() + complaint.size(), number);
  return number;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

/// A page of another site whose name was made to lead here must not read ours: a loopback server
/// is asked by the name of loopback.
bool names_loopback(std::string host) {
  if (const auto colon = host.rfind(':'); colon != std::string::npos && host.back() != ']')
    host.erase(colon);
  if (host == "localhost" || host == "[::1]") return true;
  in_addr numeric{};  // "127.example.org" is a name like any other
  return host.starts_with("127.") && inet_pton(AF_INET, host.c_str(), &numeric) == 1;
}

void send_head(mg_connection* connection, int status, const char* words, const std::string& type,
               std::size_t bytes, const char* more = "") {
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            "Content-Security-Policy: default-src 'self'; img-src 'self' data:; style-src "
            "'unsafe-inline'; script-src "
            "'unsafe-inline'; frame-ancestors 'none'\r\n%sConnection: close\r\n\r\n",
            status, words, type.c_str(), bytes, more);
}

void knock(const std::string& address, std::uint16_t port) {
  const bool v6 = address.find(':') != std::string::npos;
  const int socket =
      ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return;
  sockaddr_in6 to6{};
  sockaddr_in to{};
  if (v6) {
    to6.sin6_family = AF_INET6;
    to6.sin6_port = htons(port);
    inet_pton(AF_INET6, address.c_str(), &to6.sin6_addr);
    ::connect(socket, reinterpret_cast<const sockaddr*>(&to6), sizeof to6);
  } else {
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    inet_pton(AF_INET, address == "*" ? "127.0.0.1" : address.c_str(), &to.sin_addr);
    ::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  ::close(socket);
}

int send_words(mg_connection* connection, int status, const char* words, const std::string& body,
               const char* more = "") {
  const std::string text = body + "\n";
  send_head(connection, status, words, "text/plain; charset=utf-8", text.size(), more);
  mg_write(connection, text.data(), text.size());
  return status;
}

}  // namespace

struct HttpServer::State {
  Setup setup;
  mg_context* context = nullptr;
  std::string endpoint;
  std::uint16_t port = 0;  // as opened
  std::string complaint;   // the library's first, while it starts
  std::atomic<bool> listens{false};

  int answer(mg_connection* connection);
  static int on_request(mg_connection* connection);
  static int on_complaint(const mg_connection* connection, const char* message);
};

// civetweb is C: what is thrown must not reach it.
int HttpServer::State::on_request(mg_connection* connection) {
  auto* state = static_cast<State*>(mg_get_user_data(mg_get_context(connection)));
  try {
    return state->answer(connection);
  } catch (const std::exception& error) {
    spdlog::error("http: {}", error.what());
    return send_words(connection, 500, "Internal Server Error", "the service failed on this");
  }
}

int HttpServer::State::on_complaint(const mg_connection* connection, const char* message) {
  auto* state = static_cast<State*>(mg_get_user_data(mg_get_context(connection)));
  if (state != nullptr && !state->listens && state->complaint.empty()) state->complaint = message;
  return 1;  // it writes no log of its own
}

int HttpServer::State::answer(mg_connection* connection) {
  const mg_request_info& request = *mg_get_request_info(connection);
  const bool head = std::strcmp(request.request_method, "HEAD") == 0;
  if (!head && std::strcmp(request.request_method, "GET") != 0)
    return send_words(connection, 405, "Method Not Allowed", "only GET: this is for looking",
                      "Allow: GET, HEAD\r\n");
  const char* host = mg_get_header(connection, "Host");
  if (is_loopback(setup.address) && host != nullptr && !names_loopback(host))
    return send_words(connection, 403, "Forbidden",
                      "this server listens on loopback: ask it as localhost");
  if (!setup.password.empty() &&
      !same(password_in(mg_get_header(connection, "Authorization")), setup.password))
    return send_words(connection, 401, "Unauthorized", "the password is that of the service",
                      "WWW-Authenticate: Basic realm=\"penstock\"\r\n");
  const auto page = setup.pages.find(request.local_uri);
  if (page == setup.pages.end()) {
    std::string known = "there is no such page; there are:";
    for (const auto& [path, made] : setup.pages) known += " " + path;
    return send_words(connection, 404, "Not Found", known);
  }
  const auto content = page->second();
  if (!content) return send_words(connection, 503, "Service Unavailable", content.error().message);
  send_head(connection, 200, "OK", content->type, content->body.size());
  if (!head) mg_write(connection, content->body.data(), content->body.size());
  return 200;
}

HttpServer::HttpServer() : state_(std::make_unique<State>()) {}

Result<std::unique_ptr<HttpServer>> HttpServer::start(Setup setup) {
  std::unique_ptr<HttpServer> server(new HttpServer());
  State& state = *server->state_;
  state.setup = std::move(setup);
  const std::string& address = state.setup.address;
  const bool v6 = address.find(':') != std::string::npos;
  const std::string host = v6 ? "[" + address + "]" : address;
  const std::string port = std::to_string(state.setup.port);
  const std::string listen = address == "*" ? "+" + port : host + ":" + port;
  const char* options[] = {"listening_ports",
                           listen.c_str(),
                           "num_threads",
                           kThreads,
                           "request_timeout_ms",
                           kRequestTimeoutMs,
                           "enable_directory_listing",
                           "no",
                           nullptr};
  mg_callbacks callbacks{};
  callbacks.log_message = State::on_complaint;
  callbacks.begin_request = State::on_request;
  // The threads of the library inherit this: signals belong to the main thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  state.context = mg_start(&callbacks, &state, options);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (state.context == nullptr) {
    const std::string wanted = fmt::format("http://{}:{}", host, port);
    if (const int number = error_number_in(state.complaint); number != 0)
      return tl::unexpected(bind_error("metrics.endpoint", wanted, number));
    return fail(ErrorCode::kInvalidArgument, "metrics.endpoint: cannot bind {}: {}", wanted,
                state.complaint.empty() ? "the library does not say why" : state.complaint);
  }
  state.listens = true;
  mg_server_port opened{};
  mg_get_server_ports(state.context, 1, &opened);
  state.port = static_cast<std::uint16_t>(opened.port);
  state.endpoint = fmt::format("http://{}:{}", host, state.port);
  return server;
}

/// civetweb's listening thread looks only every other second whether it is to stop, or when
/// somebody connects: so somebody does.
HttpServer::~HttpServer() {
  if (state_->context == nullptr) return;
  std::atomic<bool> stopped{false};
  std::thread knocking([&] {
    while (!stopped) {
      knock(state_->setup.address, state_->port);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  mg_stop(state_->context);
  stopped = true;
  knocking.join();
}

const std::string& HttpServer::endpoint() const { return state_->endpoint; }

Result<HttpAddress> http_address(const std::string& endpoint) {
  constexpr std::string_view kHttp = "http://";
  const auto colon = endpoint.rfind(':');
  if (!endpoint.starts_with(kHttp) || colon < kHttp.size())
    return fail(ErrorCode::kInvalidArgument, "'{}': wanted http://address:port", endpoint);
  HttpAddress parts;
  parts.address = endpoint.substr(kHttp.size(), colon - kHttp.size());
  const std::string port = endpoint.substr(colon + 1);
  if (port != "*") std::from_chars(port.data(), port.data() + port.size(), parts.port);
  if (parts.address.starts_with('['))
    parts.address = parts.address.substr(1, parts.address.size() - 2);
  if (parts.address == "localhost") parts.address = "127.0.0.1";
  std::array<unsigned char, sizeof(in6_addr)> parsed;
  if (parts.address != "*" && inet_pton(AF_INET, parts.address.c_str(), parsed.data()) != 1 &&
      inet_pton(AF_INET6, parts.address.c_str(), parsed.data()) != 1)
    return fail(ErrorCode::kInvalidArgument,
                "metrics.endpoint: '{}' is not a numeric address; wanted one, localhost or *",
                parts.address);
  return parts;
}

}  // namespace penstock

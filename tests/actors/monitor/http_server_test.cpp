// The server of the page: what it answers, and whom.
#include "actors/monitor/http_server.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::unique_ptr<HttpServer> serve(const std::string& password = "") {
  HttpServer::Setup setup;
  setup.address = "127.0.0.1";
  setup.password = password;
  setup.pages["/good"] = [] { return HttpServer::Content{"text/plain", "hello"}; };
  setup.pages["/busy"] = []() -> Result<HttpServer::Content> {
    return fail(ErrorCode::kBusy, "not now");
  };
  setup.pages["/broken"] = []() -> Result<HttpServer::Content> { throw std::runtime_error("oh"); };
  auto server = HttpServer::start(std::move(setup));
  EXPECT_TRUE(server) << server.error().message;
  return server ? std::move(*server) : nullptr;
}

/// Sends these bytes and returns all that comes back.
std::string say(const HttpServer& server, const std::string& request) {
  const auto address = http_address(server.endpoint());
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(address->port);
  ::inet_pton(AF_INET, address->address.c_str(), &to.sin_addr);
  std::string answer;
  if (::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
      ::send(socket, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    char buffer[4096];
    for (ssize_t got; (got = ::recv(socket, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(socket);
  return answer;
}
std::string get(const HttpServer& server, const std::string& path, const std::string& more = "") {
  return say(server, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n");
}

TEST(HttpServer, ServesItsPagesAndNothingElse) {
  const auto server = serve();
  EXPECT_THAT(get(*server, "/good"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(get(*server, "/good"), HasSubstr("\r\n\r\nhello"));
  EXPECT_THAT(get(*server, "/other"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(get(*server, "/../etc/passwd"),
              testing::AllOf(HasSubstr("HTTP/1.1 4"), testing::Not(HasSubstr("root:"))));
}

TEST(HttpServer, SaysWhyAPageIsNotThereNow) {
  const auto server = serve();
  EXPECT_THAT(get(*server, "/busy"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(get(*server, "/busy"), HasSubstr("not now"));
  EXPECT_THAT(get(*server, "/broken"), StartsWith("HTTP/1.1 500"));
}

TEST(HttpServer, CannotBeWrittenTo) {
  const auto server = serve();
  EXPECT_THAT(say(*server, "POST /good HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
}

TEST(HttpServer, OnLoopbackAnswersOnlyToItsName) {
  const auto server = serve();
  for (const char* host : {"evil.example", "127.evil.example", "127.0.0.1.evil.example:7413", ":7"})
    EXPECT_THAT(say(*server, std::string("GET /good HTTP/1.1\r\nHost: ") + host + "\r\n\r\n"),
                StartsWith("HTTP/1.1 403"))
        << host;
  EXPECT_THAT(say(*server, "GET /good HTTP/1.1\r\nHost: 127.0.0.1:7413\r\n\r\n"),
              StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, AsksForItsPassword) {
  const auto server = serve("open sesame");
  EXPECT_THAT(get(*server, "/good"), StartsWith("HTTP/1.1 401"));
  // any:open sesame, any:open sesamE
  EXPECT_THAT(get(*server, "/good", "Authorization: Basic YW55Om9wZW4gc2VzYW1l\r\n"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(get(*server, "/good", "Authorization: Basic YW55Om9wZW4gc2VzYW1F\r\n"),
              StartsWith("HTTP/1.1 401"));
}

TEST(HttpServer, NoiseCostsAtMostAnError) {
  const auto server = serve();
  say(*server, std::string(100'000, 'x') + "\r\n\r\n");
  EXPECT_THAT(get(*server, "/good"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, AnAddressInUseIsAnErrorThatNamesIt) {
  const auto server = serve();
  for (const std::string host : {"127.0.0.1", "*"}) {
    HttpServer::Setup second;
    second.address = host;
    second.port = http_address(server->endpoint())->port;
    const auto named = fmt::format(
        "metrics.endpoint: cannot bind http://{}:{}: the address is in "
        "use",
        host, second.port);
    const auto opened = HttpServer::start(std::move(second));
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::kAlreadyExists);
    EXPECT_THAT(opened.error().message, StartsWith(named));
  }
}

TEST(HttpServer, AddressesAreNumeric) {
  EXPECT_EQ(http_address("http://[::1]:80")->address, "::1");
  EXPECT_EQ(http_address("http://localhost:0")->address, "127.0.0.1");
  EXPECT_EQ(http_address("http://*:7413")->port, 7413);
  EXPECT_FALSE(http_address("http://node-a:7413"));
}

}  // namespace
}  // namespace penstock

// A small HTTP server for those who watch the node: GET only, nothing can be changed through it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "transport/error.hpp"

namespace penstock {

class HttpServer {
 public:
  struct Content {
    std::string type;
    std::string body;
  };
  /// An error is shown as 503 with its words. Called on threads of the server, several at once.
  using Page = std::function<Result<Content>()>;
  struct Setup {
    std::string address;  // numeric, IPv6 without brackets; "*": every one
    std::uint16_t port = 0;
    std::string password;  // HTTP basic authentication, any user name; "": nobody is asked
    std::map<std::string, Page> pages;  // by path: "/metrics"
  };

  /// Listens before it returns; kAlreadyExists when the address is in use.
  static Result<std::unique_ptr<HttpServer>> start(Setup setup);
  /// Waits for requests under way.
  ~HttpServer();

  /// "http://127.0.0.1:7413", the port resolved.
  const std::string& endpoint() const;

 private:
  HttpServer();
  struct State;
  std::unique_ptr<State> state_;
};

/// What an "http://host:port" means. "localhost" is 127.0.0.1; other names are refused.
struct HttpAddress {
  std::string address;
  std::uint16_t port = 0;
};
Result<HttpAddress> http_address(const std::string& endpoint);

}  // namespace penstock

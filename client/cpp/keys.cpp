#include "client/cpp/keys.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace penstock::client {
namespace {

constexpr std::size_t kKeyCharacters = 40;

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_key(const std::string& text) {
  std::array<std::uint8_t, 32> key{};
  return text.size() == kKeyCharacters && zmq_z85_decode(key.data(), text.c_str()) != nullptr;
}

/// The one line of a key file. `is_secret`: others must not be able to read it.
std::string read_key(const std::string& file, bool is_secret) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw Error("INVALID_ARGUMENT", "key file " + file + ": " + std::strerror(errno));
  struct stat status {};
  std::array<char, 256> text{};
  const bool good = ::fstat(fd, &status) == 0;
  const ssize_t got = good ? ::read(fd, text.data(), text.size()) : -1;
  ::close(fd);
  if (is_secret && good && (status.st_mode & 037) != 0)
    throw Error("DENIED", "key file " + file + ": its mode lets others at it; chmod 600");
  std::string line(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  line.erase(line.find_last_not_of("\r\n") + 1);
  if (!is_key(line))
    throw Error("INVALID_ARGUMENT",
                "key file " + file + ": wanted the 40 characters that penstock keygen writes");
  return line;
}

}  // namespace

std::optional<Keys> keys_for(const Options& options) {
  if (!options.endpoint.starts_with("tcp://")) return std::nullopt;
  const std::string file =
      options.key_file.empty() ? from_environment("PENSTOCK_KEY_FILE") : options.key_file;
  const std::string server =
      options.server_key.empty() ? from_environment("PENSTOCK_SERVER_KEY") : options.server_key;
  if (file.empty() && server.empty()) return std::nullopt;
  if (file.empty() || server.empty())
    throw Error("INVALID_ARGUMENT",
                "keys come in two parts: the client's own (key_file, PENSTOCK_KEY_FILE) and the "
                "service's public one (server_key, PENSTOCK_SERVER_KEY)");
  Keys keys{read_key(file, true), {}, is_key(server) ? server : read_key(server, false)};
  std::array<char, kKeyCharacters + 1> public_key{};
  if (zmq_curve_public(public_key.data(), keys.secret_key.c_str()) != 0)
    throw Error("UNSUPPORTED", "this ZeroMQ knows no CURVE keys");
  keys.public_key = public_key.data();
  return keys;
}

}  // namespace penstock::client

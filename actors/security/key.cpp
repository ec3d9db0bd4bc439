#include "actors/security/key.hpp"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace penstock {
namespace {

constexpr std::string_view kDigits =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
constexpr std::size_t kZ85Characters = 40;  // four bytes are five of them
constexpr std::size_t kLongestFile = 256;

struct File {
  int fd = -1;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
};

tl::unexpected<Error> file_error(const std::filesystem::path& file, std::string_view what) {
  const int why = errno;
  const auto code = why == ENOENT   ? ErrorCode::kNotFound
                    : why == EEXIST ? ErrorCode::kAlreadyExists
                                    : ErrorCode::kDenied;
  return fail(code, "key file {}: {}: {}", file.string(), what, std::strerror(why));
}

Result<void> write_new(const std::filesystem::path& file, const Key& key, mode_t mode) {
  File out{::open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, mode)};
  if (out.fd < 0) return file_error(file, "cannot be made");
  std::string line = z85_of(key) + "\n";
  // Whatever the umask: the secret is for its owner, the public key for everybody.
  const bool written = ::fchmod(out.fd, mode) == 0 &&
                       ::write(out.fd, line.data(), line.size()) == ssize_t(line.size()) &&
                       ::fsync(out.fd) == 0;
  sodium_memzero(line.data(), line.size());
  if (written) return {};
  const auto failed = file_error(file, "cannot be written");
  ::unlink(file.c_str());
  return failed;
}

}  // namespace

KeyPair make_key_pair() {
  KeyPair pair;
  crypto_box_keypair(pair.public_key.data(), pair.secret_key.data());
  return pair;
}

Key public_key_of(const Key& secret_key) {
  Key key{};
  crypto_scalarmult_base(key.data(), secret_key.data());
  return key;
}

std::string z85_of(const Key& key) {
  std::string text(kZ85Characters, '0');
  for (std::size_t i = 0; i < key.size(); i += 4) {
    std::uint32_t value = 0;
    for (std::size_t j = 0; j < 4; ++j) value = value << 8 | key[i + j];
    for (std::size_t j = 5; j-- > 0; value /= 85) text[i / 4 * 5 + j] = kDigits[value % 85];
  }
  return text;
}

Result<Key> key_of_z85(std::string_view text) {
  const auto wrong = [] {
    return fail(ErrorCode::kInvalidArgument,
                "not a key: wanted the {} characters (Z85) that penstock keygen writes",
                kZ85Characters);
  };
  if (text.size() != kZ85Characters) return wrong();
  Key key{};
  for (std::size_t i = 0; i < kZ85Characters; i += 5) {
    std::uint64_t value = 0;
    for (std::size_t j = 0; j < 5; ++j) {
      const std::size_t digit = kDigits.find(text[i + j]);
      if (digit == std::string_view::npos) return wrong();
      value = value * 85 + digit;
    }
    if (value > UINT32_MAX) return wrong();
    for (std::size_t j = 0; j < 4; ++j) key[i / 5 * 4 + j] = std::uint8_t(value >> (24 - 8 * j));
  }
  return key;
}

Result<KeyPair> write_key_files(const std::filesystem::path& file) {
  const std::filesystem::path other = file.string() + ".pub";
  struct stat status {};
  for (const auto& each : {file, other})
    if (::lstat(each.c_str(), &status) == 0)
      return fail(
          ErrorCode::kAlreadyExists,
          "key file {} exists: a key is never overwritten; remove it or choose another name",
          each.string());
  const KeyPair pair = make_key_pair();
  if (auto written = write_new(file, pair.secret_key, 0600); !written)
    return tl::unexpected(written.error());
  if (auto written = write_new(other, pair.public_key, 0644); !written) {
    ::unlink(file.c_str());
    return tl::unexpected(written.error());
  }
  return pair;
}

Result<KeyPair> read_key_file(const std::filesystem::path& file) {
  File in{::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (in.fd < 0) return file_error(file, "cannot be read");
  struct stat status {};
  if (::fstat(in.fd, &status) != 0 || !S_ISREG(status.st_mode))
    return fail(ErrorCode::kInvalidArgument, "key file {}: not a regular file", file.string());
  // A group may read it: that is how orchestrators hand secrets to a process.
  if ((status.st_mode & 037) != 0)
    return fail(ErrorCode::kDenied, "key file {}: mode {:o} lets others at it; chmod 600",
                file.string(), status.st_mode & 0777u);
  std::array<char, kLongestFile + 1> text{};
  const ssize_t got = ::read(in.fd, text.data(), text.size());
  if (got < 0) return file_error(file, "cannot be read");
  std::string_view line(text.data(), static_cast<std::size_t>(got));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  const auto key = key_of_z85(line);
  sodium_memzero(text.data(), text.size());
  if (!key)
    return fail(ErrorCode::kInvalidArgument, "key file {}: {}", file.string(), key.error().message);
  return KeyPair{public_key_of(*key), *key};
}

}  // namespace penstock

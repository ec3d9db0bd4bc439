#include "actors/security/allow_list.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace penstock {
namespace {

constexpr std::size_t kLongestName = 64;
constexpr std::uintmax_t kLargestFile = 16u << 20;

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName &&
         text.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
             std::string_view::npos;
}

/// Takes the next word off the front; "" when there is none.
std::string_view next_word(std::string_view& rest) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t begin = std::min(rest.find_first_not_of(kSpace), rest.size());
  const std::size_t end = std::min(rest.find_first_of(kSpace, begin), rest.size());
  const std::string_view word = rest.substr(begin, end - begin);
  rest.remove_prefix(end);
  return word;
}

}  // namespace

Result<AllowList> AllowList::parse(std::string_view text, std::string_view source) {
  AllowList list;
  std::map<std::string, Role, std::less<>> roles;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    const auto wrong = [&](std::string_view what) {
      return fail(ErrorCode::kInvalidArgument, "allow-list {}:{}: {}", source, number, what);
    };
    const std::string_view word = next_word(line), name = next_word(line),
                           text_key = next_word(line);
    if (word.empty() || word.front() == '#') continue;
    const auto role = role_of(word);
    if (!role) return wrong(fmt::format("'{}' is no role: read, transfer or admin", word));
    if (!is_name(name))
      return wrong(
          fmt::format("'{}' is no name: 1 to {} of A-Z a-z 0-9 . _ -", name, kLongestName));
    const auto key = key_of_z85(text_key);
    if (!key) return wrong(key.error().message);
    if (!next_word(line).empty()) return wrong("more than ROLE NAME PUBLIC-KEY");
    if (!roles.emplace(name, *role).second && roles.find(name)->second != *role)
      return wrong(fmt::format("'{}' has another role above", name));
    if (!list.clients_.emplace(*key, Principal{std::string(name), *role}).second)
      return wrong("the key is given twice");
  }
  return list;
}

Result<AllowList> AllowList::read(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error) ||
      std::filesystem::file_size(file, error) > kLargestFile)
    return fail(ErrorCode::kNotFound, "allow-list {}: no such file, or larger than {} bytes",
                file.string(), kLargestFile);
  using std::filesystem::perms;
  const auto mode = std::filesystem::status(file, error).permissions();
  if ((mode & (perms::group_write | perms::others_write)) != perms::none)
    return fail(ErrorCode::kDenied,
                "allow-list {}: others may write it, and so let themselves in; chmod go-w",
                file.string());
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in)
    return fail(ErrorCode::kDenied, "allow-list {}: cannot be read; check its permissions",
                file.string());
  return parse(text.str(), file.string());
}

bool AllowList::names(std::string_view name) const {
  return std::any_of(clients_.begin(), clients_.end(),
                     [&](const auto& client) { return client.second.name == name; });
}

const Principal* AllowList::find(const Key& key) const {
  const auto found = clients_.find(key);
  return found == clients_.end() ? nullptr : &found->second;
}

}  // namespace penstock

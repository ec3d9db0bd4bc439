// Which clients may ask a service, and for what: a text file of one client a line,
//   ROLE NAME PUBLIC-KEY
// with empty lines and lines that start with # between them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "actors/security/key.hpp"
#include "actors/security/role.hpp"
#include "transport/error.hpp"

namespace penstock {

struct Principal {
  std::string name;  // of [A-Za-z0-9._-], at most 64: several keys may share one
  Role role = Role::kRead;
};

class AllowList {
 public:
  /// kInvalidArgument says where (`source`:line) and what is wrong: a key twice, one name with two
  /// roles, a word that is no role. No client at all is fine: nobody gets in.
  static Result<AllowList> parse(std::string_view text, std::string_view source);
  /// kDenied: others may write the file.
  static Result<AllowList> read(const std::filesystem::path& file);

  /// False: the key is there already.
  bool add(const Key& key, Principal client) {
    return clients_.emplace(key, std::move(client)).second;
  }
  /// Null: nobody that is known.
  const Principal* find(const Key& key) const;
  bool names(std::string_view name) const;
  std::size_t size() const { return clients_.size(); }

 private:
  std::map<Key, Principal> clients_;
};

}  // namespace penstock

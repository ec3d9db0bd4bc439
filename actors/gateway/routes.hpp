// Where each identity's messages came from last: from which connection, and under which name of the
// allow-list.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

namespace penstock {

/// A connection has one identity for as long as it lives, so an identity whose connection's
/// descriptor speaks under another one is gone: no more are remembered than there were descriptors
/// at once.
class Routes {
 public:
  struct Route {
    std::string who;  // "": nobody is asked for a key there
    int fd = -1;
  };

  void note(const std::string& identity, std::string who, int fd) {
    std::string& at = identity_at_[fd];
    if (at != identity) {
      if (const auto before = by_identity_.find(at);
          before != by_identity_.end() && before->second.fd == fd)
        by_identity_.erase(before);
      at = identity;
    }
    by_identity_[identity] = {std::move(who), fd};
  }
  /// Null: it never spoke, or is gone.
  const Route* find(const std::string& identity) const {
    const auto found = by_identity_.find(identity);
    return found == by_identity_.end() ? nullptr : &found->second;
  }
  void forget(const std::string& identity) { by_identity_.erase(identity); }

  std::size_t size() const { return by_identity_.size(); }
  auto begin() const { return by_identity_.begin(); }
  auto end() const { return by_identity_.end(); }

 private:
  std::unordered_map<std::string, Route> by_identity_;
  std::unordered_map<int, std::string> identity_at_;
};

}  // namespace penstock

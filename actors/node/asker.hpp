// Whether whoever asks may do what it asks to something that belongs to somebody.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "actors/device/region_table.hpp"
#include "actors/protocol/request.hpp"
#include "actors/security/audit.hpp"

namespace penstock {

struct Asker {
  std::string who;  // its name in the allow-list; "" without keys, where everything is everybody's
  Role role = Role::kAdmin;

  bool may_touch(const std::string& owner) const { return role == Role::kAdmin || who == owner; }
  /// kDenied, with a line for the audit, when it is another's. What is not there is nobody's: what
  /// is asked of it says so.
  Result<void> owns_region(const RegionTable& regions, const std::string& name,
                           Audit* audit) const {
    if (role == Role::kAdmin) return {};
    const auto region = regions.find(name);
    if (region && !may_touch(region->who)) return refuse("region", name, audit);
    return {};
  }
  tl::unexpected<Error> refuse(std::string_view what, std::string_view name, Audit* audit) const {
    auto error = fail(ErrorCode::kDenied, "{} '{}' is another client's: that takes the role admin",
                      what, name);
    if (audit != nullptr) audit->refused(who, error.value().message);
    return error;
  }
};

}  // namespace penstock

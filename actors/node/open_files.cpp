#include "actors/node/open_files.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace penstock {
namespace {

constexpr rlim_t kMostOpenFiles = 65536;

}  // namespace

Result<std::uint64_t> raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return fail(ErrorCode::kInternal, "getrlimit(RLIMIT_NOFILE): {}", std::strerror(errno));
  // Not to a hard limit of a billion, as some containers have: libraries walk through all of it.
  const rlimit raised{std::min<rlim_t>(limit.rlim_max, kMostOpenFiles), limit.rlim_max};
  if (limit.rlim_cur < raised.rlim_cur && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  if (limit.rlim_cur < kFewestOpenFiles)
    return fail(ErrorCode::kResourceExhausted,
                "at most {} files may be open here, a node needs {} and more with many clients or "
                "peers; raise it: ulimit -n 65536, or LimitNOFILE=65536 in the service's systemd "
                "unit",
                limit.rlim_cur, kFewestOpenFiles);
  return static_cast<std::uint64_t>(limit.rlim_cur);
}

}  // namespace penstock

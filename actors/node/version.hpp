#pragma once

namespace penstock {

inline constexpr const char* kServiceVersion = PENSTOCK_VERSION;  // CMakeLists.txt

}  // namespace penstock

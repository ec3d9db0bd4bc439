// The page that draws a node: page/index.html, put in at build time. It asks for /state.
#pragma once

namespace penstock {

extern const char* const watch_page_html;
inline constexpr const char* kWatchPageType = "text/html; charset=utf-8";

}  // namespace penstock

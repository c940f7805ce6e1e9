// The page at "/", part of the program: files of src/server/web/, embedded when it is built.
#pragma once

#include <span>
#include <string_view>

namespace triptych::server {

struct StaticPage {
  std::string_view path;  // "/", "/page.js"
  std::string_view content_type;
  std::string_view body;
};

/// All files of the page. Made by cmake/EmbedWebPage.cmake.
std::span<const StaticPage> web_pages();

/// The file at this path, or null.
const StaticPage* find_page(std::string_view path);

/// Content-Security-Policy of the page: nothing from another host, no inline script, pictures also as data.
inline constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace triptych::server

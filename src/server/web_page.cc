#include "server/web_page.h"

namespace triptych::server {

const StaticPage* find_page(std::string_view path) {
  for (const StaticPage& page : web_pages())
    if (page.path == path) return &page;
  return nullptr;
}

}  // namespace triptych::server

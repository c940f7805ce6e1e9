// HTML pages of one file: nothing is fetched, light and dark as the reader's system has it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace triptych {

/// A page with this title (escaped here) around `body`, which is HTML.
std::string html_page(std::string_view title, std::string_view body);

struct HtmlColumn {
  std::string title;
  bool left = false;  // else its cells stand at the right
};

/// A table of text, which is escaped here.
std::string html_table(const std::vector<HtmlColumn>& columns,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace triptych

#include "report/html_page.h"

#include <fmt/format.h>

#include "report/html_text.h"

namespace triptych {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --page: #ffffff; --text: #212529; --soft: #495057; --line: #dee2e6; --grid: #e9ecef; --idle: #f1f3f5; }
@media (prefers-color-scheme: dark) {
:root { --page: #16191d; --text: #e9ecef; --soft: #adb5bd; --line: #343a40; --grid: #2b3035; --idle: #22262b; } }
body { font: 14px/1.45 system-ui, sans-serif; background: var(--page); color: var(--text); margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; } .left { text-align: left; } svg { display: block; max-width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); } .grid { stroke: var(--grid); } .axis { stroke: var(--line); }
.roof { stroke: var(--text); stroke-width: 1.6; } .idle { fill: var(--idle); }
svg .roof-text { font-weight: 600; } svg .number { font-size: 10px; font-weight: 600; fill: #fff; }
.legend span { display: inline-block; margin-right: 1.1rem; } .legend i { display: inline-block; width: .8rem; height: .8rem;
margin-right: .3rem; border-radius: 2px; } .note { color: var(--soft); }
)";

}  // namespace

std::string html_page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      html_escape(title), kStyle, body);
}

std::string html_table(const std::vector<HtmlColumn>& columns,
                       const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<table>\n<thead><tr>";
  const auto tag = [&](std::size_t i) { return columns[i].left ? " class=\"left\"" : ""; };
  for (std::size_t i = 0; i < columns.size(); ++i)
    out += fmt::format("<th{}>{}</th>", tag(i), html_escape(columns[i].title));
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i)
      out += fmt::format("<td{}>{}</td>", tag(i), html_escape(row[i]));
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table>\n";
}

}  // namespace triptych

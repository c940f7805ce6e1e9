#include "report/text_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace triptych {
namespace {

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

void append_cell(std::string& line, std::string_view text, std::size_t width, Align align) {
  const std::string blanks(width - std::min(width, width_of(text)), ' ');
  if (align == Align::kRight) line += blanks;
  line += text;
  if (align == Align::kLeft) line += blanks;
}

// Three significant digits with a prefix of `names`, each `step` times the one before.
std::string with_prefix(double value, double step, std::string_view unit,
                        const std::array<const char*, 6>& names) {
  std::size_t i = 0;
  while (std::fabs(value) >= step * 0.9995 && i + 1 < names.size()) {
    value /= step;
    ++i;
  }
  const std::string suffix = std::string(names[i]) + std::string(unit);
  if (i == 0 && value == std::floor(value))
    return fmt::format("{:.0f}{}{}", value, suffix.empty() ? "" : " ", suffix);
  const int digits = std::fabs(value) >= 99.95 ? 0 : std::fabs(value) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}{}", value, digits, suffix.empty() ? "" : " ", suffix);
}

std::string without_controls(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '\n' || c == '\t') {
      out += keep_lines ? text[i] : ' ';
    } else if (c < 0x20 || c == 0x7f) {
      out += "\xEF\xBF\xBD";
    } else if (c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) {
      out += "\xEF\xBF\xBD";  // U+0080..U+009F: the second set of controls
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void TextTable::add_row(std::vector<std::string> cells) {
  TRIPTYCH_CHECK(cells.size() <= columns_.size(), "{} cells, {} columns", cells.size(), columns_.size());
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::render(std::size_t indent) const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(width_of(column.title));
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string out;
  const auto add_line = [&](auto&& cell) {
    std::string line(indent, ' ');
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) line += "  ";
      append_cell(line, cell(i), widths[i], columns_[i].align);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + '\n';
  };
  add_line([&](std::size_t i) { return columns_[i].title; });
  add_line([&](std::size_t i) { return std::string(widths[i], '-'); });
  for (const auto& row : rows_) add_line([&](std::size_t i) { return row[i]; });
  return out;
}

std::string format_bytes(double n_bytes) {
  return with_prefix(n_bytes, 1024.0, "B", {"", "Ki", "Mi", "Gi", "Ti", "Pi"});
}

std::string format_count(double n) { return with_prefix(n, 1000.0, "", {"", "k", "M", "G", "T", "P"}); }

std::string format_ms(double ms) {
  if (ms >= 999.95) return fmt::format("{:.3f} s", ms / 1000.0);
  return fmt::format("{:.{}f} ms", ms, ms >= 99.95 ? 0 : ms >= 9.995 ? 1 : 2);
}

std::string format_error(double error) {
  if (error == 0.0) return "0";
  return fmt::format("{:.1e}", error);
}

std::string format_percent(double share, int digits) {
  return fmt::format("{:.{}f} %", share * 100.0, digits);
}

std::string printable(std::string_view text) { return without_controls(text, true); }
std::string one_line(std::string_view text) { return without_controls(text, false); }

}  // namespace triptych

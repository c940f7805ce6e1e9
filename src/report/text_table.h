// Tables and numbers for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

enum class Align { kLeft, kRight };

/// Columns as wide as their widest cell, two blanks apart. Widths count code points.
class TextTable {
 public:
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };
  explicit TextTable(std::vector<Column> columns);
  /// Missing cells are empty; more cells than columns is a mistake.
  void add_row(std::vector<std::string> cells);
  /// Title line, rule and rows, each line indented and ended by a newline.
  std::string render(std::size_t indent = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// "0 B", "1.5 KiB", "13.2 GiB".
std::string format_bytes(double n_bytes);
/// "999", "1.91 M", "7.06 G": decimal prefixes.
std::string format_count(double n);
/// "0.42 ms", "12.3 ms", "1.234 s".
std::string format_ms(double ms);
/// "0", "1.2e-07": an error with two digits.
std::string format_error(double error);
/// "97.5 %" of a share in [0, 1].
std::string format_percent(double share, int digits = 1);

/// For a terminal: control characters other than newline and tab become visible (U+FFFD), so that text from a
/// model or a file cannot move the cursor or change the screen. Works on any cut of a text into chunks of
/// whole characters.
std::string printable(std::string_view text);
/// The same on one line: newlines and tabs become blanks.
std::string one_line(std::string_view text);

}  // namespace triptych

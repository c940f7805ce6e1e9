// UTF-8 and character properties as Python's str sees them. All strings here are valid UTF-8: sanitize_utf8
// is the door. Source: Python 3 documentation of str; Unicode data through utf8proc and unicode_tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace triptych::jinja {

/// Copy with every byte that is not part of a valid sequence replaced by U+FFFD.
std::string sanitize_utf8(std::string_view text);
bool is_valid_utf8(std::string_view text);

/// Reads the code point at byte `pos` (which must be the start of one) and moves `pos` behind it.
char32_t next_code_point(std::string_view text, std::size_t& pos);
/// Start of the code point that ends at byte `pos` (> 0).
std::size_t previous_start(std::string_view text, std::size_t pos);
std::size_t count_code_points(std::string_view text);
void append_utf8(std::string& out, char32_t code_point);

bool is_space(char32_t c);       // str.isspace, also the regular expression \s and what strip() removes
bool is_line_break(char32_t c);  // str.splitlines
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_alnum(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_printable(char32_t c);
bool is_identifier_start(char32_t c);
bool is_identifier_part(char32_t c);

/// Full case mappings, appended as UTF-8.
void append_upper(std::string& out, char32_t c);
void append_lower(std::string& out, char32_t c);
void append_title(std::string& out, char32_t c);
void append_fold(std::string& out, char32_t c);
/// The one mapping of lower() that looks around: a capital sigma at the end of a word.
bool is_final_sigma(std::string_view text, std::size_t pos);

}  // namespace triptych::jinja

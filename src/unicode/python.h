// Characters as Python's str sees them, where that differs from unicode/properties.h. Source: Python 3
// documentation of str; Unicode data through utf8proc and python_tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace triptych::python {

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

/// Full case mappings, appended as UTF-8; to lower case: unicode::append_lower.
void append_upper(std::string& out, char32_t c);
void append_title(std::string& out, char32_t c);
void append_fold(std::string& out, char32_t c);
/// The one mapping of lower() that looks around: a capital sigma at the end of a word. `text` is valid UTF-8,
/// the sigma at byte `pos`.
bool is_final_sigma(std::string_view text, std::size_t pos);

}  // namespace triptych::python

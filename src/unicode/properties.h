// Character properties and normalisation forms as the tokenizers need them, from libutf8proc.
#pragma once

#include <string>
#include <string_view>

namespace triptych::unicode {

/// Unicode property White_Space (stable since Unicode 6.3).
bool is_white_space(char32_t c) noexcept;
/// General category N* (Nd, Nl, No).
bool is_numeric(char32_t c) noexcept;
/// General category P*, or one of the 32 ASCII punctuation characters.
bool is_punctuation(char32_t c) noexcept;
/// General category M*.
bool is_mark(char32_t c) noexcept;
/// General category Mn.
bool is_nonspacing_mark(char32_t c) noexcept;
/// General category Cc, Cf or Co: what the BERT clean-up drops (tab and line ends are the caller's affair).
bool is_other(char32_t c) noexcept;
/// Appends the full lower-case mapping (without the context rule for a final sigma).
void append_lower(std::string& out, char32_t c);
/// True when no grapheme cluster boundary lies between two characters; `state` starts as 0 and is kept
/// between calls.
bool joins_grapheme(char32_t left, char32_t right, int& state) noexcept;

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

/// True when `c` is unchanged by the form and cannot interact with anything before it: text may be cut before
/// it.
bool is_inert(Form form, char32_t c) noexcept;

/// Normalises a piece of valid UTF-8 (without the fast path of the normalizers).
std::string normalize(Form form, std::string_view utf8);

}  // namespace triptych::unicode

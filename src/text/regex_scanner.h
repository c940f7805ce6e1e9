// Reading an Oniguruma pattern: position, errors that show the pattern, and what is written alike inside and
// outside of character classes. Used by regex_translate.cc and regex_class.cc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace triptych {

class RegexScanner {
 public:
  // Items of PCRE2 classes that equal Oniguruma's \s, \w and \h.
  static constexpr std::string_view kSpace =
      R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
  static constexpr std::string_view kWord =
      R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
  static constexpr std::string_view kHexDigit = "0-9A-Fa-f";

  RegexScanner(std::string_view pattern, std::string_view where) : text_(pattern), where_(where) {}

  [[noreturn]] void unsupported(std::string_view what) const;
  [[noreturn]] void invalid(std::string_view what) const;

  bool at_end() const { return at_ >= text_.size(); }
  bool peek(std::string_view ahead) const { return text_.substr(at_).starts_with(ahead); }
  std::string_view rest() const { return text_.substr(at_); }
  void skip(std::size_t n) { at_ += n; }
  /// The next byte; the pattern must not end here.
  char take();
  /// The next character, of any length.
  std::string_view take_character();

  /// PCRE2's form of \t, \n, \v ...; empty for other letters.
  static std::string_view single_escape(char letter);
  /// \xHH, \x{H...}, \uHHHH; the letter has been taken.
  std::string code_point(char kind);
  /// Items of a class for \p{Name} or \P{Name}; the letter has been taken.
  std::string property(bool negated);
  /// Items of a class for [:name:].
  std::string_view posix(std::string_view name) const;

 private:
  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
};

/// PCRE2's form of a character class, whose '[' has been taken: one that matches one character.
std::string translate_class(RegexScanner& scanner);

}  // namespace triptych

// Regular expressions of published tokenizers. They are written for Oniguruma (tokenizer.json) or Rust's
// regex (tiktoken); PCRE2 runs them, after a translation of what the two read differently: \s, \w, \b, \h,
// scripts, (?m), nested classes. Sources: Oniguruma's doc/RE; pcre2pattern(3). A construct that has no exact
// translation is Error(kUnsupported).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace triptych {

/// The PCRE2 form of an Oniguruma pattern. `where` (file and field) goes into errors.
std::string translate_oniguruma(std::string_view pattern, std::string_view where);

class Regex {
 public:
  /// Compiles a pattern in Oniguruma's syntax. Throws Error(kInvalidFile) or Error(kUnsupported).
  static Regex oniguruma(std::string_view pattern, std::string_view where);
  /// A pattern that matches exactly this text.
  static Regex literal(std::string_view text, std::string_view where);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// Walks over the matches in a text from left to right. An empty match right behind the previous match does
  /// not count.
  class Matches {
   public:
    Matches(const Regex& regex, std::string_view text) : regex_(&regex), text_(text) {}
    /// The next match as bytes [begin, end). Throws Error(kInvalidArgument) when the pattern needs too many
    /// steps.
    bool next(std::size_t& begin, std::size_t& end);

   private:
    const Regex* regex_;
    std::string_view text_;
    std::size_t from_ = 0;
    std::size_t last_end_ = static_cast<std::size_t>(-1);
  };

  const std::string& where() const { return where_; }

 private:
  friend class Matches;
  struct Code;
  Regex(std::string where, std::string literal, std::unique_ptr<Code> code);
  bool search(std::string_view text, std::size_t from, std::size_t& begin, std::size_t& end) const;

  std::string where_;
  std::string literal_;  // used instead of code_ when code_ is null
  std::unique_ptr<Code> code_;
};

}  // namespace triptych

#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "unicode/python.h"
#include "unicode/utf8.h"

namespace triptych::jinja {
namespace {

struct Operator {
  std::string_view text;
  Token type;
};
// Longer ones first.
constexpr std::array<Operator, 26> kOperators = {{
    {"//", Token::kFloorDiv}, {"**", Token::kPow},      {"==", Token::kEq},    {"!=", Token::kNe},
    {">=", Token::kGe},       {"<=", Token::kLe},       {"+", Token::kAdd},    {"-", Token::kSub},
    {"/", Token::kDiv},       {"*", Token::kMul},       {"%", Token::kMod},    {"~", Token::kTilde},
    {"[", Token::kLBracket},  {"]", Token::kRBracket},  {"(", Token::kLParen}, {")", Token::kRParen},
    {"{", Token::kLBrace},    {"}", Token::kRBrace},    {">", Token::kGt},     {"<", Token::kLt},
    {"=", Token::kAssign},    {".", Token::kDot},       {":", Token::kColon},  {"|", Token::kPipe},
    {",", Token::kComma},     {";", Token::kSemicolon},
}};

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

/// "\r\n" and "\r" become "\n"; one newline at the end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name) : name_(name), source_(normalize_newlines(source)) {}

  std::vector<Lexeme> run() {
    while (pos_ < source_.size()) read_text();
    add(Token::kEof, pos_);
    return std::move(out_);
  }

 private:
  [[noreturn]] void error(std::size_t at, const std::string& message) {
    fail(ErrorCode::kInvalidFile, "{}:{}: {}", name_, line_at(at), message);
  }

  /// Positions are asked for in ascending order, so that counting lines stays linear.
  int line_at(std::size_t at) {
    if (at < counted_) {
      counted_ = 0;
      line_ = 1;
    }
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(counted_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    counted_ = at;
    return line_;
  }

  Lexeme& add(Token type, std::size_t at) {
    Lexeme lexeme;
    lexeme.type = type;
    lexeme.line = line_at(std::min(at, source_.size()));
    out_.push_back(std::move(lexeme));
    return out_.back();
  }

  bool starts_with(std::size_t at, std::string_view text) const {
    return std::string_view(source_).substr(std::min(at, source_.size())).starts_with(text);
  }

  std::size_t skip_space(std::size_t at) const {
    while (at < source_.size()) {
      std::size_t next = at;
      if (!python::is_space(utf8::next_bounded(source_, next))) break;
      at = next;
    }
    return at;
  }

  /// Emits source[pos_, end) as data, stripped as the sign of the tag behind it and lstrip_blocks ask.
  void add_data(std::size_t end, char sign, bool is_variable) {
    std::string_view text = std::string_view(source_).substr(pos_, end - pos_);
    if (sign == '-') {
      while (!text.empty()) {
        std::size_t start = utf8::previous(text, text.size());
        std::size_t at = start;
        if (!python::is_space(utf8::next_bounded(text, at))) break;
        text = text.substr(0, start);
      }
    } else if (sign != '+' && !is_variable) {
      const auto newline = text.rfind('\n');
      const bool at_line_start = newline != std::string_view::npos || pos_ == 0 || source_[pos_ - 1] == '\n';
      const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if (at_line_start && all_space(text.substr(line_begin))) text = text.substr(0, line_begin);
    }
    if (!text.empty()) add(Token::kData, pos_).text = std::string(text);
  }

  static bool all_space(std::string_view text) {
    for (std::size_t i = 0; i < text.size();)
      if (!python::is_space(utf8::next_bounded(text, i))) return false;
    return true;
  }

  char sign_at(std::size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  /// Matches "{%" sign space* word space* and the end of the tag; returns the position behind the word, or
  /// npos.
  std::size_t match_word(std::size_t at, std::string_view word, char& sign) const {
    if (!starts_with(at, "{%")) return std::string::npos;
    sign = sign_at(at + 2);
    at = skip_space(at + 2 + (sign != '\0' ? 1 : 0));
    if (!starts_with(at, word)) return std::string::npos;
    return skip_space(at + word.size());
  }

  /// Data up to the next tag, then the tag.
  void read_text() {
    std::size_t at = pos_;
    while ((at = source_.find('{', at)) != std::string::npos) {
      const char kind = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (kind == '#' || kind == '%' || kind == '{') break;
      ++at;
    }
    if (at == std::string::npos) {
      add(Token::kData, pos_).text = source_.substr(pos_);
      pos_ = source_.size();
      return;
    }
    if (read_raw(at)) return;
    const char kind = source_[at + 1];
    const char sign = sign_at(at + 2);
    add_data(at, sign, kind == '{');
    const std::size_t begin = at;
    pos_ = at + 2 + (sign != '\0' ? 1 : 0);
    if (kind == '#') {
      read_comment(begin);
    } else {
      add(kind == '{' ? Token::kVariableBegin : Token::kBlockBegin, begin);
      read_tag(kind == '{');
    }
  }

  void read_comment(std::size_t begin) {
    const std::size_t end = source_.find("#}", pos_);
    if (end == std::string::npos) error(begin, "Missing end of comment tag");
    finish_tag(end + 2, end > pos_ ? source_[end - 1] : '\0');
  }

  /// Moves behind a closed tag: '-' eats white space, '+' nothing, else trim_blocks eats one newline.
  void finish_tag(std::size_t behind, char sign) {
    pos_ = behind;
    if (sign == '-') {
      pos_ = skip_space(pos_);
    } else if (sign != '+' && pos_ < source_.size() && source_[pos_] == '\n') {
      ++pos_;
    }
  }

  bool read_raw(std::size_t at) {
    char sign = '\0';
    const std::size_t behind = match_word(at, "raw", sign);
    if (behind == std::string::npos) return false;
    const bool strips = starts_with(behind, "-%}");
    if (!strips && !starts_with(behind, "%}")) return false;
    add_data(at, sign, false);
    pos_ = strips ? skip_space(behind + 3) : behind + 2;
    for (std::size_t end = pos_; (end = source_.find("{%", end)) != std::string::npos; ++end) {
      char end_sign = '\0';
      const std::size_t tail = match_word(end, "endraw", end_sign);
      if (tail == std::string::npos) continue;
      for (const char close : {'+', '-', '\0'}) {
        const std::size_t tag = tail + (close != '\0' ? 1 : 0);
        if ((close != '\0' && (tail >= source_.size() || source_[tail] != close)) || !starts_with(tag, "%}"))
          continue;
        add_data(end, end_sign, false);
        finish_tag(tag + 2, close);
        return true;
      }
    }
    error(at, "Missing end of raw directive");
  }

  /// Tokens of an expression or statement up to its end tag.
  void read_tag(bool is_variable) {
    std::string closers;
    const std::string_view end_text = is_variable ? "}}" : "%}";
    while (pos_ < source_.size()) {
      const char c = source_[pos_];
      if (closers.empty()) {
        const bool signed_end = (c == '-' || (c == '+' && !is_variable)) && starts_with(pos_ + 1, end_text);
        if (signed_end || starts_with(pos_, end_text)) {
          add(is_variable ? Token::kVariableEnd : Token::kBlockEnd, pos_);
          const char sign = signed_end ? c : is_variable ? '+' : '\0';
          finish_tag(pos_ + (signed_end ? 3 : 2), sign);
          return;
        }
      }
      if (const std::size_t behind = skip_space(pos_); behind != pos_) {
        pos_ = behind;
      } else if (is_digit_char(c)) {
        read_number();
      } else if (c == '\'' || c == '"') {
        read_string();
      } else if (!read_name()) {
        read_operator(closers);
      }
    }
  }

  bool read_name() {
    std::size_t end = pos_;
    while (end < source_.size()) {
      std::size_t next = end;
      const char32_t c = utf8::next_bounded(source_, next);
      if (!(end == pos_ ? python::is_identifier_start(c) : python::is_identifier_part(c))) break;
      end = next;
    }
    if (end == pos_) return false;
    add(Token::kName, pos_).text = source_.substr(pos_, end - pos_);
    pos_ = end;
    return true;
  }

  void read_operator(std::string& closers) {
    const auto it = std::find_if(kOperators.begin(), kOperators.end(), [&](const Operator& candidate) {
      return starts_with(pos_, candidate.text);
    });
    if (it == kOperators.end()) {
      std::size_t end = pos_;
      utf8::next_bounded(source_, end);
      error(pos_, fmt::format("unexpected char '{}'", source_.substr(pos_, end - pos_)));
    }
    const char c = it->text[0];
    if (c == '(') closers.push_back(')');
    if (c == '[') closers.push_back(']');
    if (c == '{') closers.push_back('}');
    if (c == ')' || c == ']' || c == '}') {
      if (closers.empty()) error(pos_, fmt::format("unexpected '{}'", c));
      if (closers.back() != c) error(pos_, fmt::format("unexpected '{}', expected '{}'", c, closers.back()));
      closers.pop_back();
    }
    add(it->type, pos_);
    pos_ += it->text.size();
  }

  /// End of a run of digits with single underscores between them, or `at`.
  std::size_t digits_end(std::size_t at, bool (*accept)(char)) const {
    std::size_t end = at;
    while (end < source_.size()) {
      if (accept(source_[end])) {
        ++end;
      } else if (source_[end] == '_' && end > at && end + 1 < source_.size() && accept(source_[end + 1])) {
        end += 2;
      } else {
        break;
      }
    }
    return end;
  }

  void read_number() {
    const auto digit = [](char c) { return is_digit_char(c); };
    if (pos_ == 0 || source_[pos_ - 1] != '.') {
      const std::size_t whole = digits_end(pos_, digit);
      std::size_t end = whole;
      bool is_float = false;
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit_char(source_[end + 1])) {
        end = digits_end(end + 1, digit);
        is_float = true;
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        std::size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (const std::size_t stop = digits_end(exponent, digit); stop != exponent) {
          end = stop;
          is_float = true;
        }
      }
      if (is_float) {
        const std::string text = without_underscores(end);
        double number = 0;
        const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
        if (result.ec == std::errc::result_out_of_range) {
          const std::size_t exponent = text.find_first_of("eE");
          const bool is_tiny = exponent != std::string::npos && text[exponent + 1] == '-';
          number = is_tiny ? 0.0 : std::numeric_limits<double>::infinity();
        }
        add(Token::kFloat, pos_).number = number;
        pos_ = end;
        return;
      }
    }
    read_integer(digit);
  }

  void read_integer(bool (*decimal)(char)) {
    int base = 10;
    std::size_t end = pos_;
    std::size_t digits = pos_;
    if (source_[pos_] == '0') {
      const char mark = pos_ + 1 < source_.size() ? static_cast<char>(source_[pos_ + 1] | 0x20) : '\0';
      const auto based = [&](int candidate, bool (*accept)(char)) {
        std::size_t begin = pos_ + 2;
        if (begin + 1 < source_.size() && source_[begin] == '_' && accept(source_[begin + 1])) ++begin;
        if (const std::size_t stop = digits_end(begin, accept); stop != begin) {
          base = candidate;
          digits = begin;
          end = stop;
        }
      };
      if (mark == 'b') based(2, [](char c) { return c == '0' || c == '1'; });
      if (mark == 'o') based(8, [](char c) { return c >= '0' && c <= '7'; });
      if (mark == 'x')
        based(16, [](char c) { return is_digit_char(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
      if (base == 10) end = digits_end(pos_, [](char c) { return c == '0'; });
    } else {
      end = digits_end(pos_, decimal);
    }
    std::string text = source_.substr(digits, end - digits);
    std::erase(text, '_');
    std::int64_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (result.ec != std::errc())
      error(pos_, fmt::format("the integer {} does not fit 64 bits", text.substr(0, 40)));
    add(Token::kInteger, pos_).integer = value;
    pos_ = end;
  }

  std::string without_underscores(std::size_t end) const {
    std::string text = source_.substr(pos_, end - pos_);
    std::erase(text, '_');
    return text;
  }

  void read_string() {
    const char quote = source_[pos_];
    std::size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) error(pos_, fmt::format("unexpected char '{}'", quote));
    std::string text = unescape(pos_ + 1, end);
    add(Token::kString, pos_).text = std::move(text);
    pos_ = end + 1;
  }

  /// Python's unicode-escape decoding of source[begin, end).
  std::string unescape(std::size_t begin, std::size_t end) {
    std::string out;
    for (std::size_t i = begin; i < end;) {
      if (source_[i] != '\\' || i + 1 >= end) {
        out.push_back(source_[i++]);
        continue;
      }
      const char c = source_[i + 1];
      if (static_cast<unsigned char>(c) >= 0x80) {
        // The reference spells such a character as an escape first, whose backslash this one then takes away.
        std::size_t next = i + 1;
        const char32_t code = utf8::next_bounded(source_, next);
        const auto value = static_cast<std::uint32_t>(code);
        out += code < 0x100     ? fmt::format("\\x{:02x}", value)
               : code < 0x10000 ? fmt::format("\\u{:04x}", value)
                                : fmt::format("\\U{:08x}", value);
        i = next;
        continue;
      }
      i += 2;
      static constexpr std::string_view kNames = "abfnrtv\\'\"";
      static constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
      if (const auto at = kNames.find(c); at != std::string_view::npos) {
        out.push_back(kValues[at]);
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        --i;
        char32_t code = 0;
        for (int n = 0; n < 3 && i < end && source_[i] >= '0' && source_[i] <= '7'; ++n, ++i)
          code = code * 8 + static_cast<char32_t>(source_[i] - '0');
        utf8::append(out, code);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        utf8::append(out, read_hex(i, n, end));
        i += n;
      } else if (c == 'N') {
        error(begin, "\\N{...} escapes are not supported");
      } else {
        out.push_back('\\');
        out.push_back(c);
      }
    }
    return out;
  }

  char32_t read_hex(std::size_t at, std::size_t n, std::size_t end) {
    std::uint32_t code = 0;
    if (at + n > end) error(at, "truncated escape in a string");
    const auto result = std::from_chars(source_.data() + at, source_.data() + at + n, code, 16);
    if (result.ec != std::errc() || result.ptr != source_.data() + at + n)
      error(at, "truncated escape in a string");
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      error(at, "illegal character in a string escape");
    return static_cast<char32_t>(code);
  }

  std::string name_;
  std::string source_;
  std::size_t pos_ = 0;
  std::size_t counted_ = 0;
  int line_ = 1;
  std::vector<Lexeme> out_;
};

}  // namespace

std::vector<Lexeme> tokenize(std::string_view source, std::string_view name) {
  if (!utf8::is_valid(source)) fail(ErrorCode::kInvalidFile, "{}: not valid UTF-8", name);
  return Lexer(source, name).run();
}

std::string_view describe(Token type) {
  for (const Operator& candidate : kOperators)
    if (candidate.type == type) return candidate.text;
  switch (type) {
    case Token::kData:
      return "template data / text";
    case Token::kVariableBegin:
      return "begin of print statement";
    case Token::kVariableEnd:
      return "end of print statement";
    case Token::kBlockBegin:
      return "begin of statement block";
    case Token::kBlockEnd:
      return "end of statement block";
    case Token::kName:
      return "name";
    case Token::kString:
      return "string";
    case Token::kInteger:
      return "integer";
    case Token::kFloat:
      return "float";
    default:
      return "end of template";
  }
}

std::string describe(const Lexeme& lexeme) {
  return lexeme.type == Token::kName ? lexeme.text : std::string(describe(lexeme.type));
}

}  // namespace triptych::jinja

// Oniguruma patterns (syntax ONIG_SYNTAX_ONIGURUMA, UTF-8) in PCRE2's words. Read: Oniguruma 6.9 doc/RE and
// doc/SYNTAX.md; pcre2pattern(3) and pcre2compat(3) of 10.42.
//   \s    White_Space; PCRE2's \s adds U+180E        \w    Alphabetic | M | Nd | Pc; PCRE2 adds N, leaves out
//   marks \h    a hexadecimal digit                        \v    U+000B
//   (?m)  a dot matches a line end: (?s)             \p{Han}  the script, not its extensions
//   [a[b]&&[^c]]  nested classes and intersections become alternatives with look-aheads of one character
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/regex.h"
#include "text/utf8.h"

namespace triptych {
namespace {

constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHexDigit = "0-9A-Fa-f";
constexpr std::size_t kMaxClassDepth = 16;

constexpr std::array<std::pair<std::string_view, std::string_view>, 30> kLongCategories = {{
    {"Letter", "L"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"},
    {"Other_Punctuation", "Po"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Other_Symbol", "So"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Control", "Cc"},
    {"Format", "Cf"},
    {"Other", "C"},
}};
// POSIX names, also written \p{Alpha}: the items of a class that equals them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kPosix = {{
    {"alpha", R"(\p{Alphabetic})"},
    {"digit", R"(\p{Nd})"},
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"upper", R"(\p{Uppercase})"},
    {"lower", R"(\p{Lowercase})"},
    {"space", kSpace},
    {"punct", R"(\p{P}$+<=>^`|~)"},
    {"xdigit", kHexDigit},
}};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : text_(pattern), where_(where) {}

  std::string run() {
    while (at_ < text_.size()) token();
    return std::move(out_);
  }

 private:
  // A class, as a union of plain items and nested classes, possibly cut with further operands (&&).
  struct Class {
    bool negated = false;
    struct Operand {
      std::string items;
      std::vector<Class> nested;
    };
    std::vector<Operand> operands;
  };

  [[noreturn]] void unsupported(std::string_view what) const {
    fail(ErrorCode::kUnsupported, "{}: the pattern uses {}, which this build cannot do: {}", where_, what,
         text_);
  }
  [[noreturn]] void invalid(std::string_view what) const {
    fail(ErrorCode::kInvalidFile, "{}: not a valid pattern: {}: {}", where_, what, text_);
  }
  bool peek(std::string_view ahead) const { return text_.substr(at_).starts_with(ahead); }
  char take() {
    if (at_ >= text_.size()) invalid("it ends too early");
    return text_[at_++];
  }
  void copy_character() {
    const std::size_t n = std::min(utf8::length_of(text_[at_]), text_.size() - at_);
    out_.append(text_.substr(at_, n));
    at_ += n;
  }

  void token() {
    const char c = text_[at_];
    if (c == '\\') {
      ++at_;
      escape();
    } else if (c == '[') {
      ++at_;
      out_.append(emit(parse_class(0)));
    } else if (c == '(') {
      ++at_;
      group();
    } else if (c == '{') {
      interval();
    } else {
      copy_character();
    }
  }

  // {n}, {n,}, {n,m}, {,m}; anything else is a literal brace.
  void interval() {
    std::size_t i = at_ + 1;
    const auto digits = [&] {
      const std::size_t start = i;
      while (i < text_.size() && text_[i] >= '0' && text_[i] <= '9') ++i;
      return std::string(text_.substr(start, i - start));
    };
    const std::string low = digits();
    std::string high = low;
    bool comma = false;
    if (i < text_.size() && text_[i] == ',') {
      comma = true;
      ++i;
      high = digits();
    }
    if (i >= text_.size() || text_[i] != '}' || (low.empty() && high.empty())) {
      out_.append("\\{");
      ++at_;
      return;
    }
    ++i;
    if (i < text_.size() && text_[i] == '+') unsupported("an interval followed by '+'");
    if (!comma && i < text_.size() && text_[i] == '?') unsupported("an interval {n} followed by '?'");
    out_.append("{").append(low.empty() ? "0" : low);
    if (comma) out_.append(",").append(high);
    out_.append("}");
    at_ = i;
  }

  void group() {
    if (!peek("?")) {
      if (peek("*")) unsupported("a verb (*...)");
      out_.push_back('(');
      return;
    }
    ++at_;
    if (peek("#")) {
      while (take() != ')') {
      }
      return;
    }
    for (const std::string_view plain : {":", "=", "!", ">", "<=", "<!"}) {
      if (peek(plain)) {
        at_ += plain.size();
        out_.append("(?").append(plain);
        return;
      }
    }
    if (peek("<")) {
      const std::size_t close = text_.find('>', at_);
      if (close == std::string_view::npos) invalid("a group name without end");
      out_.append("(?").append(text_.substr(at_, close + 1 - at_));
      at_ = close + 1;
      return;
    }
    options();
  }

  void options() {
    std::string flags;
    for (;;) {
      const char c = take();
      if (c == 'i' || c == 'x' || c == '-')
        flags.push_back(c);
      else if (c == 'm' || c == 's')
        flags.push_back('s');
      else if (c == ':' || c == ')') {
        out_.append("(?").append(flags).push_back(c);
        return;
      } else {
        unsupported(fmt::format("a group (?{}{}", flags, c));
      }
    }
  }

  static std::string_view single_escape(char c) {
    switch (c) {
      case 't':
        return "\\t";
      case 'n':
        return "\\n";
      case 'r':
        return "\\r";
      case 'f':
        return "\\f";
      case 'v':
        return "\\x{0b}";
      case 'a':
        return "\\x{07}";
      case 'e':
        return "\\x{1b}";
      default:
        return {};
    }
  }

  // \xHH, \x{H...}, \uHHHH; at_ is behind the letter.
  std::string code_point(char kind) {
    std::string digits;
    if (kind == 'x' && peek("{")) {
      ++at_;
      for (char c = take(); c != '}'; c = take()) digits.push_back(c);
    } else {
      const std::size_t most = kind == 'u' ? 4 : 2;
      while (digits.size() < most && at_ < text_.size() && is_hex(text_[at_])) digits.push_back(text_[at_++]);
      if (kind == 'u' && digits.size() != 4) invalid("\\u without four digits");
    }
    unsigned long value = 0;
    if (digits.empty() || digits.size() > 6) invalid("a bad code point");
    for (const char c : digits) {
      if (!is_hex(c)) invalid("a bad code point");
      value = value * 16 + static_cast<unsigned long>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) invalid("a code point outside Unicode");
    if (kind == 'x' && digits.size() == 2 && value >= 0x80 && text_[at_ - 1] != '}')
      unsupported("a raw byte \\xHH");
    return fmt::format("\\x{{{:x}}}", value);
  }
  static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  }

  // Items of a class for \p{Name} or \P{Name}; at_ is behind the letter.
  std::string property(bool negated) {
    std::string name;
    if (peek("{")) {
      ++at_;
      for (char c = take(); c != '}'; c = take()) name.push_back(c);
      if (name.starts_with("^")) {
        negated = !negated;
        name.erase(0, 1);
      }
    } else {
      unsupported("\\p without braces");
    }
    const std::string_view letter = negated ? "\\P{" : "\\p{";
    for (const auto& [full, brief] : kLongCategories)
      if (lower(full) == lower(name)) return fmt::format("{}{}}}", letter, brief);
    for (const auto& [posix, items] : kPosix) {
      if (posix != lower(name)) continue;
      if (!negated) return std::string(items);
      unsupported("a negated POSIX property");
    }
    if (name.empty() ||
        name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789 ") !=
            std::string::npos)
      invalid("a bad property name");
    if (name.size() <= 2) return fmt::format("{}{}}}", letter, name);
    if (name == "Any" || name == "Alphabetic" || name == "Uppercase" || name == "Lowercase" ||
        name == "White_Space" || name == "Emoji" || name == "Ideographic" ||
        name == "Extended_Pictographic" || name == "Emoji_Presentation")
      return fmt::format("{}{}}}", letter, name);
    return fmt::format("{}sc:{}}}", letter, name);
  }

  void escape() {
    const char c = take();
    switch (c) {
      case 's':
        out_.append("[").append(kSpace).append("]");
        return;
      case 'S':
        out_.append("[^").append(kSpace).append("]");
        return;
      case 'w':
        out_.append("[").append(kWord).append("]");
        return;
      case 'W':
        out_.append("[^").append(kWord).append("]");
        return;
      case 'd':
        out_.append(R"(\p{Nd})");
        return;
      case 'D':
        out_.append(R"(\P{Nd})");
        return;
      case 'h':
        out_.append("[").append(kHexDigit).append("]");
        return;
      case 'H':
        out_.append("[^").append(kHexDigit).append("]");
        return;
      case 'b':
        out_.append(fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord));
        return;
      case 'B':
        out_.append(fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord));
        return;
      case 'A':
      case 'Z':
      case 'z':
      case 'G':
      case 'R':
        out_.append("\\").push_back(c);
        return;
      case 'x':
      case 'u':
        out_.append(code_point(c));
        return;
      case 'p':
      case 'P': {
        const std::string items = property(c == 'P');
        const bool one = items.find('\\', 1) == std::string::npos && items.starts_with("\\");
        out_.append(one ? items : fmt::format("[{}]", items));
        return;
      }
      default:
        break;
    }
    if (const auto plain = single_escape(c); !plain.empty()) {
      out_.append(plain);
    } else if (c >= '1' && c <= '9') {
      out_.append(fmt::format("\\g{{{}}}", c));
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '0') {
      unsupported(fmt::format("\\{}", c));
    } else if (static_cast<unsigned char>(c) < 0x80) {
      out_.append("\\").push_back(c);
    } else {
      --at_;
      copy_character();
    }
  }

  // Behind '['.
  Class parse_class(std::size_t depth) {
    if (depth > kMaxClassDepth) unsupported("classes nested too deep");
    Class result;
    result.operands.emplace_back();
    if (peek("^")) {
      ++at_;
      result.negated = true;
    }
    bool first = true;
    for (;; first = false) {
      auto& operand = result.operands.back();
      if (peek("]") && !first) {
        ++at_;
        break;
      }
      if (peek("&&")) {
        at_ += 2;
        result.operands.emplace_back();
        continue;
      }
      if (peek("[:")) {
        const std::size_t close = text_.find(":]", at_ + 2);
        if (close != std::string_view::npos && close - at_ < 20) {
          posix(text_.substr(at_ + 2, close - at_ - 2), operand);
          at_ = close + 2;
          continue;
        }
      }
      const char c = take();
      if (c == '[')
        add_nested(parse_class(depth + 1), operand);
      else if (c == '\\')
        class_escape(operand);
      else if (static_cast<unsigned char>(c) >= 0x80) {
        --at_;
        const std::size_t n = std::min(utf8::length_of(text_[at_]), text_.size() - at_);
        operand.items.append(text_.substr(at_, n));
        at_ += n;
      } else {
        const bool range = c == '-' && !first && !peek("]") && !peek("[") && !peek("&&");
        if (c == ']' || c == '^' || (c == '-' && !range)) operand.items.push_back('\\');
        operand.items.push_back(c);
      }
    }
    for (const auto& operand : result.operands)
      if (operand.items.empty() && operand.nested.empty()) invalid("an empty character class");
    return result;
  }

  void posix(std::string_view name, Class::Operand& operand) {
    for (const auto& [posix_name, items] : kPosix) {
      if (posix_name == name) {
        operand.items.append(items);
        return;
      }
    }
    unsupported(fmt::format("[:{}:]", name));
  }

  static void add_nested(Class inner, Class::Operand& operand) {
    if (!inner.negated && inner.operands.size() == 1 && inner.operands[0].nested.empty())
      operand.items.append(inner.operands[0].items);
    else
      operand.nested.push_back(std::move(inner));
  }

  static Class negated_items(std::string_view items) {
    Class inner;
    inner.negated = true;
    inner.operands.emplace_back();
    inner.operands[0].items = items;
    return inner;
  }

  // A set cannot start a range: a '-' behind it is a literal.
  void add_set(std::string_view items, Class::Operand& operand) {
    operand.items.append(items);
    if (peek("-")) {
      operand.items.append("\\-");
      ++at_;
    }
  }

  void class_escape(Class::Operand& operand) {
    const char c = take();
    switch (c) {
      case 's':
        add_set(kSpace, operand);
        return;
      case 'w':
        add_set(kWord, operand);
        return;
      case 'd':
        add_set(R"(\p{Nd})", operand);
        return;
      case 'h':
        add_set(kHexDigit, operand);
        return;
      case 'D':
        add_set(R"(\P{Nd})", operand);
        return;
      case 'S':
        add_set(R"(\P{White_Space})", operand);
        return;
      case 'W':
        operand.nested.push_back(negated_items(kWord));
        return;
      case 'H':
        operand.nested.push_back(negated_items(kHexDigit));
        return;
      case 'b':
        operand.items.append("\\x{08}");
        return;
      case 'x':
      case 'u':
        operand.items.append(code_point(c));
        return;
      case 'p':
      case 'P':
        add_set(property(c == 'P'), operand);
        return;
      default:
        break;
    }
    if (const auto plain = single_escape(c); !plain.empty()) {
      operand.items.append(plain);
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
      unsupported(fmt::format("\\{} in a class", c));
    } else if (static_cast<unsigned char>(c) < 0x80) {
      operand.items.append("\\").push_back(c);
    } else {
      --at_;
      const std::size_t n = std::min(utf8::length_of(text_[at_]), text_.size() - at_);
      operand.items.append(text_.substr(at_, n));
      at_ += n;
    }
  }

  static std::string emit(const Class::Operand& operand) {
    if (operand.nested.empty()) return fmt::format("[{}]", operand.items);
    std::string out = "(?:";
    if (!operand.items.empty()) out.append("[").append(operand.items).append("]|");
    for (std::size_t i = 0; i < operand.nested.size(); ++i) {
      if (i > 0) out.push_back('|');
      out.append(emit(operand.nested[i]));
    }
    return out + ")";
  }

  static std::string emit(const Class& value) {
    if (value.operands.size() == 1 && value.operands[0].nested.empty())
      return fmt::format("[{}{}]", value.negated ? "^" : "", value.operands[0].items);
    std::string all = "(?:";
    for (std::size_t i = 0; i + 1 < value.operands.size(); ++i)
      all.append("(?=").append(emit(value.operands[i])).append(")");
    all.append(emit(value.operands.back())).append(")");
    return value.negated ? fmt::format("(?:(?!{})(?s:.))", all) : all;
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string translate_oniguruma(std::string_view pattern, std::string_view where) {
  if (!utf8::is_valid(pattern)) fail(ErrorCode::kInvalidFile, "{}: the pattern is not UTF-8", where);
  return Translator(pattern, where).run();
}

}  // namespace triptych

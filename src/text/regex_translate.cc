// Oniguruma patterns (syntax ONIG_SYNTAX_ONIGURUMA, UTF-8) in PCRE2's words. Read: Oniguruma 6.9 doc/RE and
// doc/SYNTAX.md; pcre2pattern(3) and pcre2compat(3) of 10.42.
//   \s        White_Space; PCRE2 adds U+180E
//   \w        Alphabetic, M, Nd, Pc and six superscripts and fractions of Latin-1; PCRE2: no marks, all of N
//   \h \v     a hexadecimal digit, U+000B; PCRE2: horizontal and vertical space
//   (?m)      a dot matches a line end: (?s)
//   \p{Han}   the script; PCRE2: its extensions too
//   [a[b]&&c] nested classes and intersections: regex_class.cc
#include "base/error.h"
#include "text/regex.h"
#include "text/regex_scanner.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr std::string_view kSpace = RegexScanner::kSpace;
constexpr std::string_view kWord = RegexScanner::kWord;
constexpr std::string_view kHexDigit = RegexScanner::kHexDigit;

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : scanner_(pattern, where) {}

  std::string run() {
    while (!scanner_.at_end()) token();
    return std::move(out_);
  }

 private:
  void token() {
    switch (scanner_.rest()[0]) {
      case '\\':
        scanner_.skip(1);
        escape();
        break;
      case '[':
        scanner_.skip(1);
        out_.append(translate_class(scanner_));
        break;
      case '(':
        scanner_.skip(1);
        group();
        break;
      case '{':
        interval();
        break;
      default:
        out_.append(scanner_.take_character());
    }
  }

  // {n}, {n,}, {n,m}, {,m}; anything else is a literal brace.
  void interval() {
    const std::string_view rest = scanner_.rest();
    std::size_t i = 1;
    const auto digits = [&] {
      const std::size_t start = i;
      while (i < rest.size() && rest[i] >= '0' && rest[i] <= '9') ++i;
      return rest.substr(start, i - start);
    };
    const std::string_view low = digits();
    std::string_view high = low;
    const bool comma = i < rest.size() && rest[i] == ',';
    if (comma) {
      ++i;
      high = digits();
    }
    if (i >= rest.size() || rest[i] != '}' || (low.empty() && high.empty())) {
      out_.append("\\{");
      scanner_.skip(1);
      return;
    }
    scanner_.skip(i + 1);
    if (scanner_.peek("+")) scanner_.unsupported("an interval followed by '+'");
    if (!comma && scanner_.peek("?")) scanner_.unsupported("an interval {n} followed by '?'");
    out_.append("{").append(low.empty() ? "0" : low);
    if (comma) out_.append(",").append(high);
    out_.append("}");
  }

  void group() {
    if (!scanner_.peek("?")) {
      if (scanner_.peek("*")) scanner_.unsupported("a verb (*...)");
      out_.push_back('(');
      return;
    }
    scanner_.skip(1);
    if (scanner_.peek("#")) {
      while (scanner_.take() != ')') {
      }
      return;
    }
    for (const std::string_view plain : {":", "=", "!", ">", "<=", "<!"}) {
      if (scanner_.peek(plain)) {
        scanner_.skip(plain.size());
        out_.append("(?").append(plain);
        return;
      }
    }
    if (scanner_.peek("<")) {
      const std::size_t close = scanner_.rest().find('>');
      if (close == std::string_view::npos) scanner_.invalid("a group name without end");
      out_.append("(?").append(scanner_.rest().substr(0, close + 1));
      scanner_.skip(close + 1);
      return;
    }
    options();
  }

  void options() {
    std::string flags;
    for (;;) {
      const char c = scanner_.take();
      if (c == 'i' || c == 'x' || c == '-')
        flags.push_back(c);
      else if (c == 'm' || c == 's')
        flags.push_back('s');
      else if (c == ':' || c == ')') {
        out_.append("(?").append(flags).push_back(c);
        return;
      } else {
        scanner_.unsupported(fmt::format("a group (?{}{}", flags, c));
      }
    }
  }

  void escape() {
    if (!scanner_.at_end() && static_cast<unsigned char>(scanner_.rest()[0]) >= 0x80) {
      out_.append(scanner_.take_character());
      return;
    }
    const char c = scanner_.take();
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
        out_.append(scanner_.code_point(c));
        return;
      case 'p':
      case 'P': {
        const std::string items = scanner_.property(c == 'P');
        const bool one = items.find('\\', 1) == std::string::npos && items.starts_with("\\");
        out_.append(one ? items : fmt::format("[{}]", items));
        return;
      }
      default:
        break;
    }
    if (const auto plain = RegexScanner::single_escape(c); !plain.empty()) {
      out_.append(plain);
    } else if (c >= '1' && c <= '9') {
      out_.append(fmt::format("\\g{{{}}}", c));
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '0') {
      scanner_.unsupported(fmt::format("\\{}", c));
    } else {
      out_.append("\\").push_back(c);
    }
  }

  RegexScanner scanner_;
  std::string out_;
};

}  // namespace

std::string translate_oniguruma(std::string_view pattern, std::string_view where) {
  if (!utf8::is_valid(pattern)) fail(ErrorCode::kInvalidFile, "{}: the pattern is not UTF-8", where);
  return Translator(pattern, where).run();
}

}  // namespace triptych

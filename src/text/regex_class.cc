// Character classes: parsed into unions, negations and intersections, and written for PCRE2, which has
// neither nested classes nor &&: those become alternatives with look-aheads of one character.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "text/regex_scanner.h"

namespace triptych {
namespace {

constexpr std::string_view kSpace = RegexScanner::kSpace;
constexpr std::string_view kWord = RegexScanner::kWord;
constexpr std::string_view kHexDigit = RegexScanner::kHexDigit;
constexpr std::size_t kMaxClassDepth = 16;

class ClassParser {
 public:
  explicit ClassParser(RegexScanner& scanner) : scanner_(scanner) {}
  std::string run() { return emit(parse_class(0)); }

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

  // Behind '['.
  Class parse_class(std::size_t depth) {
    if (depth > kMaxClassDepth) scanner_.unsupported("classes nested too deep");
    Class result;
    result.operands.emplace_back();
    if (scanner_.peek("^")) {
      scanner_.skip(1);
      result.negated = true;
    }
    bool first = true;
    for (;; first = false) {
      auto& operand = result.operands.back();
      if (scanner_.peek("]") && !first) {
        scanner_.skip(1);
        break;
      }
      if (scanner_.peek("&&")) {
        scanner_.skip(2);
        result.operands.emplace_back();
        continue;
      }
      if (scanner_.peek("[:")) {
        const std::size_t close = scanner_.rest().find(":]", 2);
        if (close != std::string_view::npos && close < 20) {
          operand.items.append(scanner_.posix(scanner_.rest().substr(2, close - 2)));
          scanner_.skip(close + 2);
          continue;
        }
      }
      if (!scanner_.at_end() && static_cast<unsigned char>(scanner_.rest()[0]) >= 0x80) {
        operand.items.append(scanner_.take_character());
        continue;
      }
      const char c = scanner_.take();
      if (c == '[') {
        add_nested(parse_class(depth + 1), operand);
      } else if (c == '\\') {
        class_escape(operand);
      } else {
        const bool range =
            c == '-' && !first && !scanner_.peek("]") && !scanner_.peek("[") && !scanner_.peek("&&");
        if (c == ']' || c == '^' || (c == '-' && !range)) operand.items.push_back('\\');
        operand.items.push_back(c);
      }
    }
    for (const auto& operand : result.operands)
      if (operand.items.empty() && operand.nested.empty()) scanner_.invalid("an empty character class");
    return result;
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
    if (scanner_.peek("-")) {
      operand.items.append("\\-");
      scanner_.skip(1);
    }
  }

  void class_escape(Class::Operand& operand) {
    if (!scanner_.at_end() && static_cast<unsigned char>(scanner_.rest()[0]) >= 0x80) {
      operand.items.append(scanner_.take_character());
      return;
    }
    const char c = scanner_.take();
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
        operand.items.append(scanner_.code_point(c));
        return;
      case 'p':
      case 'P':
        add_set(scanner_.property(c == 'P'), operand);
        return;
      default:
        break;
    }
    if (const auto plain = RegexScanner::single_escape(c); !plain.empty()) {
      operand.items.append(plain);
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
      scanner_.unsupported(fmt::format("\\{} in a class", c));
    } else {
      operand.items.append("\\").push_back(c);
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

  RegexScanner& scanner_;
};

}  // namespace

std::string translate_class(RegexScanner& scanner) { return ClassParser(scanner).run(); }

}  // namespace triptych

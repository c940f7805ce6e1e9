#include "grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr int kMaxNesting = 200;
constexpr int kMaxRepeats = 4;  // of one part: each is a level more when the grammar is compiled
constexpr std::uint32_t kMaxCount = 1 << 17;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfParser {
 public:
  using Node = GrammarBuilder::Node;

  GbnfParser(std::string_view text, std::string_view where)
      : text_(text), where_(where), b_(std::string(where)) {}

  Grammar parse() {
    if (text_.size() > kMaxGrammarText)
      fail(ErrorCode::kInvalidArgument, "{}: expected a grammar of at most {} bytes, got {}", where_,
           kMaxGrammarText, text_.size());
    if (!utf8::is_valid(text_))
      fail(ErrorCode::kInvalidArgument, "{}: the grammar is not valid UTF-8", where_);
    for (skip(true); !at_end(); skip(true)) parse_rule();
    const auto root = rules_.find("root");
    if (root == rules_.end() || !b_.is_defined(root->second))
      fail(ErrorCode::kInvalidArgument, "{}: the grammar has no rule named root", where_);
    return b_.build(root->second);
  }

 private:
  bool at_end() const { return at_ == text_.size(); }
  bool next_is(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  [[noreturn]] void bad(std::string_view what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    fail(ErrorCode::kInvalidArgument, "{}: line {}: {}", where_, line, what);
  }

  // Blanks and comments; with_lines: ends of lines too.
  void skip(bool with_lines) {
    while (!at_end()) {
      const char c = text_[at_];
      if (c == '#') {
        while (!at_end() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (with_lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view parse_name() {
    const std::size_t from = at_;
    while (!at_end() && is_name(text_[at_])) ++at_;
    if (at_ == from) bad("expected the name of a rule");
    return text_.substr(from, at_ - from);
  }

  GrammarBuilder::Rule rule_of(std::string_view name) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return found->second;
    return rules_.emplace(name, b_.declare(std::string(name))).first->second;
  }

  void parse_rule() {
    const std::string_view name = parse_name();
    const GrammarBuilder::Rule rule = rule_of(name);
    if (b_.is_defined(rule)) bad(fmt::format("rule {} is defined twice", name));
    skip(false);
    if (!take("::=")) bad(fmt::format("expected ::= behind {}", name));
    skip(true);
    b_.define(rule, parse_alternatives(false));
    if (!at_end() && text_[at_] != '\n' && text_[at_] != '\r') bad("expected the end of the line");
  }

  // A line that begins with | goes on with the rule.
  bool take_bar(bool is_nested) {
    const std::size_t from = at_;
    skip(true);
    if (take("|")) {
      skip(true);
      return true;
    }
    if (!is_nested) at_ = from;
    return false;
  }

  Node parse_alternatives(bool is_nested) {
    std::vector<Node> alternatives;
    do alternatives.push_back(parse_sequence(is_nested));
    while (take_bar(is_nested));
    return b_.choice(alternatives);
  }

  Node parse_sequence(bool is_nested) {
    std::vector<Node> parts;
    for (skip(is_nested); auto atom = parse_atom(); skip(is_nested)) parts.push_back(parse_repeats(*atom));
    return b_.sequence(parts);
  }

  std::optional<Node> parse_atom() {
    if (at_end()) return std::nullopt;
    const char c = text_[at_];
    if (take("\"")) return parse_literal();
    if (take("[")) return parse_class();
    if (take(".")) return b_.characters(CharacterSet::all());
    if (take("(")) {
      if (++nesting_ > kMaxNesting) bad(fmt::format("groups are nested deeper than {}", kMaxNesting));
      const Node inside = parse_alternatives(true);
      if (!take(")")) bad("a group is not closed");
      --nesting_;
      return inside;
    }
    if (c == '<' || c == '!')
      fail(ErrorCode::kUnsupported, "{}: tokens (<...>) in a grammar are not supported", where_);
    if (c == '*' || c == '+' || c == '?' || c == '{') bad("a repeat has nothing to repeat");
    if (!is_name(c)) return std::nullopt;
    return b_.call(rule_of(parse_name()));
  }

  Node parse_repeats(Node node) {
    for (int n = 0;; ++n) {
      if (n > kMaxRepeats) bad(fmt::format("more than {} repeats of one part", kMaxRepeats));
      if (take("*"))
        node = b_.repeat(node, 0, std::nullopt);
      else if (take("+"))
        node = b_.repeat(node, 1, std::nullopt);
      else if (take("?"))
        node = b_.repeat(node, 0, 1);
      else if (take("{"))
        node = parse_counts(node);
      else
        return node;
    }
  }

  // {n}, {n,}, {n,m} or {,m}
  Node parse_counts(Node node) {
    const auto number = [&]() -> std::optional<std::uint32_t> {
      skip(true);
      if (at_end() || text_[at_] < '0' || text_[at_] > '9') return std::nullopt;
      std::uint32_t value = 0;
      for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
        value = std::min(value * 10 + static_cast<std::uint32_t>(text_[at_] - '0'), kMaxCount + 1);
      skip(true);
      return value;
    };
    const auto min = number();
    const bool has_comma = take(",");
    const auto max = has_comma ? number() : min;
    if (!take("}") || (!min && !max)) bad("expected counts such as {2}, {2,}, {2,4} or {,4}");
    if (min.value_or(0) > kMaxCount || max.value_or(0) > kMaxCount)
      bad(fmt::format("a count above {}", kMaxCount));
    if (max && *max < min.value_or(0)) bad("a count's limits are the wrong way round");
    return b_.repeat(node, min.value_or(0), max);
  }

  char32_t parse_character() {
    if (at_end() || text_[at_] == '\n') bad("a literal or a class is not closed");
    if (!take("\\")) return utf8::next(text_, at_);
    if (at_end()) bad("the grammar ends behind \\");
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return parse_hex(2);
      case 'u':
        return parse_hex(4);
      case 'U':
        return parse_hex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<char32_t>(c);
      default:
        bad("expected one of n r t x u U \\ \" [ ] - ^ behind \\");
    }
  }

  char32_t parse_hex(int n_digits) {
    char32_t value = 0;
    for (int i = 0; i < n_digits; ++i) {
      const char c = at_end() ? ' ' : text_[at_++];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) bad(fmt::format("expected {} hexadecimal digits", n_digits));
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) bad("no character has this number");
    return value;
  }

  // Behind a quotation mark.
  Node parse_literal() {
    std::string text;
    while (!take("\"")) utf8::append(text, parse_character());
    return b_.literal(text);
  }

  // Behind a [.
  Node parse_class() {
    const bool is_negated = take("^");
    CharacterSet set;
    while (!take("]")) {
      const char32_t first = parse_character();
      char32_t last = first;
      if (next_is("-") && !next_is("-]")) {
        take("-");
        last = parse_character();
      }
      if (last < first) bad("a range whose ends are the wrong way round");
      set.add(first, last);
    }
    return b_.characters(is_negated ? set.complement() : set);
  }

  std::string_view text_;
  std::string_view where_;
  GrammarBuilder b_;
  std::map<std::string, GrammarBuilder::Rule, std::less<>> rules_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace

Grammar compile_gbnf(std::string_view text, std::string_view where) {
  return GbnfParser(text, where).parse();
}

}  // namespace triptych

// Source: ECMA-262, 22.2.1 Patterns. \d, \w and \s are what they are there without the flags u, v and i.
#include "grammar/regex_grammar.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr int kMaxNesting = 200;
constexpr std::uint32_t kMaxCount = 1 << 17;

const CharacterSet& digits() {
  static const CharacterSet set = {{'0', '9'}};
  return set;
}
const CharacterSet& word_characters() {
  static const CharacterSet set = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return set;
}
const CharacterSet& spaces() {
  static const CharacterSet set = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                   {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                   {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return set;
}
const CharacterSet& line_ends() {
  static const CharacterSet set = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return set;
}

int hex_digit(char32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<int>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<int>(c - 'A') + 10;
  return -1;
}

class RegexParser {
 public:
  using Node = GrammarBuilder::Node;

  RegexParser(GrammarBuilder& builder, std::string_view pattern, const RegexOptions& options)
      : b_(builder), pattern_(pattern), options_(options) {}

  Node parse() {
    if (pattern_.size() > kMaxGrammarText)
      fail(ErrorCode::kInvalidArgument, "{}: expected a pattern of at most {} bytes, got {}", options_.where,
           kMaxGrammarText, pattern_.size());
    if (!utf8::is_valid(pattern_))
      fail(ErrorCode::kInvalidArgument, "{}: the pattern is not valid UTF-8", options_.where);
    std::vector<Node> alternatives;
    do alternatives.push_back(parse_top_alternative());
    while (take('|'));
    if (!at_end()) bad("a ) that closes nothing");
    return b_.choice(alternatives);
  }

 private:
  bool at_end() const { return at_ == pattern_.size(); }
  char32_t peek() const {
    std::size_t i = at_;
    return at_end() ? 0 : utf8::next(pattern_, i);
  }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  bool take(char c) { return take(std::string_view(&c, 1)); }
  char32_t take_any(const char* expected) {
    if (at_end()) bad(fmt::format("the pattern ends, expected {}", expected));
    return utf8::next(pattern_, at_);
  }
  [[noreturn]] void bad(std::string_view what) const {
    fail(ErrorCode::kInvalidArgument, "{}: regular expression, byte {}: {}", options_.where, at_, what);
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    fail(ErrorCode::kUnsupported, "{}: regular expression, byte {}: {} not supported", options_.where, at_,
         what);
  }

  Node characters(const CharacterSet& set) {
    return options_.characters ? options_.characters(set) : b_.characters(set);
  }
  Node anything() {
    if (!anything_) {
      const Node one = b_.shared("any character", characters(CharacterSet::all()));
      anything_ = b_.repeat(one, 0, std::nullopt);
    }
    return *anything_;
  }

  // Anchors stand at the ends of these only.
  Node parse_top_alternative() {
    std::vector<Node> parts;
    bool is_anchored = false;
    while (take('^')) is_anchored = true;
    if (options_.searches && !is_anchored) parts.push_back(anything());
    parse_terms(parts);
    is_anchored = false;
    while (take('$')) is_anchored = true;
    if (options_.searches && !is_anchored) parts.push_back(anything());
    if (!at_end() && !next_is("|") && !next_is(")")) unsupported("$ before the end of an alternative is");
    return b_.sequence(parts);
  }

  Node parse_alternatives() {
    std::vector<Node> alternatives;
    do {
      std::vector<Node> parts;
      parse_terms(parts);
      if (next_is("$")) unsupported("$ in a group is");
      alternatives.push_back(b_.sequence(parts));
    } while (take('|'));
    return b_.choice(alternatives);
  }

  void parse_terms(std::vector<Node>& parts) {
    while (!at_end() && !next_is("|") && !next_is(")") && !next_is("$"))
      parts.push_back(parse_quantified(parse_atom()));
  }

  Node parse_atom() {
    if (take('(')) return parse_group();
    if (take('[')) return characters(parse_class());
    if (take('.')) return characters(line_ends().complement());
    if (take('\\')) return characters(parse_escape(false));
    if (next_is("^")) unsupported("^ behind the beginning of an alternative is");
    for (const std::string_view c : {"*", "+", "?"})
      if (next_is(c)) bad(fmt::format("{} has nothing to repeat", c));
    if (next_is("{") && parse_counts(false)) bad("a count has nothing to repeat");
    return characters(one(take_any("a character")));
  }

  static CharacterSet one(char32_t c) { return {{c, c}}; }

  Node parse_group() {
    if (++nesting_ > kMaxNesting) bad(fmt::format("groups are nested deeper than {}", kMaxNesting));
    if (take('?')) {
      if (next_is("=") || next_is("!") || next_is("<=") || next_is("<!"))
        unsupported("lookahead and lookbehind are");
      take('P');
      if (take('<')) {
        while (!take('>')) {
          const char32_t c = take_any("the > behind a group's name");
          if (!word_characters().contains(c)) bad("a group's name holds letters, digits and _ only");
        }
      } else if (!take(':')) {
        unsupported("a group of this kind is");
      }
    }
    const Node inside = parse_alternatives();
    if (!take(')')) bad("a group is not closed");
    --nesting_;
    return inside;
  }

  Node parse_quantified(Node atom) {
    std::uint32_t min = 0;
    std::optional<std::uint32_t> max;
    if (take('*')) {
    } else if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (next_is("{")) {
      const auto counts = parse_counts(true);
      if (!counts) return atom;
      min = counts->first;
      max = counts->second;
    } else {
      return atom;
    }
    take('?');  // what is matched first makes no difference to what is matched
    if (next_is("+")) unsupported("possessive repeats are");
    if (next_is("*") || next_is("?")) bad("a repeat has nothing to repeat");
    return b_.repeat(atom, min, max);
  }

  // {n}, {n,} or {n,m}; nothing for a { that is a character.
  std::optional<std::pair<std::uint32_t, std::optional<std::uint32_t>>> parse_counts(bool moves) {
    const std::size_t from = at_;
    const auto number = [&]() -> std::optional<std::uint32_t> {
      if (at_end() || pattern_[at_] < '0' || pattern_[at_] > '9') return std::nullopt;
      std::uint32_t value = 0;
      for (; !at_end() && pattern_[at_] >= '0' && pattern_[at_] <= '9'; ++at_)
        value = std::min(value * 10 + static_cast<std::uint32_t>(pattern_[at_] - '0'), kMaxCount + 1);
      return value;
    };
    take('{');
    const auto min = number();
    const bool has_comma = take(',');
    const auto max = has_comma ? number() : min;
    const bool is_counts = min && take('}');
    if (!is_counts || !moves) {
      at_ = from;
      if (!is_counts) return std::nullopt;
    }
    if (*min > kMaxCount || (max && *max > kMaxCount)) bad(fmt::format("a count above {}", kMaxCount));
    if (max && *max < *min) bad("a count's limits are the wrong way round");
    return std::pair(*min, max);
  }

  // Behind a backslash.
  CharacterSet parse_escape(bool in_class) {
    const char32_t c = take_any("a character behind \\");
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().complement();
      case 's':
        return spaces();
      case 'S':
        return spaces().complement();
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'v':
        return one('\v');
      case 'f':
        return one('\f');
      case 'r':
        return one('\r');
      case 'b':
        if (in_class) return one('\b');
        unsupported("\\b is");
      case 'B':
        unsupported("\\B is");
      case 'p':
      case 'P':
        unsupported("\\p is");
      case 'k':
        unsupported("a back reference is");
      case 'c':
        unsupported("\\c is");
      case 'x':
        return one(parse_hex(2));
      case 'u':
        return one(parse_unicode());
      case '0':
        if (!at_end() && digits().contains(peek())) unsupported("an octal escape is");
        return one(0);
      default:
        if (c >= '1' && c <= '9') unsupported("a back reference is");
        if (word_characters().contains(c) && c != '_')
          bad(fmt::format("\\{} means nothing", utf8::from_code_point(c)));
        return one(c);
    }
  }

  char32_t parse_hex(int n_digits) {
    char32_t value = 0;
    for (int i = 0; i < n_digits; ++i) {
      const int digit = hex_digit(take_any("a hexadecimal digit"));
      if (digit < 0) bad("expected a hexadecimal digit");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    return value;
  }

  // u0041, u{1F600}, or the two halves of a surrogate pair.
  char32_t parse_unicode() {
    char32_t value = 0;
    if (take('{')) {
      int n_digits = 0;
      while (!take('}')) {
        if (++n_digits > 6) bad("expected at most six hexadecimal digits");
        value = value * 16 + parse_hex(1);
      }
      if (n_digits == 0) bad("expected a hexadecimal digit");
    } else {
      value = parse_hex(4);
      if (value >= 0xD800 && value < 0xDC00 && take("\\u")) {
        const char32_t low = parse_hex(4);
        if (low < 0xDC00 || low > 0xDFFF) bad("half a surrogate pair");
        value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) bad("no character has this number");
    return value;
  }

  // Behind a [.
  CharacterSet parse_class() {
    const bool is_negated = take('^');
    CharacterSet set;
    while (!take(']')) {
      const auto first = parse_class_member(set);
      if (!first) continue;
      char32_t last = *first;
      if (next_is("-") && !next_is("-]")) {
        take('-');
        CharacterSet ignored;
        const auto end = parse_class_member(ignored);
        if (!end) bad("a range that ends with a class such as \\d");
        last = *end;
      }
      if (last < *first) bad("a range whose ends are the wrong way round");
      set.add(*first, last);
    }
    return is_negated ? set.complement() : set;
  }

  // A character that may begin a range, or nothing: then it was a class such as \d, added to `set`.
  std::optional<char32_t> parse_class_member(CharacterSet& set) {
    if (!take('\\')) return take_any("the ] behind a class");
    if (take('-')) return U'-';
    const CharacterSet escaped = parse_escape(true);
    const auto ranges = escaped.ranges();
    if (ranges.size() == 1 && ranges[0].first == ranges[0].last) return ranges[0].first;
    set.add(escaped);
    if (next_is("-") && !next_is("-]")) bad("a range that begins with a class such as \\d");
    return std::nullopt;
  }

  GrammarBuilder& b_;
  std::string_view pattern_;
  const RegexOptions& options_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  std::optional<Node> anything_;
};

}  // namespace

GrammarBuilder::Node add_regex(GrammarBuilder& builder, std::string_view pattern,
                               const RegexOptions& options) {
  return RegexParser(builder, pattern, options).parse();
}

Grammar compile_regex(std::string_view pattern, std::string_view where) {
  GrammarBuilder builder{std::string(where)};
  const GrammarBuilder::Rule root = builder.declare("root");
  builder.define(root, add_regex(builder, pattern, {.where = where}));
  return builder.build(root);
}

}  // namespace triptych

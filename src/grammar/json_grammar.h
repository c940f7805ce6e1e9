// JSON's own syntax (RFC 8259) as parts of a grammar. Between tokens stands no blank, one, or the end of a
// line and an indent; nothing before a colon or a comma. A model cannot fill its answer with blanks then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace triptych {

/// A number without exponent: digits before the point without leading zeros ("0" at least), behind it without
/// trailing ones.
struct Decimal {
  bool is_negative = false;
  std::string whole = "0";
  std::string fraction = {};

  /// Of a number as JSON writes it. Nothing where it has more than kMaxDigits digits on a side of the point.
  static std::optional<Decimal> parse(std::string_view number);
  static constexpr std::size_t kMaxDigits = 40;
  bool is_zero() const { return whole == "0" && fraction.empty(); }
  bool is_whole() const { return fraction.empty(); }
};

struct NumberLimit {
  Decimal value;
  bool is_inclusive = true;
};

struct NumberRange {
  std::optional<NumberLimit> low;
  std::optional<NumberLimit> high;
  bool is_whole = false;  // without fraction
};

class JsonGrammar {
 public:
  using Node = GrammarBuilder::Node;

  explicit JsonGrammar(GrammarBuilder& builder) : b_(builder) {}

  Node blank();
  /// One character within a string, in any spelling; a surrogate pair is one.
  Node string_character();
  /// One of a set within a string, in the one spelling that writers use: itself, a short escape, \u00xx.
  Node character_of(const CharacterSet& set);
  Node string();
  /// Of `min` to `max` characters.
  Node string(std::uint32_t min, std::optional<std::uint32_t> max);
  /// Its characters as character_of writes them.
  Node quoted(Node characters) { return b_.sequence({b_.literal("\""), characters, b_.literal("\"")}); }
  /// Up to 18 digits before and behind the point and two of an exponent: every reader takes such numbers, and
  /// a model cannot fill its answer with digits.
  Node integer();
  Node number();
  static constexpr std::uint32_t kMostDigits = 18;
  /// Numbers of the range, without exponent; nothing where there is none.
  Node number(const NumberRange& range);
  /// Whole numbers that `divisor` [1, kMaxDivisor] divides.
  Node multiple_of(std::uint32_t divisor);
  static constexpr std::uint32_t kMaxDivisor = 1000;
  /// Numbers with at most so many digits behind the point, without exponent.
  Node with_fraction_digits(std::uint32_t n);
  Node value();
  Node object();
  Node array();
  /// "[", elements with commas between, "]".
  Node array_of(Node element, std::uint32_t min, std::optional<std::uint32_t> max);
  struct Member {
    Node node = 0;  // see member()
    bool is_required = false;
  };
  /// "{", the members in their order, those that are not required or not, any number of `other` ones, "}".
  Node object_of(const std::vector<Member>& members, std::optional<Node> other);
  /// A string, written as character_of does, that is none of the names (valid UTF-8).
  Node other_key(const std::vector<std::string>& names);
  /// `key` ":" `value`.
  Node member(Node key, Node value) { return b_.sequence({key, b_.literal(":"), blank(), value}); }
  Node comma() { return b_.sequence({b_.literal(","), blank()}); }

 private:
  Node once(std::optional<GrammarBuilder::Rule>& rule, const char* name, Node (JsonGrammar::*make)());
  Node make_blank();
  Node make_string_character();
  Node make_string();
  Node make_value();
  Node make_object();
  Node make_array();
  Node digit(char first, char last) {
    return b_.byte_range(static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last));
  }

  GrammarBuilder& b_;
  std::optional<GrammarBuilder::Rule> blank_, string_character_, string_, value_, object_, array_;
};

}  // namespace triptych

// Numbers of JSON, and those within limits: digit by digit, as long as a number is equal to a limit so far
// that limit bounds the next digit.
#include <algorithm>
#include <charconv>
#include <vector>

#include "base/error.h"
#include "grammar/json_grammar.h"

namespace triptych {
namespace {

// By size, the sign aside.
int compare_sizes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  if (const int order = a.whole.compare(b.whole); order != 0) return order;
  return a.fraction.compare(b.fraction);  // without trailing zeros a prefix is the smaller
}

void add_one(std::string& digits) {
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    if (*digit != '9') {
      ++*digit;
      return;
    }
    *digit = '0';
  }
  digits.insert(digits.begin(), '1');
}

void subtract_one(std::string& digits) {
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    if (*digit != '0') {
      --*digit;
      break;
    }
    *digit = '9';
  }
  if (digits.size() > 1 && digits[0] == '0') digits.erase(0, 1);
}

// Numbers without sign between two limits.
class SizeRange {
 public:
  using Node = GrammarBuilder::Node;

  SizeRange(GrammarBuilder& builder, NumberLimit low, std::optional<NumberLimit> high, bool is_whole)
      : b_(builder), low_(std::move(low)), high_(std::move(high)), is_whole_(is_whole) {}

  Node make() {
    if (is_whole_ && !round_inwards()) return b_.nothing();
    const int order = high_ ? compare_sizes(low_.value, high_->value) : -1;
    if (order > 0 || (order == 0 && !(low_.is_inclusive && high_->is_inclusive))) return b_.nothing();
    const std::size_t fewest = low_.value.whole.size();
    const std::size_t most = high_ ? high_->value.whole.size() : fewest;
    std::vector<Node> by_length;
    for (std::size_t n = fewest; n <= most; ++n)
      by_length.push_back(whole_digits(0, n, n == fewest, high_ && n == most));
    const auto most_more =
        static_cast<std::uint32_t>(std::max<std::size_t>(fewest, JsonGrammar::kMostDigits - 1));
    if (!high_)
      by_length.push_back(b_.sequence(
          {digits('1', '9'), b_.repeat(digits('0', '9'), static_cast<std::uint32_t>(fewest), most_more),
           behind_whole(false, false)}));
    return b_.choice(by_length);
  }

 private:
  Node digits(char first, char last) {
    return b_.byte_range(static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last));
  }

  // To whole numbers that are in the range; false when there is none.
  bool round_inwards() {
    if (!low_.value.is_whole() || !low_.is_inclusive) add_one(low_.value.whole);
    low_ = {{.whole = low_.value.whole}, true};
    if (!high_) return true;
    if (high_->value.is_whole() && !high_->is_inclusive) {
      if (high_->value.is_zero()) return false;
      subtract_one(high_->value.whole);
    }
    high_ = {{.whole = high_->value.whole}, true};
    return true;
  }

  // Digits that may come next, each with what may follow it. at_low, at_high: equal to that limit so far.
  template <typename Behind>
  Node next_digit(char first, char last, bool at_low, bool at_high, Behind behind) {
    std::vector<Node> out;
    const auto add = [&](char from, char to, bool low, bool high) {
      if (from <= to) out.push_back(b_.sequence({digits(from, to), behind(low, high)}));
    };
    if (first == last && (at_low || at_high)) {
      add(first, last, at_low, at_high);
    } else {
      if (at_low) add(first, first, true, false);
      add(at_low ? static_cast<char>(first + 1) : first, at_high ? static_cast<char>(last - 1) : last, false,
          false);
      if (at_high) add(last, last, false, true);
    }
    return b_.choice(out);
  }

  Node whole_digits(std::size_t at, std::size_t n, bool at_low, bool at_high) {
    if (at == n) return behind_whole(at_low, at_high);
    const char least = at == 0 && n > 1 ? '1' : '0';
    const char first = at_low ? low_.value.whole[at] : least;
    const char last = at_high ? high_->value.whole[at] : '9';
    if (first > last) return b_.nothing();
    return next_digit(first, last, at_low, at_high,
                      [&](bool low, bool high) { return whole_digits(at + 1, n, low, high); });
  }

  Node behind_whole(bool at_low, bool at_high) {
    if (is_whole_) return b_.empty();
    const Node fraction = b_.sequence({b_.literal("."), fraction_digits(0, at_low, at_high)});
    return may_end(0, at_low, at_high) ? b_.optional(fraction) : fraction;
  }

  // With `at` digits behind the point.
  bool may_end(std::size_t at, bool at_low, bool at_high) const {
    if (at_low && (at < low_.value.fraction.size() || !low_.is_inclusive)) return false;
    return !at_high || at < high_->value.fraction.size() || high_->is_inclusive;
  }

  // At least one digit.
  Node fraction_digits(std::size_t at, bool at_low, bool at_high) {
    const Node any = digits('0', '9');
    if (!at_low && !at_high) return b_.repeat(any, 1, JsonGrammar::kMostDigits);
    const bool low_goes_on = at_low && at < low_.value.fraction.size();
    const bool high_goes_on = at_high && at < high_->value.fraction.size();
    if (!low_goes_on && !high_goes_on) {
      const Node zeros = may_end(at, at_low, at_high)
                             ? b_.repeat(digits('0', '0'), 1, JsonGrammar::kMostDigits)
                             : b_.nothing();
      if (at_high) return zeros;
      const Node above = b_.sequence({b_.repeat(digits('0', '0'), 0, JsonGrammar::kMostDigits),
                                      digits('1', '9'), b_.repeat(any, 0, JsonGrammar::kMostDigits)});
      return b_.choice({zeros, above});
    }
    const char first = low_goes_on ? low_.value.fraction[at] : '0';
    const char last = high_goes_on ? high_->value.fraction[at] : at_high ? '0' : '9';
    if (first > last) return b_.nothing();
    return next_digit(first, last, at_low, at_high, [&](bool low, bool high) {
      const Node more = fraction_digits(at + 1, low, high);
      return may_end(at + 1, low, high) ? b_.optional(more) : more;
    });
  }

  GrammarBuilder& b_;
  NumberLimit low_;
  std::optional<NumberLimit> high_;
  bool is_whole_;
};

NumberLimit size_of(NumberLimit limit) {
  limit.value.is_negative = false;
  return limit;
}

}  // namespace

std::optional<Decimal> Decimal::parse(std::string_view number) {
  Decimal out;
  if (number.starts_with('-')) {
    out.is_negative = true;
    number.remove_prefix(1);
  }
  int exponent = 0;
  if (const std::size_t e = number.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view text = number.substr(e + 1);
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto end = std::from_chars(text.data(), text.data() + text.size(), exponent);
    if (end.ec != std::errc() || exponent < -1000 || exponent > 1000) return std::nullopt;
    number = number.substr(0, e);
  }
  const std::size_t point = std::min(number.find('.'), number.size());
  out.whole = number.substr(0, point);
  out.fraction = number.substr(std::min(point + 1, number.size()));
  for (; exponent > 0; --exponent) {
    out.whole += out.fraction.empty() ? '0' : out.fraction.front();
    out.fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    out.fraction.insert(out.fraction.begin(), out.whole.empty() ? '0' : out.whole.back());
    if (!out.whole.empty()) out.whole.pop_back();
  }
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
  if (out.whole.empty()) out.whole = "0";
  const std::size_t last = out.fraction.find_last_not_of('0');
  out.fraction.resize(last == std::string::npos ? 0 : last + 1);
  if (out.is_zero()) out.is_negative = false;
  if (out.whole.size() > kMaxDigits || out.fraction.size() > kMaxDigits) return std::nullopt;
  return out;
}

JsonGrammar::Node JsonGrammar::integer() {
  const Node size = b_.choice(
      {b_.literal("0"), b_.sequence({digit('1', '9'), b_.repeat(digit('0', '9'), 0, kMostDigits - 1)})});
  return b_.sequence({b_.optional(b_.literal("-")), size});
}

JsonGrammar::Node JsonGrammar::number() {
  const Node digits = b_.repeat(digit('0', '9'), 1, kMostDigits);
  const Node exponent_digits = b_.repeat(digit('0', '9'), 1, 2);
  const Node fraction = b_.optional(b_.sequence({b_.literal("."), digits}));
  const Node sign = b_.optional(b_.words({"+", "-"}));
  const Node exponent = b_.optional(b_.sequence({b_.words({"e", "E"}), sign, exponent_digits}));
  return b_.sequence({integer(), fraction, exponent});
}

JsonGrammar::Node JsonGrammar::with_fraction_digits(std::uint32_t n) {
  if (n == 0) return integer();
  return b_.sequence(
      {integer(), b_.optional(b_.sequence({b_.literal("."), b_.repeat(digit('0', '9'), 1, n)}))});
}

JsonGrammar::Node JsonGrammar::number(const NumberRange& range) {
  std::vector<Node> out;
  const NumberLimit zero;
  // Not below zero ...
  if (!range.high || !range.high->value.is_negative) {
    const bool from_zero = !range.low || range.low->value.is_negative;
    out.push_back(SizeRange(b_, from_zero ? zero : *range.low, range.high, range.is_whole).make());
  }
  // ... and with a minus sign, where the limits change places.
  if (!range.low || range.low->value.is_negative) {
    const bool to_zero = !range.high || !(range.high->value.is_negative || range.high->value.is_zero());
    std::optional<NumberLimit> high;
    if (range.low) high = size_of(*range.low);
    const NumberLimit low = to_zero ? zero : size_of(*range.high);
    out.push_back(b_.sequence({b_.literal("-"), SizeRange(b_, low, high, range.is_whole).make()}));
  }
  return b_.choice(out);
}

// A rule for each remainder of the digits so far.
JsonGrammar::Node JsonGrammar::multiple_of(std::uint32_t divisor) {
  TRIPTYCH_CHECK(divisor >= 1 && divisor <= kMaxDivisor);
  std::vector<GrammarBuilder::Rule> rules;
  for (std::uint32_t r = 0; r < divisor; ++r) rules.push_back(b_.declare("a multiple"));
  std::vector<Node> single;
  for (char d = '0'; d <= '9'; ++d) single.push_back(digit(d, d));
  const auto digits_behind = [&](std::uint32_t remainder, std::uint32_t least, std::vector<Node>& out) {
    for (std::uint32_t d = least; d <= 9; ++d)
      out.push_back(b_.sequence({single[d], b_.call(rules[(remainder * 10 + d) % divisor])}));
  };
  for (std::uint32_t r = 0; r < divisor; ++r) {
    std::vector<Node> next;
    if (r == 0) next.push_back(b_.empty());
    digits_behind(r, 0, next);
    b_.define(rules[r], b_.choice(next));
  }
  std::vector<Node> first = {b_.literal("0")};
  digits_behind(0, 1, first);
  return b_.sequence({b_.optional(b_.literal("-")), b_.choice(first)});
}

}  // namespace triptych

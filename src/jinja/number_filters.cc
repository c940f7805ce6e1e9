// Filters that compute numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/builtins.h"
#include "jinja/number_format.h"
#include "jinja/text_ops.h"

namespace triptych::jinja {
namespace {

/// Digits without the underscores Python allows between them; nothing if one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    const auto is_digit_like = [](char c) {
      return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    };
    if (i == 0 || i + 1 >= text.size() || !is_digit_like(text[i - 1]) || !is_digit_like(text[i + 1]))
      return std::nullopt;
  }
  return out;
}

std::string_view stripped(Runtime& runtime, std::string_view text) {
  const auto [begin, end] = strip_range(runtime, text, std::nullopt, true, true);
  return text.substr(begin, end - begin);
}

/// int(text, base) of Python.
std::optional<std::int64_t> parse_int(Runtime& runtime, std::string_view source, std::int64_t base) {
  std::string_view text = stripped(runtime, source);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const char mark = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  const std::int64_t marked_base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked_base != 0 && (base == marked_base || base == 0)) {
    text.remove_prefix(2);
    if (!text.empty() && text[0] == '_') text.remove_prefix(1);
    base = marked_base;
  } else if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return std::nullopt;
  }
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-') return std::nullopt;
  std::uint64_t magnitude = 0;
  const auto result =
      std::from_chars(digits->data(), digits->data() + digits->size(), magnitude, static_cast<int>(base));
  if (result.ptr != digits->data() + digits->size() || result.ec == std::errc::invalid_argument)
    return std::nullopt;
  if (result.ec != std::errc() || magnitude > (1ull << 63) - (negative ? 0 : 1))
    fail(ErrorCode::kInvalidArgument, "integer does not fit 64 bits");
  return static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude);
}

/// float(text) of Python.
std::optional<double> parse_float(Runtime& runtime, std::string_view source) {
  std::string_view text = stripped(runtime, source);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-' || digits->find('(') != std::string::npos)
    return std::nullopt;
  double out = 0;
  const auto result = std::from_chars(digits->data(), digits->data() + digits->size(), out);
  if (result.ptr != digits->data() + digits->size() || result.ec == std::errc::invalid_argument)
    return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    const bool tiny = digits->find("e-") != std::string::npos || digits->find("E-") != std::string::npos;
    out = tiny ? 0.0 : HUGE_VAL;
  }
  return negative ? -out : out;
}

std::int64_t truncated(double d) {
  if (!(std::fabs(d) < 9.2e18)) fail(ErrorCode::kInvalidArgument, "cannot convert float to a 64-bit integer");
  return static_cast<std::int64_t>(d);
}

Value filter_int(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  const Value fallback = bound.has(0) ? bound.at(0) : Value::integer(0);
  const std::int64_t base = !bound.has(1)               ? 10
                            : bound.at(1).is_integral() ? bound.at(1).as_int()
                                                        : -1;  // -1: never parses
  require_defined(input);
  if (input.is_string()) {
    if (base == 0 || (base >= 2 && base <= 36)) {
      if (const auto n = parse_int(runtime, input.view(), base)) return Value::integer(*n);
    }
    const auto d = parse_float(runtime, input.view());  // "42.23" gives 42
    if (!d || !std::isfinite(*d)) return fallback;
    return Value::integer(truncated(*d));
  }
  if (input.is_integral()) return Value::integer(input.as_int());
  if (!input.is(Type::kFloat)) return fallback;
  if (std::isnan(input.as_double())) return fallback;
  return Value::integer(truncated(input.as_double()));
}

Value filter_float(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  require_defined(input);
  if (input.is_number()) return Value::number(input.as_double());
  if (input.is_string()) {
    if (const auto d = parse_float(runtime, input.view())) return Value::number(*d);
  }
  return bound.has(0) ? bound.at(0) : Value::number(0.0);
}

Value filter_abs(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("abs", arguments, {});
  if (input.is(Type::kFloat)) return Value::number(std::fabs(input.as_double()));
  if (!input.is_integral()) fail_operand("abs()", input);
  return input.as_int() < 0 ? runtime.unary(UnaryOp::kNegate, input) : Value::integer(input.as_int());
}

/// round() of an int to a negative number of digits: to even on ties.
std::int64_t round_integer(std::int64_t value, std::int64_t digits) {
  if (digits >= 0) return value;
  if (digits < -18) {
    if (digits == -19 && (value > 5'000'000'000'000'000'000 || value < -5'000'000'000'000'000'000))
      fail(ErrorCode::kInvalidArgument, "integer result does not fit 64 bits");
    return 0;
  }
  std::int64_t unit = 1;
  for (std::int64_t i = 0; i < -digits; ++i) unit *= 10;
  std::int64_t rest = value % unit;
  if (rest < 0) rest += unit;
  std::int64_t floor_multiple = 0;
  if (__builtin_sub_overflow(value, rest, &floor_multiple))
    fail(ErrorCode::kInvalidArgument, "integer result does not fit 64 bits");
  const bool odd = (floor_multiple / unit) % 2 != 0;
  if (rest > unit / 2 || (rest == unit / 2 && odd)) {
    if (__builtin_add_overflow(floor_multiple, unit, &floor_multiple))
      fail(ErrorCode::kInvalidArgument, "integer result does not fit 64 bits");
  }
  return floor_multiple;
}

Value filter_round(Runtime&, const Value& input, Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const bool to_integer = bound.has(0) && bound.at(0).is_none();  // round(x, None)
  const std::int64_t precision = to_integer ? 0 : std::clamp<std::int64_t>(bound.integer(0, 0), -400, 400);
  const std::string_view method = bound.has(1) ? bound.text(1).view() : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    fail(ErrorCode::kInvalidArgument, "method must be common, ceil or floor");
  if (!input.is_number()) fail_operand("round", input);
  if (method == "common") {
    if (input.is_integral()) return Value::integer(round_integer(input.as_int(), precision));
    const double rounded = round_decimal(input.as_double(), static_cast<int>(precision));
    return to_integer ? Value::integer(truncated(rounded)) : Value::number(rounded);
  }
  if (to_integer) fail_operand("round", bound.at(0));
  if (input.is_integral() && precision >= 0) return Value::number(input.as_double());
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_double() * scale;
  if (!std::isfinite(scaled)) fail(ErrorCode::kInvalidArgument, "round: the number is too big");
  const double rounded = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return Value::number((rounded == 0 ? 0.0 : rounded) / scale);
}

Value filter_sum(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  std::vector<Value> path;
  if (bound.has_value(0)) path = attribute_path(runtime, bound.at(0));
  Value total = bound.has(1) ? bound.at(1) : Value::integer(0);
  if (total.is_string())
    fail(ErrorCode::kInvalidArgument, "sum() can't sum strings [use ''.join(seq) instead]");
  const auto iterator = runtime.iterate(input);
  Value item;
  while (iterator->next(runtime, item))
    total = runtime.binary(BinaryOp::kAdd, total, follow_path(runtime, item, path));
  return total;
}

Value filter_filesizeformat(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("filesizeformat", arguments, {"binary"});
  const bool binary = bound.truth(runtime, 0, false);
  Arguments none;
  if (input.is_string() && !parse_float(runtime, input.view())) fail_operand("filesizeformat", input);
  if (!input.is_string() && !input.is_number()) fail_operand("filesizeformat", input);
  const double bytes = filter_float(runtime, input, none).as_double();
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return runtime.string("1 Byte");
  if (bytes < base) return runtime.string(fmt::format("{} Bytes", truncated(bytes)));
  double unit = base;
  const std::string_view letters = binary ? "KMGTPEZY" : "kMGTPEZY";
  for (std::size_t i = 0;; ++i) {
    unit *= base;
    if (bytes < unit || i + 1 == letters.size())
      return runtime.string(fmt::format("{} {}{}", float_digits(base * bytes / unit, 'f', 1, false),
                                        letters[i], binary ? "iB" : "B"));
  }
}

struct Entry {
  std::string_view name;
  FilterBody body;
};
constexpr Entry kFilters[] = {
    {"abs", filter_abs},     {"filesizeformat", filter_filesizeformat},
    {"float", filter_float}, {"int", filter_int},
    {"round", filter_round}, {"sum", filter_sum},
};

}  // namespace

FilterBody find_number_filter(std::string_view name) {
  for (const Entry& entry : kFilters)
    if (entry.name == name) return entry.body;
  return nullptr;
}

}  // namespace triptych::jinja

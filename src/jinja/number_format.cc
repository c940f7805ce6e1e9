// The format mini-language (PEP 3101) for numbers and text. std::to_chars is used for its exactness and
// because, unlike printf, it does not depend on the process's locale.
#include "jinja/number_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "jinja/runtime.h"
#include "unicode/utf8.h"

namespace triptych::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > = ^
  char sign = '\0';   // + - or space
  bool alternate = false;
  bool zero = false;
  std::int64_t width = 0;
  char grouping = '\0';
  int precision = -1;
  char type = '\0';
};

[[noreturn]] void fail_spec(std::string_view spec) {
  fail(ErrorCode::kInvalidArgument, "Invalid format specifier '{}'", spec.substr(0, 60));
}

bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

std::int64_t read_digits(std::string_view spec, std::size_t& pos) {
  std::int64_t n = 0;
  while (pos < spec.size() && spec[pos] >= '0' && spec[pos] <= '9') {
    n = n * 10 + (spec[pos++] - '0');
    if (n > 1'000'000) fail(ErrorCode::kInvalidArgument, "Too many decimal digits in format string");
  }
  return n;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  std::size_t pos = 0;
  bool has_fill = false;
  if (!text.empty()) {
    std::size_t second = 0;
    utf8::next_bounded(text, second);
    if (second < text.size() && is_align(text[second])) {
      spec.fill = std::string(text.substr(0, second));
      spec.align = text[second];
      has_fill = true;
      pos = second + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      pos = 1;
    }
  }
  const auto peek = [&] { return pos < text.size() ? text[pos] : '\0'; };
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text[pos++];
  if (peek() == '#') spec.alternate = true, ++pos;
  if (peek() == '0') {
    spec.zero = true;
    ++pos;
    if (!has_fill) spec.fill = "0";
  }
  spec.width = read_digits(text, pos);
  if (peek() == ',' || peek() == '_') spec.grouping = text[pos++];
  if (peek() == '.') {
    ++pos;
    const std::size_t begin = pos;
    spec.precision = static_cast<int>(read_digits(text, pos));
    if (pos == begin) fail(ErrorCode::kInvalidArgument, "Format specifier missing precision");
  }
  if (pos < text.size()) spec.type = text[pos++];
  if (spec.type == 'n' && spec.grouping != '\0')
    fail(ErrorCode::kInvalidArgument, "Cannot specify '{}' with 'n'.", spec.grouping);
  if (pos != text.size()) fail_spec(text);
  return spec;
}

/// Inserts the separator every `every` digits before the first non-digit.
std::string group(const std::string& digits, char separator, std::size_t every) {
  const bool is_hex = every == 4;  // digits of base 2, 8 and 16 go in fours
  const std::size_t whole = is_hex ? digits.size() : std::min(digits.find_first_of(".eE%"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i != 0 && (whole - i) % every == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out + digits.substr(whole);
}

MarkedString padded(Runtime& runtime, const MarkedString& text, const Spec& spec, char default_align) {
  const auto length = static_cast<std::int64_t>(utf8::count(text.view()));
  const std::int64_t missing = std::max<std::int64_t>(0, spec.width - length);
  const char align = spec.align == '\0' ? default_align : spec.align;
  const std::int64_t left = align == '>' || align == '=' ? missing : align == '^' ? missing / 2 : 0;
  MarkedString out(repeated(runtime, spec.fill, left));
  out.append(text);
  out.append(repeated(runtime, spec.fill, missing - left));
  return out;
}

/// Sign, prefix, digits, with zeros or fill between sign and digits where asked.
MarkedString number(Runtime& runtime, const Spec& spec, bool negative, const std::string& prefix,
                    std::string digits, std::size_t group_size) {
  const std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  const char align = spec.align == '\0' ? (spec.zero ? '=' : '>') : spec.align;
  if (align == '=') {
    const auto used = static_cast<std::int64_t>(sign.size() + prefix.size());
    if (spec.grouping != '\0' && spec.fill == "0") {
      // Leading zeros are grouped too.
      std::string grouped = group(digits, spec.grouping, group_size);
      while (used + static_cast<std::int64_t>(grouped.size()) < spec.width) {
        digits.insert(0, "0");
        grouped = group(digits, spec.grouping, group_size);
        runtime.budget().charge_text(grouped.size());
      }
      return MarkedString(sign + prefix + grouped);
    }
    if (spec.grouping != '\0') digits = group(digits, spec.grouping, group_size);
    const std::int64_t missing = spec.width - used - static_cast<std::int64_t>(digits.size());
    return MarkedString(sign + prefix + repeated(runtime, spec.fill, missing) + digits);
  }
  if (spec.grouping != '\0') digits = group(digits, spec.grouping, group_size);
  return padded(runtime, MarkedString(sign + prefix + digits), spec, '>');
}

MarkedString format_integer(Runtime& runtime, std::int64_t value, const Spec& spec) {
  if (spec.precision >= 0)
    fail(ErrorCode::kInvalidArgument, "Precision not allowed in integer format specifier");
  const char type = spec.type == '\0' || spec.type == 'n' ? 'd' : spec.type;
  if (type == 'c') {
    if (spec.sign != '\0' || spec.alternate || spec.grouping != '\0')
      fail(ErrorCode::kInvalidArgument,
           "Sign, '#' and grouping not allowed with integer format specifier 'c'");
    if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
      fail(ErrorCode::kInvalidArgument, "%c arg not in range(0x110000)");
    std::string text;
    utf8::append(text, static_cast<char32_t>(value));
    return padded(runtime, MarkedString(text), spec, '>');
  }
  const unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'd' ? 10 : 16;
  if (spec.grouping == ',' && base != 10)
    fail(ErrorCode::kInvalidArgument, "Cannot specify ',' with '{}'.", type);
  const auto magnitude =
      value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  const std::string prefix = spec.alternate && base != 10 ? std::string{'0', type} : "";
  return number(runtime, spec, value < 0, prefix, integer_digits(magnitude, base, type == 'X'),
                base == 10 ? 3 : 4);
}

MarkedString format_float(Runtime& runtime, double value, const Spec& spec) {
  if (spec.precision > kMaxPrecision) fail(ErrorCode::kInvalidArgument, "precision too big");
  const bool negative = std::signbit(value) && !std::isnan(value);
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (spec.type == 'E' || spec.type == 'F' || spec.type == 'G')
      std::transform(digits.begin(), digits.end(), digits.begin(),
                     [](char c) { return static_cast<char>(c - 32); });
    if (spec.type == '%') digits += '%';
  } else if (spec.type == '\0' && spec.precision < 0) {
    digits = float_text(std::fabs(value));
    if (spec.alternate && digits.find('.') == std::string::npos)
      digits.insert(std::min(digits.find('e'), digits.size()), ".");
  } else if (spec.type == '\0') {
    // Like g, but with a digit behind the point and exponents only from 10^precision on.
    digits = float_digits(value, 'g', std::max(spec.precision, 1), spec.alternate);
    if (digits.find_first_of(".e") == std::string::npos) {
      if (static_cast<int>(digits.size()) >= std::max(spec.precision, 1)) {
        digits = float_digits(value, 'e', std::max(spec.precision, 1) - 1, spec.alternate);
        if (!spec.alternate) {
          const std::size_t mark = digits.find('e');
          std::size_t end = mark;
          if (digits.find('.') < mark)
            while (digits[end - 1] == '0' || digits[end - 1] == '.') {
              if (digits[--end] == '.') break;
            }
          digits.erase(end, mark - end);
        }
      } else {
        digits += ".0";
      }
    }
  } else if (spec.type == '%') {
    digits = float_digits(value * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) + "%";
  } else {
    digits = float_digits(value, spec.type == 'n' ? 'g' : spec.type, spec.precision < 0 ? 6 : spec.precision,
                          spec.alternate);
  }
  return number(runtime, spec, negative, "", std::move(digits), 3);
}

MarkedString format_text(Runtime& runtime, const MarkedString& text, const Spec& spec) {
  if (spec.sign != '\0') fail(ErrorCode::kInvalidArgument, "Sign not allowed in string format specifier");
  if (spec.alternate)
    fail(ErrorCode::kInvalidArgument, "Alternate form (#) not allowed in string format specifier");
  if (spec.align == '=')
    fail(ErrorCode::kInvalidArgument, "'=' alignment not allowed in string format specifier");
  if (spec.grouping != '\0')
    fail(ErrorCode::kInvalidArgument, "Cannot specify '{}' with 's'.", spec.grouping);
  MarkedString cut = text;
  if (spec.precision >= 0) {
    std::size_t pos = 0;
    for (int i = 0; i < spec.precision && pos < text.size(); ++i) utf8::next_bounded(text.view(), pos);
    cut.truncate(pos);
  }
  return padded(runtime, cut, spec, '<');
}

}  // namespace

std::string integer_digits(std::uint64_t magnitude, unsigned base, bool upper) {
  char buffer[72];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), magnitude, static_cast<int>(base));
  std::string out(buffer, result.ptr);
  if (upper)
    for (char& c : out)
      if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
  return out;
}

std::string float_digits(double value, char type, int precision, bool alternate) {
  value = std::fabs(value);
  const char lower = static_cast<char>(type | 0x20);
  if (lower == 'g' && precision == 0) precision = 1;
  std::array<char, 400 + kMaxPrecision> buffer;
  const auto format = lower == 'e'   ? std::chars_format::scientific
                      : lower == 'f' ? std::chars_format::fixed
                                     : std::chars_format::general;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, precision);
  std::string out(buffer.data(), result.ptr);
  if (alternate) {
    const std::size_t mark = std::min(out.find('e'), out.size());
    const auto digits =
        static_cast<std::size_t>(std::count_if(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(mark),
                                               [](char c) { return c >= '0' && c <= '9'; }));
    std::string tail = out.find('.') == std::string::npos ? "." : "";
    // '#' with g also keeps the zeros at the end.
    if (lower == 'g') {
      const std::size_t first = out.find_first_not_of("0.");
      const std::size_t leading =
          first == std::string::npos || first > mark
              ? 1
              : static_cast<std::size_t>(
                    std::count(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(first), '0'));
      const std::size_t significant = first == std::string::npos || first > mark ? 1 : digits - leading;
      if (significant < static_cast<std::size_t>(precision))
        tail += std::string(static_cast<std::size_t>(precision) - significant, '0');
    }
    out.insert(mark, tail);
  }
  if (type != lower)
    for (char& c : out)
      if (c == 'e') c = 'E';
  return out;
}

double round_decimal(double value, int digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits >= 0) {
    const std::string text = float_digits(value, 'f', digits, false);
    double out = 0;
    std::from_chars(text.data(), text.data() + text.size(), out);
    return std::copysign(out, value);
  }
  const double scale = std::pow(10.0, -digits);
  const double scaled = std::fabs(value) / scale;
  double rounded = std::nearbyint(scaled);
  return std::copysign(rounded * scale, value);
}

MarkedString format_value(Runtime& runtime, const Value& value, const MarkedString& spec_text) {
  if (spec_text.empty()) return runtime.str(value);
  switch (value.type()) {
    case Type::kString: {
      const Spec spec = parse_spec(spec_text.view());
      if (spec.type != '\0' && spec.type != 's')
        fail(ErrorCode::kInvalidArgument, "Unknown format code '{}' for object of type 'str'", spec.type);
      return format_text(runtime, value.text(), spec);
    }
    case Type::kBool:
    case Type::kInt:
    case Type::kFloat: {
      const Spec spec = parse_spec(spec_text.view());
      const bool integer_type =
          spec.type == '\0' || std::string_view("bcdoxXn").find(spec.type) != std::string_view::npos;
      const bool float_type =
          spec.type == '\0' || std::string_view("eEfFgGn%").find(spec.type) != std::string_view::npos;
      if (value.is_integral() && integer_type) return format_integer(runtime, value.as_int(), spec);
      if (float_type) return format_float(runtime, value.as_double(), spec);
      fail(ErrorCode::kInvalidArgument, "Unknown format code '{}' for object of type '{}'", spec.type,
           type_name(value));
    }
    default:
      fail(ErrorCode::kInvalidArgument, "unsupported format string passed to {}.__format__",
           type_name(value));
  }
}

}  // namespace triptych::jinja

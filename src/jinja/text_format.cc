// "..." % values and "...".format(values).
#include <algorithm>
#include <cmath>

#include "jinja/number_format.h"
#include "jinja/runtime.h"
#include "unicode/utf8.h"

namespace triptych::jinja {
namespace {

/// Non-ASCII characters of a repr as escapes, for %a and !a.
MarkedString ascii_only(const MarkedString& text) {
  MarkedMapper out(text);
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t begin = pos;
    const auto code = static_cast<std::uint32_t>(utf8::next_bounded(text.view(), pos));
    out.append(code < 0x80      ? text.view().substr(begin, 1)
               : code < 0x100   ? std::string_view(fmt::format("\\x{:02x}", code))
               : code < 0x10000 ? std::string_view(fmt::format("\\u{:04x}", code))
                                : std::string_view(fmt::format("\\U{:08x}", code)),
               begin);
  }
  return out.take();
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const MarkedString& format, const Value& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments) {}

  MarkedString run() {
    const std::string_view view = format_.view();
    while (pos_ < view.size()) {
      const std::size_t percent = std::min(view.find('%', pos_), view.size());
      out_.append(format_, pos_, percent);
      pos_ = percent;
      if (percent == view.size()) break;
      ++pos_;
      directive();
      runtime_.budget().charge(1);
      runtime_.budget().check_text_size(out_.size());
    }
    const bool is_mapping_like =
        arguments_.is_dict() || arguments_.is(Type::kList) || arguments_.is_undefined();
    if (!is_mapping_like && used_ < count())
      fail(ErrorCode::kInvalidArgument, "not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  std::size_t count() const { return arguments_.is(Type::kTuple) ? arguments_.items().size() : 1; }
  char peek() const { return pos_ < format_.size() ? format_.view()[pos_] : '\0'; }

  Value next_argument() {
    if (keyed_) return keyed_value_;
    if (used_ >= count()) fail(ErrorCode::kInvalidArgument, "not enough arguments for format string");
    const std::size_t i = used_++;
    return arguments_.is(Type::kTuple) ? arguments_.items()[i] : arguments_;
  }

  std::int64_t read_width() {
    if (peek() == '*') {
      ++pos_;
      return as_index(next_argument(), "* wants int");
    }
    std::int64_t n = 0;
    while (peek() >= '0' && peek() <= '9') {
      n = n * 10 + (peek() - '0');
      ++pos_;
      if (n > 1'000'000) fail(ErrorCode::kInvalidArgument, "width too big");
    }
    return n;
  }

  void read_key() {
    keyed_ = false;
    if (peek() != '(') return;
    if (!arguments_.is_dict()) fail(ErrorCode::kInvalidArgument, "format requires a mapping");
    std::size_t end = pos_ + 1;
    for (int level = 1; end < format_.size(); ++end) {
      if (format_.view()[end] == '(') ++level;
      if (format_.view()[end] == ')' && --level == 0) break;
    }
    if (end >= format_.size()) fail(ErrorCode::kInvalidArgument, "incomplete format key");
    const std::string_view key = format_.view().substr(pos_ + 1, end - pos_ - 1);
    const Value* value = arguments_.dict().find(key);
    if (value == nullptr) fail(ErrorCode::kInvalidArgument, "no key '{}' to format", key);
    keyed_ = true;
    keyed_value_ = *value;
    pos_ = end + 1;
  }

  void directive() {
    read_key();
    left_ = zero_ = plus_ = space_ = alternate_ = false;
    for (;; ++pos_) {
      if (peek() == '-') {
        left_ = true;
      } else if (peek() == '0') {
        zero_ = true;
      } else if (peek() == '+') {
        plus_ = true;
      } else if (peek() == ' ') {
        space_ = true;
      } else if (peek() == '#') {
        alternate_ = true;
      } else {
        break;
      }
    }
    width_ = read_width();
    if (width_ < 0) {
      left_ = true;
      width_ = -std::max<std::int64_t>(width_, -1'000'001);
    }
    precision_ = -1;
    if (peek() == '.') {
      ++pos_;
      precision_ = std::max<std::int64_t>(0, read_width());
    }
    if (peek() == 'h' || peek() == 'l' || peek() == 'L') ++pos_;
    if (pos_ >= format_.size()) fail(ErrorCode::kInvalidArgument, "incomplete format");
    const char type = format_.view()[pos_++];
    convert(type);
  }

  void convert(char type) {
    switch (type) {
      case '%':
        return pad(MarkedString("%"));
      case 's':
        return text(runtime_.str(next_argument()));
      case 'r':
        return text(runtime_.repr(next_argument()));
      case 'a':
        return text(ascii_only(runtime_.repr(next_argument())));
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return integer(type, next_argument());
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return real(type, next_argument());
      case 'c':
        return character(next_argument());
      default:
        fail(ErrorCode::kInvalidArgument, "unsupported format character (0x{:x})",
             static_cast<unsigned>(static_cast<unsigned char>(type)));
    }
  }

  void text(MarkedString value) {
    if (precision_ >= 0) {
      std::size_t pos = 0;
      for (std::int64_t i = 0; i < precision_ && pos < value.size(); ++i)
        utf8::next_bounded(value.view(), pos);
      value.truncate(pos);
    }
    pad(value);
  }

  void pad(const MarkedString& value) {
    const std::int64_t missing = width_ - static_cast<std::int64_t>(utf8::count(value.view()));
    if (!left_) out_.append(repeated(runtime_, " ", missing));
    out_.append(value);
    if (left_) out_.append(repeated(runtime_, " ", missing));
  }

  void signed_number(bool negative, const std::string& prefix, std::string digits) {
    const std::string head = (negative ? "-" : plus_ ? "+" : space_ ? " " : "") + prefix;
    const std::int64_t missing = width_ - static_cast<std::int64_t>(head.size() + digits.size());
    if (zero_ && !left_) digits.insert(0, repeated(runtime_, "0", missing));
    pad(MarkedString(head + digits));
  }

  void integer(char type, const Value& value) {
    if (!value.is_number() || (value.is(Type::kFloat) && type != 'd' && type != 'i' && type != 'u'))
      fail(ErrorCode::kInvalidArgument, "%{} format: a number is required, not {}", type, type_name(value));
    std::int64_t n = value.as_int();
    if (value.is(Type::kFloat)) {
      const double d = value.as_double();
      if (!(std::fabs(d) < 9.2e18))
        fail(ErrorCode::kInvalidArgument, "cannot convert float to a 64-bit integer");
      n = static_cast<std::int64_t>(d);
    }
    const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : 10;
    const auto magnitude = n < 0 ? 0 - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n);
    std::string digits = integer_digits(magnitude, base, type == 'X');
    digits.insert(0, repeated(runtime_, "0", precision_ - static_cast<std::int64_t>(digits.size())));
    signed_number(n < 0, alternate_ && base != 10 ? std::string{'0', type} : "", std::move(digits));
  }

  void real(char type, const Value& value) {
    if (!value.is_number())
      fail(ErrorCode::kInvalidArgument, "must be real number, not {}", type_name(value));
    if (precision_ > kMaxPrecision) fail(ErrorCode::kInvalidArgument, "precision too big");
    const double d = value.as_double();
    const bool upper = type < 'a';
    std::string digits =
        std::isnan(d) ? (upper ? "NAN" : "nan")
        : std::isinf(d)
            ? (upper ? "INF" : "inf")
            : float_digits(d, type, precision_ < 0 ? 6 : static_cast<int>(precision_), alternate_);
    signed_number(std::signbit(d) && !std::isnan(d), "", std::move(digits));
  }

  void character(const Value& value) {
    if (value.is_string() && value.string().length == 1) return pad(value.text());
    if (!value.is_integral()) fail(ErrorCode::kInvalidArgument, "%c requires int or char");
    const std::int64_t code = value.as_int();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      fail(ErrorCode::kInvalidArgument, "%c arg not in range(0x110000)");
    std::string out;
    utf8::append(out, static_cast<char32_t>(code));
    pad(MarkedString(out));
  }

  Runtime& runtime_;
  const MarkedString& format_;
  const Value& arguments_;
  MarkedString out_;
  std::size_t pos_ = 0;
  std::size_t used_ = 0;
  bool keyed_ = false;
  Value keyed_value_;
  bool left_ = false, zero_ = false, plus_ = false, space_ = false, alternate_ = false;
  std::int64_t width_ = 0;
  std::int64_t precision_ = -1;
};

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, Arguments& arguments) : runtime_(runtime), arguments_(arguments) {}

  MarkedString run(const MarkedString& format, int depth) {
    if (depth > 2) fail(ErrorCode::kInvalidArgument, "Max string recursion exceeded");
    const std::string_view view = format.view();
    MarkedString out;
    for (std::size_t pos = 0; pos < view.size();) {
      const std::size_t brace = std::min(view.find_first_of("{}", pos), view.size());
      out.append(format, pos, brace);
      if (brace == view.size()) break;
      const char c = view[brace];
      if (brace + 1 < view.size() && view[brace + 1] == c) {
        out.append(format, brace, brace + 1);
        pos = brace + 2;
        continue;
      }
      if (c == '}') fail(ErrorCode::kInvalidArgument, "Single '}}' encountered in format string");
      std::size_t end = brace + 1;
      int level = 1;
      for (; end < view.size(); ++end) {
        if (view[end] == '{') ++level;
        if (view[end] == '}' && --level == 0) break;
      }
      if (level != 0) fail(ErrorCode::kInvalidArgument, "expected '}}' before end of string");
      out.append(field(format.slice(brace + 1, end), depth));
      runtime_.budget().charge(1);
      runtime_.budget().check_text_size(out.size());
      pos = end + 1;
    }
    return out;
  }

 private:
  /// name [!conversion] [:spec]
  MarkedString field(const MarkedString& text, int depth) {
    const std::string_view view = text.view();
    std::size_t end = 0;
    for (bool in_index = false; end < view.size(); ++end) {
      if (view[end] == '[') in_index = true;
      if (view[end] == ']') in_index = false;
      if (!in_index && (view[end] == '!' || view[end] == ':')) break;
    }
    Value value = lookup(view.substr(0, end));
    std::size_t pos = end;
    if (pos < view.size() && view[pos] == '!') {
      const char conversion = pos + 1 < view.size() ? view[pos + 1] : '\0';
      if (conversion == 'r') {
        value = runtime_.string(runtime_.repr(value));
      } else if (conversion == 's') {
        value = runtime_.string(runtime_.str(value));
      } else if (conversion == 'a') {
        value = runtime_.string(ascii_only(runtime_.repr(value)));
      } else {
        fail(ErrorCode::kInvalidArgument, "Unknown conversion specifier in format string");
      }
      pos += 2;
      if (pos < view.size() && view[pos] != ':')
        fail(ErrorCode::kInvalidArgument, "expected ':' after conversion specifier");
    }
    const MarkedString spec =
        pos < view.size() ? run(text.slice(pos + 1, text.size()), depth + 1) : MarkedString();
    return format_value(runtime_, value, spec);
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 10 &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  }

  Value lookup(std::string_view name) {
    std::size_t pos = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, pos));
    while (pos < name.size()) {
      if (name[pos] == '.') {
        const std::size_t end = std::min(name.find_first_of(".[", pos + 1), name.size());
        const std::string_view part = name.substr(pos + 1, end - pos - 1);
        if (part.empty()) fail(ErrorCode::kInvalidArgument, "Empty attribute in format string");
        value = runtime_.get_attribute(value, part);
        pos = end;
      } else if (name[pos] == '[') {
        const std::size_t end = name.find(']', pos);
        if (end == std::string_view::npos) fail(ErrorCode::kInvalidArgument, "Missing ']' in format string");
        const std::string_view part = name.substr(pos + 1, end - pos - 1);
        if (part.empty()) fail(ErrorCode::kInvalidArgument, "Empty attribute in format string");
        const Value key = is_number(part) ? Value::integer(std::stoll(std::string(part)))
                                          : runtime_.string(std::string(part));
        value = runtime_.get_item(value, key);
        pos = end + 1;
      } else {
        fail(ErrorCode::kInvalidArgument, "Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value first(std::string_view name) {
    if (name.empty() || is_number(name)) {
      if (name.empty() ? manual_ : next_ > 0)
        fail(ErrorCode::kInvalidArgument, "cannot mix automatic and manual field numbering");
      if (!name.empty()) manual_ = true;
      const std::size_t index =
          name.empty() ? next_++ : static_cast<std::size_t>(std::stoll(std::string(name)));
      if (index >= arguments_.positional.size())
        fail(ErrorCode::kInvalidArgument, "Replacement index {} out of range for positional args tuple",
             index);
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named)
      if (key == name) return value;
    fail(ErrorCode::kInvalidArgument, "no value named '{}' to format", name);
  }

  Runtime& runtime_;
  Arguments& arguments_;
  std::size_t next_ = 0;
  bool manual_ = false;
};

}  // namespace

MarkedString format_percent(Runtime& runtime, const MarkedString& format, const Value& arguments) {
  return PercentFormatter(runtime, format, arguments).run();
}

MarkedString format_braces(Runtime& runtime, const MarkedString& format, Arguments& arguments) {
  return BraceFormatter(runtime, arguments).run(format, 0);
}

}  // namespace triptych::jinja

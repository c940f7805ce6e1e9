// str() and repr() of values, as Python prints them.
#include <charconv>
#include <cmath>

#include "jinja/runtime.h"
#include "unicode/python.h"
#include "unicode/utf8.h"

namespace triptych::jinja {
namespace {

/// repr() of a str: quotes, escapes, marks kept.
void append_quoted(Runtime& runtime, MarkedString& out, const MarkedString& text) {
  runtime.budget().charge_characters(text.size());
  const std::string_view view = text.view();
  const bool has_single = view.find('\'') != std::string_view::npos;
  const char quote = has_single && view.find('"') == std::string_view::npos ? '"' : '\'';
  MarkedMapper mapper(text);
  for (std::size_t pos = 0; pos < view.size();) {
    const std::size_t begin = pos;
    const char32_t c = utf8::next_bounded(view, pos);
    const auto code = static_cast<std::uint32_t>(c);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      mapper.append(std::string{'\\', static_cast<char>(c)}, begin);
    } else if (c == '\n') {
      mapper.append("\\n", begin);
    } else if (c == '\r') {
      mapper.append("\\r", begin);
    } else if (c == '\t') {
      mapper.append("\\t", begin);
    } else if (python::is_printable(c)) {
      mapper.append(view.substr(begin, pos - begin), begin);
    } else if (c < 0x100) {
      mapper.append(fmt::format("\\x{:02x}", code), begin);
    } else if (c < 0x10000) {
      mapper.append(fmt::format("\\u{:04x}", code), begin);
    } else {
      mapper.append(fmt::format("\\U{:08x}", code), begin);
    }
  }
  const std::string edge(1, quote);
  out.append(edge);
  out.append(mapper.take());
  out.append(edge);
}

class Writer {
 public:
  explicit Writer(Runtime& runtime) : runtime_(runtime) {}

  void repr(const Value& value) {
    const DepthGuard guard(runtime_.budget());
    runtime_.budget().charge(1);
    switch (value.type()) {
      case Type::kUndefined:
        append("Undefined");
        break;
      case Type::kNone:
        append("None");
        break;
      case Type::kBool:
        append(value.as_bool() ? "True" : "False");
        break;
      case Type::kInt:
        append(std::to_string(value.as_int()));
        break;
      case Type::kFloat:
        append(float_text(value.as_double()));
        break;
      case Type::kString:
        if (value.string().is_markup) append("Markup(");
        append_quoted(runtime_, out_, value.text());
        if (value.string().is_markup) append(")");
        break;
      case Type::kList:
        items("[", value.items(), "]");
        break;
      case Type::kTuple:
        items("(", value.items(), value.items().size() == 1 ? ",)" : ")");
        break;
      case Type::kDict:
        dict(value.dict());
        break;
      case Type::kDictView:
        append(std::string(type_name(value)) + "(");
        items("[", runtime_.to_vector(value), "]");
        append(")");
        break;
      case Type::kRange: {
        const auto& range = value.as<RangeObject>();
        append(fmt::format("range({}, {}{})", range.start, range.stop,
                           range.step == 1 ? "" : fmt::format(", {}", range.step)));
        break;
      }
      case Type::kNamespace:
        append("<Namespace ");
        dict(value.as<NamespaceObject>().attributes);
        append(">");
        break;
      case Type::kMacro: {
        const auto name = runtime_.find_attribute(value, "name");
        append(name && name->is_string() ? fmt::format("<Macro '{}'>", name->view()) : "<Macro anonymous>");
        break;
      }
      case Type::kLoop: {
        const auto index = runtime_.find_attribute(value, "index");
        append(fmt::format("<LoopContext {}/{}>", index ? index->as_int() : 0, *runtime_.length(value)));
        break;
      }
      default:
        append(fmt::format("<{}>", type_name(value)));
    }
    runtime_.budget().check_text_size(out_.size());
  }

  MarkedString take() { return std::move(out_); }

 private:
  void append(std::string_view text) { out_.append(text); }

  void items(std::string_view open, const std::vector<Value>& values, std::string_view close) {
    append(open);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i != 0) append(", ");
      repr(values[i]);
    }
    append(close);
  }

  void dict(const DictObject& object) {
    append("{");
    bool is_first = true;
    for (const auto& [key, value] : object.entries()) {
      if (!is_first) append(", ");
      is_first = false;
      repr(key);
      append(": ");
      repr(value);
    }
    append("}");
  }

  Runtime& runtime_;
  MarkedString out_;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<std::size_t>(result.ptr - buffer));  // [-]d[.ddd]e[+-]dd
  const std::size_t mark = text.find('e');
  int exponent = 0;
  const std::size_t digits_at = mark + (text[mark + 1] == '+' ? 2u : 1u);
  std::from_chars(text.data() + digits_at, text.data() + text.size(), exponent);
  std::string out = text[0] == '-' ? "-" : "";
  std::string digits;
  for (const char c : text.substr(0, mark))
    if (c >= '0' && c <= '9') digits.push_back(c);
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

bool Runtime::truth(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
    case Type::kInt:
      return value.as_int() != 0;
    case Type::kFloat:
      return value.as_double() != 0;
    default: {
      const auto n = length(value);
      return !n || *n != 0;
    }
  }
}

MarkedString Runtime::str(const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return {};
  return repr(value);
}

MarkedString Runtime::repr(const Value& value) {
  Writer writer(*this);
  writer.repr(value);
  return writer.take();
}

}  // namespace triptych::jinja

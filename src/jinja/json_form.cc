// tojson: json.dumps as transformers calls it. Text from the conversation keeps its marks inside the JSON.
#include <algorithm>
#include <cmath>

#include "jinja/runtime.h"
#include "unicode/utf8.h"

namespace triptych::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value) {
    const DepthGuard guard(runtime_.budget());
    runtime_.budget().charge(1);
    switch (value.type()) {
      case Type::kNone:
        append("null");
        break;
      case Type::kBool:
        append(value.as_bool() ? "true" : "false");
        break;
      case Type::kInt:
        append(std::to_string(value.as_int()));
        break;
      case Type::kFloat:
        append(number(value.as_double()));
        break;
      case Type::kString:
        text(value.text());
        break;
      case Type::kList:
      case Type::kTuple:
        list(value.items());
        break;
      case Type::kDict:
        dict(value.dict());
        break;
      default:
        fail(ErrorCode::kInvalidArgument, "Object of type {} is not JSON serializable", type_name(value));
    }
    runtime_.budget().check_text_size(out_.size());
  }

  MarkedString take() { return std::move(out_); }

 private:
  void append(std::string_view part) { out_.append(part); }

  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_text(d);
  }

  void newline() {
    if (!style_.indent) return;
    append("\n");
    for (int i = 0; i < level_; ++i) append(*style_.indent);
    runtime_.budget().check_text_size(out_.size());
  }

  /// The separator between items; with an indent, json.dumps drops its trailing space unless one was given.
  void separate(bool& is_first) {
    if (!is_first) append(style_.item_separator);
    is_first = false;
    newline();
  }

  void list(const std::vector<Value>& items) {
    if (items.empty()) return append("[]");
    append("[");
    ++level_;
    bool is_first = true;
    for (const Value& item : items) {
      separate(is_first);
      write(item);
    }
    --level_;
    newline();
    append("]");
  }

  void dict(const DictObject& object) {
    if (object.size() == 0) return append("{}");
    std::vector<std::pair<Value, Value>> entries(object.entries());
    if (style_.sort_keys) runtime_.sort(entries, /*reverse=*/false);
    append("{");
    ++level_;
    bool is_first = true;
    for (const auto& [key, value] : entries) {
      separate(is_first);
      write_key(key);
      append(style_.key_separator);
      write(value);
    }
    --level_;
    newline();
    append("}");
  }

  void write_key(const Value& key) {
    switch (key.type()) {
      case Type::kString:
        return text(key.text());
      case Type::kNone:
        return append("\"null\"");
      case Type::kBool:
        return append(key.as_bool() ? "\"true\"" : "\"false\"");
      case Type::kInt:
        return append(fmt::format("\"{}\"", key.as_int()));
      case Type::kFloat:
        return append("\"" + number(key.as_double()) + "\"");
      default:
        fail(ErrorCode::kInvalidArgument, "keys must be str, int, float, bool or None, not {}",
             type_name(key));
    }
  }

  void text(const MarkedString& source) {
    runtime_.budget().charge_characters(source.size());
    MarkedMapper mapper(source);
    const std::string_view view = source.view();
    for (std::size_t pos = 0; pos < view.size();) {
      const std::size_t begin = pos;
      const char32_t c = utf8::next_bounded(view, pos);
      const auto code = static_cast<std::uint32_t>(c);
      if (c == '"') {
        mapper.append("\\\"", begin);
      } else if (c == '\\') {
        mapper.append("\\\\", begin);
      } else if (c == '\n') {
        mapper.append("\\n", begin);
      } else if (c == '\r') {
        mapper.append("\\r", begin);
      } else if (c == '\t') {
        mapper.append("\\t", begin);
      } else if (c == '\f') {
        mapper.append("\\f", begin);
      } else if (c == '\b') {
        mapper.append("\\b", begin);
      } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F && c < 0x10000)) {
        mapper.append(fmt::format("\\u{:04x}", code), begin);
      } else if (style_.ensure_ascii && c >= 0x10000) {
        mapper.append(
            fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF)),
            begin);
      } else {
        mapper.append(view.substr(begin, pos - begin), begin);
      }
    }
    append("\"");
    out_.append(mapper.take());
    append("\"");
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  MarkedString out_;
  int level_ = 0;
};

}  // namespace

MarkedString Runtime::json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(*this, style);
  writer.write(value);
  return writer.take();
}

}  // namespace triptych::jinja

// What built-in functions see of the interpreter: it makes values, converts, compares, iterates and calls,
// and charges all of it to the budget. Semantics are Python's; sources: the Python language reference,
// jinja2 3.1 runtime.py and sandbox.py (behaviour, not code).
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/value.h"

namespace triptych::jinja {

/// raise_exception of a template: the text is the template's own.
class RaisedByTemplate : public Error {
 public:
  explicit RaisedByTemplate(const std::string& text) : Error(ErrorCode::kInvalidArgument, text) {}
};

/// How tojson writes, as json.dumps takes it.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // text of one level; absent: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

class Runtime {
 public:
  Runtime(const Limits& limits, std::tm now) : budget_(limits), now_(now) {}
  virtual ~Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Budget& budget() noexcept { return budget_; }
  const std::tm& now() const noexcept { return now_; }

  // ---- Making values.
  Value string(MarkedString text, bool is_markup = false);
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value undefined(std::string message);
  Value function(std::string name, FunctionObject::Body body, Value self = Value());
  Value iterator(std::shared_ptr<IteratorObject> object);
  Value object(Type type, std::shared_ptr<Object> object, std::size_t bytes);
  /// A namespace; kept by the runtime so that cycles through it end with the render.
  Value make_namespace(std::shared_ptr<NamespaceObject> object);
  /// Adds to a dict under construction; checks that the key is hashable.
  void dict_set(DictObject& dict, const Value& key, Value value);
  Value dict(std::shared_ptr<DictObject> object);
  const Value* dict_find(const DictObject& dict, const Value& key);

  // ---- Access (access.cc). Missing things are undefined values; access on an undefined value throws.
  Value get_attribute(const Value& object, std::string_view name);
  Value get_item(const Value& object, const Value& key);
  Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  /// Python's attributes alone, without the fall-back to items. Nothing when there is none.
  std::optional<Value> find_attribute(const Value& object, std::string_view name);
  /// len(); nothing when the type has none.
  std::optional<std::int64_t> length(const Value& value);

  // ---- Iteration. Throws when the value cannot be iterated.
  bool is_iterable(const Value& value) const;
  std::shared_ptr<IteratorObject> iterate(const Value& value);
  std::vector<Value> to_vector(const Value& value);

  // ---- Conversion (text_form.cc, json_form.cc).
  bool truth(const Value& value);
  MarkedString str(const Value& value);
  MarkedString repr(const Value& value);
  MarkedString json(const Value& value, const JsonStyle& style);

  // ---- Operators (operators.cc, compare.cc).
  Value binary(BinaryOp op, const Value& left, const Value& right);
  Value unary(UnaryOp op, const Value& operand);
  bool equal(const Value& left, const Value& right);
  bool less(const Value& left, const Value& right);
  bool compare(CompareOp op, const Value& left, const Value& right);
  bool contains(const Value& container, const Value& item);
  /// Throws when a dict key or set element may not have this value.
  void check_hashable(const Value& value);
  /// Stable sort with Python's "<".
  void sort(std::vector<std::pair<Value, Value>>& keyed, bool reverse);

  // ---- Calls.
  Value call(const Value& callee, Arguments& arguments);
  Value call_filter(std::string_view name, const Value& input, Arguments& arguments);
  bool call_test(std::string_view name, const Value& input, Arguments& arguments);

 protected:
  /// Macros and loops belong to the evaluator.
  virtual Value call_special(const Value& callee, Arguments& arguments) = 0;
  virtual std::optional<Value> special_attribute(const Value& object, std::string_view name) = 0;
  virtual std::shared_ptr<IteratorObject> iterate_loop(const Value& loop) = 0;
  virtual std::int64_t loop_length(const Value& loop) = 0;
  /// Breaks cycles between namespaces. To be called before the values die.
  void clear_namespaces();

 private:
  Value sequence(Type type, std::vector<Value> items);

  Budget budget_;
  std::tm now_;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
};

// ---- Helpers without state.

/// Throws the undefined value's message ("'x' is undefined"); does nothing for other values.
void require_defined(const Value& value);
/// Throws Error(kInvalidArgument).
[[noreturn]] void fail_operand(std::string_view what, const Value& value);
/// Python's repr of a float: the shortest digits that read back.
std::string float_text(double value);
/// Index as Python's __index__: an int or bool. Throws otherwise.
std::int64_t as_index(const Value& value, std::string_view what);
/// HTML escape of markupsafe, marks kept.
MarkedString escape_html(Runtime& runtime, const MarkedString& text);
/// Walks a fixed list of values.
std::shared_ptr<IteratorObject> iterate_values(std::vector<Value> items);
/// "a.b.0" as jinja2's attribute paths: names and indexes.
std::vector<Value> attribute_path(Runtime& runtime, const Value& attribute);
Value follow_path(Runtime& runtime, Value value, const std::vector<Value>& path,
                  const Value* fallback = nullptr);

/// `count` copies of `unit` as a string (padding).
std::string repeated(Runtime& runtime, std::string_view unit, std::int64_t count);

/// printf-style formatting ("%s" % x) and str.format, text_format.cc.
MarkedString format_percent(Runtime& runtime, const MarkedString& format, const Value& arguments);
MarkedString format_braces(Runtime& runtime, const MarkedString& format, Arguments& arguments);
/// The format mini-language for one value: format(value, spec).
MarkedString format_value(Runtime& runtime, const Value& value, const MarkedString& spec);

}  // namespace triptych::jinja

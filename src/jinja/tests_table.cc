// The tests behind "is". Source: jinja2 3.1 tests.py (behaviour, not code).
#include "jinja/builtins.h"
#include "jinja/text_ops.h"
#include "unicode/python.h"
#include "unicode/utf8.h"

namespace triptych::jinja {
namespace {

template <bool (*Check)(const Value&)>
bool simple(Runtime&, const Value& input, Arguments& arguments) {
  const Bound bound("test", arguments, {});
  return Check(input);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Type::kBool); }
bool is_true(const Value& v) { return v.is(Type::kBool) && v.as_bool(); }
bool is_false(const Value& v) { return v.is(Type::kBool) && !v.as_bool(); }
bool is_integer(const Value& v) { return v.is(Type::kInt); }
bool is_float(const Value& v) { return v.is(Type::kFloat); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is_dict(); }
bool is_escaped(const Value& v) { return v.is_string() && v.string().is_markup; }
bool is_sequence(const Value& v) {
  return v.is_string() || v.is_sequence() || v.is_dict() || v.is(Type::kRange) || v.is_undefined();
}
bool is_callable(const Value& v) {
  return v.is(Type::kFunction) || v.is(Type::kMacro) || v.is(Type::kLoop) || v.is(Type::kJoiner) ||
         v.is_undefined();
}

bool test_iterable(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("iterable", arguments, {});
  return runtime.is_iterable(input);
}

/// value % divisor == rest, by Python's operators (a text on the left formats).
bool has_rest(Runtime& runtime, const Value& input, const Value& divisor, std::int64_t rest) {
  return runtime.equal(runtime.binary(BinaryOp::kMod, input, divisor), Value::integer(rest));
}

bool test_odd(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("odd", arguments, {});
  return has_rest(runtime, input, Value::integer(2), 1);
}
bool test_even(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("even", arguments, {});
  return has_rest(runtime, input, Value::integer(2), 0);
}
bool test_divisibleby(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  return has_rest(runtime, input, bound.at(0), 0);
}

template <CompareOp kOp>
bool test_compare(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("test", arguments, {""}, 1);
  return runtime.compare(kOp, input, bound.at(0));
}

bool test_in(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("in", arguments, {"seq"}, 1);
  return runtime.contains(bound.at(0), input);
}

bool test_sameas(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  const Value& other = bound.at(0);
  if (input.type() != other.type()) return false;
  switch (input.type()) {
    case Type::kNone:
    case Type::kBool:
    case Type::kInt:
      return input.as_int() == other.as_int();
    case Type::kString:
      return input.object() == other.object() || runtime.equal(input, other);
    default:
      return input.object() != nullptr && input.object() == other.object();
  }
}

/// str.islower and str.isupper: some cased characters, all of this case.
bool has_case(Runtime& runtime, const Value& input, bool upper) {
  const MarkedString text = runtime.str(input);
  runtime.budget().charge_characters(text.size());
  bool cased = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const char32_t c = utf8::next_bounded(text.view(), pos);
    if (python::is_title(c) || (upper ? python::is_lower(c) : python::is_upper(c))) return false;
    cased |= upper ? python::is_upper(c) : python::is_lower(c);
  }
  return cased;
}

bool test_lower(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("lower", arguments, {});
  return has_case(runtime, input, false);
}
bool test_upper(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("upper", arguments, {});
  return has_case(runtime, input, true);
}

bool test_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("filter", arguments, {});
  runtime.check_hashable(input);
  return input.is_string() && find_filter(input.view()) != nullptr;
}
bool test_test(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("test", arguments, {});
  runtime.check_hashable(input);
  return input.is_string() && find_test(input.view()) != nullptr;
}

struct Entry {
  std::string_view name;
  TestBody body;
};
constexpr Entry kTests[] = {
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"none", simple<is_none>},
    {"boolean", simple<is_boolean>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"number", simple<is_number>},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"sequence", simple<is_sequence>},
    {"callable", simple<is_callable>},
    {"escaped", simple<is_escaped>},
    {"iterable", test_iterable},
    {"odd", test_odd},
    {"even", test_even},
    {"divisibleby", test_divisibleby},
    {"lower", test_lower},
    {"upper", test_upper},
    {"sameas", test_sameas},
    {"in", test_in},
    {"filter", test_filter},
    {"test", test_test},
    {"==", test_compare<CompareOp::kEq>},
    {"eq", test_compare<CompareOp::kEq>},
    {"equalto", test_compare<CompareOp::kEq>},
    {"!=", test_compare<CompareOp::kNe>},
    {"ne", test_compare<CompareOp::kNe>},
    {">", test_compare<CompareOp::kGt>},
    {"gt", test_compare<CompareOp::kGt>},
    {"greaterthan", test_compare<CompareOp::kGt>},
    {">=", test_compare<CompareOp::kGe>},
    {"ge", test_compare<CompareOp::kGe>},
    {"<", test_compare<CompareOp::kLt>},
    {"lt", test_compare<CompareOp::kLt>},
    {"lessthan", test_compare<CompareOp::kLt>},
    {"<=", test_compare<CompareOp::kLe>},
    {"le", test_compare<CompareOp::kLe>},
};

}  // namespace

TestBody find_test(std::string_view name) {
  for (const Entry& entry : kTests)
    if (entry.name == name) return entry.body;
  return nullptr;
}

}  // namespace triptych::jinja

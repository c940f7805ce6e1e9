// + - * / // % ** and the signs, as Python computes them. Integers are 64 bits; a result beyond that is an
// error.
#include <algorithm>
#include <cmath>
#include <limits>

#include "jinja/runtime.h"

namespace triptych::jinja {
namespace {

[[noreturn]] void fail_overflow() {
  fail(ErrorCode::kInvalidArgument, "integer result does not fit 64 bits");
}
[[noreturn]] void fail_zero() { fail(ErrorCode::kInvalidArgument, "division by zero"); }

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  if (b == 0) fail_zero();
  if (a == std::numeric_limits<std::int64_t>::min() && b == -1) fail_overflow();
  const std::int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

std::int64_t floor_mod(std::int64_t a, std::int64_t b) {
  if (b == 0) fail_zero();
  if (b == -1) return 0;
  const std::int64_t r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}

double float_mod(double a, double b) {
  if (b == 0) fail_zero();
  double r = std::fmod(a, b);
  if (r != 0) {
    if ((b < 0) != (r < 0)) r += b;
  } else {
    r = std::copysign(0.0, b);
  }
  return r;
}

double float_floor_div(double a, double b) {
  if (b == 0) fail_zero();
  const double mod = std::fmod(a, b);
  double div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1.0;
  if (div == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(div);
  return div - floored > 0.5 ? floored + 1.0 : floored;
}

Value int_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail(ErrorCode::kInvalidArgument, "0.0 cannot be raised to a negative power");
    return Value::number(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return Value::integer(result);
}

Value int_binary(BinaryOp op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &out)) fail_overflow();
      return Value::integer(out);
    case BinaryOp::kSub:
      if (__builtin_sub_overflow(a, b, &out)) fail_overflow();
      return Value::integer(out);
    case BinaryOp::kMul:
      if (__builtin_mul_overflow(a, b, &out)) fail_overflow();
      return Value::integer(out);
    case BinaryOp::kDiv:
      if (b == 0) fail_zero();
      return Value::number(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDiv:
      return Value::integer(floor_div(a, b));
    case BinaryOp::kMod:
      return Value::integer(floor_mod(a, b));
    default:
      return int_power(a, b);
  }
}

Value float_power(double a, double b) {
  if (a == 0 && b < 0) fail(ErrorCode::kInvalidArgument, "0.0 cannot be raised to a negative power");
  const double out = std::pow(a, b);
  if (std::isnan(out) && !std::isnan(a) && !std::isnan(b))
    fail(ErrorCode::kInvalidArgument, "complex numbers are not supported");
  if (std::isinf(out) && !std::isinf(a) && !std::isinf(b))
    fail(ErrorCode::kInvalidArgument, "numerical result out of range");
  return Value::number(out);
}

Value float_binary(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::number(a + b);
    case BinaryOp::kSub:
      return Value::number(a - b);
    case BinaryOp::kMul:
      return Value::number(a * b);
    case BinaryOp::kDiv:
      if (b == 0) fail_zero();
      return Value::number(a / b);
    case BinaryOp::kFloorDiv:
      return Value::number(float_floor_div(a, b));
    case BinaryOp::kMod:
      return Value::number(float_mod(a, b));
    default:
      return float_power(a, b);
  }
}

/// Text + text. When one side is safe markup, the other is escaped.
Value add_text(Runtime& runtime, const Value& left, const Value& right) {
  const bool a_safe = left.string().is_markup, b_safe = right.string().is_markup;
  runtime.budget().check_text_size(left.view().size() + right.view().size());
  MarkedString out = b_safe && !a_safe ? escape_html(runtime, left.text()) : left.text();
  if (a_safe && !b_safe) {
    out.append(escape_html(runtime, right.text()));
  } else {
    out.append(right.text());
  }
  return runtime.string(std::move(out), a_safe || b_safe);
}

Value add_sequences(Runtime& runtime, const Value& left, const Value& right) {
  std::vector<Value> items;
  items.reserve(left.items().size() + right.items().size());
  items.insert(items.end(), left.items().begin(), left.items().end());
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is(Type::kList) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

/// Repetition of a text, list or tuple.
Value repeat(Runtime& runtime, const Value& value, std::int64_t count) {
  count = std::max<std::int64_t>(count, 0);
  const Limits& limits = runtime.budget().limits();
  if (value.is_string()) {
    const MarkedString& text = value.text();
    const auto n = static_cast<std::uint64_t>(count);
    if (!text.empty() && n > limits.max_string_bytes / text.size())
      runtime.budget().check_text_size(limits.max_string_bytes + 1);
    MarkedString out;
    if (!text.empty()) {
      runtime.budget().charge(n);
      for (std::uint64_t i = 0; i < n; ++i) out.append(text);
    }
    return runtime.string(std::move(out), value.string().is_markup);
  }
  const auto& items = value.items();
  const auto n = static_cast<std::uint64_t>(items.empty() ? 0 : count);
  if (n != 0 && n > limits.max_memory_bytes / sizeof(Value) / items.size())
    fail(ErrorCode::kInvalidArgument, "the template needs more than {} bytes of memory",
         limits.max_memory_bytes);
  std::vector<Value> out;
  out.reserve(n * items.size());
  for (std::uint64_t i = 0; i < n; ++i) out.insert(out.end(), items.begin(), items.end());
  return value.is(Type::kList) ? runtime.list(std::move(out)) : runtime.tuple(std::move(out));
}

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

}  // namespace

Value Runtime::binary(BinaryOp op, const Value& left, const Value& right) {
  budget_.charge(1);
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return int_binary(op, left.as_int(), right.as_int());
    return float_binary(op, left.as_double(), right.as_double());
  }
  if (op == BinaryOp::kMod && left.is_string())
    return string(format_percent(*this, left.text(), right), left.string().is_markup);
  require_defined(left);
  require_defined(right);
  if (op == BinaryOp::kAdd && left.type() == right.type()) {
    if (left.is_string()) return add_text(*this, left, right);
    if (left.is_sequence()) return add_sequences(*this, left, right);
  }
  if (op == BinaryOp::kMul) {
    const auto repeatable = [](const Value& v) { return v.is_string() || v.is_sequence(); };
    if (repeatable(left) && right.is_integral()) return repeat(*this, left, right.as_int());
    if (repeatable(right) && left.is_integral()) return repeat(*this, right, left.as_int());
  }
  fail(ErrorCode::kInvalidArgument, "unsupported operand type(s) for {}: '{}' and '{}'",
       kSymbols[static_cast<int>(op)], type_name(left), type_name(right));
}

Value Runtime::unary(UnaryOp op, const Value& operand) {
  if (op == UnaryOp::kNot) return Value::boolean(!truth(operand));
  if (!operand.is_number()) fail_operand(op == UnaryOp::kNegate ? "unary -" : "unary +", operand);
  if (operand.is(Type::kFloat)) return op == UnaryOp::kPlus ? operand : Value::number(-operand.as_double());
  if (op == UnaryOp::kPlus) return Value::integer(operand.as_int());
  if (operand.as_int() == std::numeric_limits<std::int64_t>::min()) fail_overflow();
  return Value::integer(-operand.as_int());
}

}  // namespace triptych::jinja

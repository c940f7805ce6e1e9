// ==, <, in and sorting, as Python orders values.
#include <algorithm>

#include "jinja/runtime.h"
#include "jinja/text_ops.h"

namespace triptych::jinja {
namespace {

bool dicts_equal(Runtime& runtime, const DictObject& a, const DictObject& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = runtime.dict_find(b, key);
    if (other == nullptr || !runtime.equal(value, *other)) return false;
  }
  return true;
}

bool is_mapping_view(const Value& value) {
  return value.is(Type::kDictView) && value.as<DictViewObject>().kind != DictViewObject::Kind::kValues;
}

}  // namespace

bool Runtime::equal(const Value& left, const Value& right) {
  const DepthGuard guard(budget_);
  budget_.charge(1);
  if (left.is_number() && right.is_number()) return compare_numbers(left, right) == 0;
  if (left.type() != right.type()) return false;
  switch (left.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kString:
      return left.view() == right.view();
    case Type::kList:
    case Type::kTuple: {
      const auto& a = left.items();
      const auto& b = right.items();
      if (a.size() != b.size()) return false;
      for (std::size_t i = 0; i < a.size(); ++i)
        if (!equal(a[i], b[i])) return false;
      return true;
    }
    case Type::kDict:
      return left.object() == right.object() || dicts_equal(*this, left.dict(), right.dict());
    case Type::kRange: {
      const auto& a = left.as<RangeObject>();
      const auto& b = right.as<RangeObject>();
      if (a.length != b.length) return false;
      return a.length == 0 || (a.start == b.start && (a.length == 1 || a.step == b.step));
    }
    case Type::kDictView: {
      if (left.object() == right.object()) return true;
      if (!is_mapping_view(left) || !is_mapping_view(right) || length(left) != length(right)) return false;
      for (const Value& item : to_vector(left))
        if (!contains(right, item)) return false;
      return true;
    }
    default:
      return left.object() == right.object();
  }
}

bool Runtime::less(const Value& left, const Value& right) {
  const DepthGuard guard(budget_);
  budget_.charge(1);
  if (left.is_number() && right.is_number()) return compare_numbers(left, right) == -1;
  if (left.is_string() && right.is_string()) return left.view() < right.view();
  if (left.is_sequence() && left.type() == right.type()) {
    const auto& a = left.items();
    const auto& b = right.items();
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
      if (!equal(a[i], b[i])) return less(a[i], b[i]);
    return a.size() < b.size();
  }
  require_defined(left);
  require_defined(right);
  fail(ErrorCode::kInvalidArgument, "order of '{}' and '{}' is not defined", type_name(left),
       type_name(right));
}

bool Runtime::compare(CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEq:
      return equal(left, right);
    case CompareOp::kNe:
      return !equal(left, right);
    case CompareOp::kLt:
      return less(left, right);
    case CompareOp::kGt:
      return less(right, left);
    case CompareOp::kIn:
      return contains(right, left);
    case CompareOp::kNotIn:
      return !contains(right, left);
    default:
      break;
  }
  const Value& small = op == CompareOp::kLe ? left : right;
  const Value& big = op == CompareOp::kLe ? right : left;
  if (small.is_number() && big.is_number()) {
    const int order = compare_numbers(small, big);
    return order == -1 || order == 0;
  }
  return !less(big, small);
}

bool Runtime::contains(const Value& container, const Value& item) {
  budget_.charge(1);
  switch (container.type()) {
    case Type::kString:
      if (!item.is_string()) {
        require_defined(item);
        fail(ErrorCode::kInvalidArgument, "'in <string>' requires string as left operand, not {}",
             type_name(item));
      }
      return find_text(*this, container.view(), item.view()) != kNoMatch;
    case Type::kDict:
      return dict_find(container.dict(), item) != nullptr;
    case Type::kDictView:
      if (container.as<DictViewObject>().kind == DictViewObject::Kind::kKeys)
        return dict_find(container.as<DictViewObject>().dict.dict(), item) != nullptr;
      break;
    case Type::kRange:
      if (item.is_integral()) {
        const auto& range = container.as<RangeObject>();
        std::int64_t offset = 0;
        if (__builtin_sub_overflow(item.as_int(), range.start, &offset)) return false;
        return range.length > 0 && offset % range.step == 0 && offset / range.step >= 0 &&
               offset / range.step < range.length;
      }
      break;
    case Type::kList:
    case Type::kTuple: {
      for (const Value& candidate : container.items())
        if (equal(candidate, item)) return true;
      return false;
    }
    default:
      break;
  }
  if (!is_iterable(container))
    fail(ErrorCode::kInvalidArgument, "argument of type '{}' is not iterable", type_name(container));
  const auto iterator = iterate(container);
  Value candidate;
  while (iterator->next(*this, candidate))
    if (equal(candidate, item)) return true;
  return false;
}

void Runtime::check_hashable(const Value& value) {
  switch (value.type()) {
    case Type::kList:
    case Type::kDict:
      fail(ErrorCode::kInvalidArgument, "unhashable type: '{}'", type_name(value));
    case Type::kTuple: {
      const DepthGuard guard(budget_);
      budget_.charge(1 + value.items().size());
      if (value.nesting() > 8) fail(ErrorCode::kInvalidArgument, "a dictionary key is nested too deeply");
      for (const Value& item : value.items()) check_hashable(item);
      break;
    }
    default:
      break;
  }
}

void Runtime::sort(std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  // The comparison may throw, which std::stable_sort survives: elements are only moved.
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const auto& a, const auto& b) { return less(a.first, b.first); });
  if (reverse) std::reverse(keyed.begin(), keyed.end());
}

}  // namespace triptych::jinja

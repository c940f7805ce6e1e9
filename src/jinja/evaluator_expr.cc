// Expressions.
#include <utility>

#include "jinja/builtins.h"
#include "jinja/evaluator.h"

namespace triptych::jinja {

Value Evaluator::lookup(std::string_view name, const ScopePtr& scope) {
  for (const Scope* level = scope.get(); level != nullptr; level = level->parent.get()) {
    budget().charge(1 + level->variables.size() / 16);
    if (const Value* value = level->find(name)) return *value;
  }
  if (const Value* value = globals_->find(name)) return *value;
  return undefined(fmt::format("'{}' is undefined", name));
}

Value Evaluator::evaluate(const Expr& expr, const ScopePtr& scope) {
  const DepthGuard guard(budget());
  budget().charge(1);
  line_ = expr.line;
  switch (expr.kind) {
    case Expr::Kind::kConstant:
      return static_cast<const ConstantExpr&>(expr).value;
    case Expr::Kind::kName:
      return lookup(static_cast<const NameExpr&>(expr).name, scope);
    case Expr::Kind::kCollection:
      return evaluate_collection(static_cast<const CollectionExpr&>(expr), scope);
    case Expr::Kind::kDict:
      return evaluate_dict(static_cast<const DictExpr&>(expr), scope);
    case Expr::Kind::kUnary: {
      const auto& node = static_cast<const UnaryExpr&>(expr);
      return unary(node.op, evaluate(*node.operand, scope));
    }
    case Expr::Kind::kBinary:
      return evaluate_binary(static_cast<const BinaryExpr&>(expr), scope);
    case Expr::Kind::kConcat:
      return evaluate_concat(static_cast<const ConcatExpr&>(expr), scope);
    case Expr::Kind::kCompare:
      return evaluate_compare(static_cast<const CompareExpr&>(expr), scope);
    case Expr::Kind::kConditional:
      return evaluate_conditional(static_cast<const ConditionalExpr&>(expr), scope);
    case Expr::Kind::kAttribute: {
      const auto& node = static_cast<const AttributeExpr&>(expr);
      return get_attribute(evaluate(*node.object, scope), node.name);
    }
    case Expr::Kind::kSubscript: {
      const auto& node = static_cast<const SubscriptExpr&>(expr);
      const Value object = evaluate(*node.object, scope);
      return get_item(object, evaluate(*node.index, scope));
    }
    case Expr::Kind::kSlice:
      return evaluate_slice(static_cast<const SliceExpr&>(expr), scope);
    case Expr::Kind::kCall:
      return evaluate_call(static_cast<const CallExpr&>(expr), scope, nullptr);
    case Expr::Kind::kFilter:
      return evaluate_filter(static_cast<const ApplyExpr&>(expr), scope);
    case Expr::Kind::kTest:
      return evaluate_test(static_cast<const ApplyExpr&>(expr), scope);
  }
  return Value();
}

Value Evaluator::evaluate_collection(const CollectionExpr& expr, const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) items.push_back(evaluate(*item, scope));
  return expr.is_tuple ? tuple(std::move(items)) : list(std::move(items));
}

Value Evaluator::evaluate_dict(const DictExpr& expr, const ScopePtr& scope) {
  auto out = std::make_shared<DictObject>();
  for (const auto& [key, value] : expr.items) {
    const Value name = evaluate(*key, scope);
    dict_set(*out, name, evaluate(*value, scope));
  }
  return dict(std::move(out));
}

Value Evaluator::evaluate_binary(const BinaryExpr& expr, const ScopePtr& scope) {
  Value left = evaluate(*expr.left, scope);
  if (expr.op == BinaryOp::kAnd) return truth(left) ? evaluate(*expr.right, scope) : left;
  if (expr.op == BinaryOp::kOr) return truth(left) ? left : evaluate(*expr.right, scope);
  const Value right = evaluate(*expr.right, scope);
  line_ = expr.line;
  return binary(expr.op, left, right);
}

Value Evaluator::evaluate_concat(const ConcatExpr& expr, const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) items.push_back(evaluate(*item, scope));
  MarkedString out;
  for (const Value& item : items) {
    if (item.is_string()) {
      out.append(item.text());
    } else {
      out.append(str(item));
    }
    budget().check_text_size(out.size());
  }
  return string(std::move(out));
}

Value Evaluator::evaluate_compare(const CompareExpr& expr, const ScopePtr& scope) {
  Value left = evaluate(*expr.first, scope);
  for (const auto& [op, operand] : expr.rest) {
    Value right = evaluate(*operand, scope);
    line_ = expr.line;
    if (!compare(op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_conditional(const ConditionalExpr& expr, const ScopePtr& scope) {
  if (truth(evaluate(*expr.test, scope))) return evaluate(*expr.yes, scope);
  if (expr.no) return evaluate(*expr.no, scope);
  return undefined("the inline if-expression evaluated to false and no else section was defined.");
}

Value Evaluator::evaluate_slice(const SliceExpr& expr, const ScopePtr& scope) {
  const Value object = evaluate(*expr.object, scope);
  const auto bound = [&](const ExprPtr& part) { return part ? evaluate(*part, scope) : Value::none(); };
  const Value start = bound(expr.start);
  const Value stop = bound(expr.stop);
  const Value step = bound(expr.step);
  return slice(object, start, stop, step);
}

Arguments Evaluator::evaluate_arguments(const CallArguments& arguments, const ScopePtr& scope) {
  Arguments out;
  for (const ExprPtr& argument : arguments.positional) out.positional.push_back(evaluate(*argument, scope));
  if (arguments.star) {
    const std::vector<Value> more = to_vector(evaluate(*arguments.star, scope));
    out.positional.insert(out.positional.end(), more.begin(), more.end());
  }
  for (const auto& [name, argument] : arguments.named)
    out.named.emplace_back(name, evaluate(*argument, scope));
  if (arguments.double_star) {
    const Value mapping = evaluate(*arguments.double_star, scope);
    if (!mapping.is_dict()) fail_operand("argument after **", mapping);
    for (const auto& [key, value] : mapping.dict().entries()) {
      if (!key.is_string()) fail(ErrorCode::kInvalidArgument, "keywords must be strings");
      for (const auto& [name, other] : out.named)
        if (name == key.view())
          fail(ErrorCode::kInvalidArgument, "got multiple values for keyword argument '{}'", name);
      budget().charge(1 + out.named.size());
      out.named.emplace_back(std::string(key.view()), value);
    }
  }
  return out;
}

Value Evaluator::evaluate_call(const CallExpr& expr, const ScopePtr& scope, const Value* caller) {
  const Value callee = evaluate(*expr.callee, scope);
  Arguments arguments = evaluate_arguments(expr.arguments, scope);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = expr.line;
  return call(callee, arguments);
}

Value Evaluator::evaluate_filter(const ApplyExpr& expr, const ScopePtr& scope) {
  Value input;
  if (expr.input) {
    input = evaluate(*expr.input, scope);
  } else {
    TRIPTYCH_CHECK(block_text_ != nullptr);
    input = *block_text_;
  }
  Arguments arguments = evaluate_arguments(expr.arguments, scope);
  line_ = expr.line;
  return call_filter(expr.name, input, arguments);
}

Value Evaluator::evaluate_test(const ApplyExpr& expr, const ScopePtr& scope) {
  const Value input = evaluate(*expr.input, scope);
  Arguments arguments = evaluate_arguments(expr.arguments, scope);
  line_ = expr.line;
  return Value::boolean(call_test(expr.name, input, arguments));
}

}  // namespace triptych::jinja

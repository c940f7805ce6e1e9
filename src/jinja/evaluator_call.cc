// Macros, call blocks and the loop variable.
#include <algorithm>
#include <utility>

#include "jinja/builtins.h"
#include "jinja/evaluator.h"

namespace triptych::jinja {
namespace {

Value loop_cycle(Runtime& runtime, const Value& self, Arguments& arguments) {
  runtime.budget().charge(1);
  const auto& items = arguments.positional;
  if (items.empty() || !arguments.named.empty())
    fail(ErrorCode::kInvalidArgument, "no items for cycling given");
  const auto n = static_cast<std::int64_t>(items.size());
  return items[static_cast<std::size_t>(((self.as<LoopObject>().index0 % n) + n) % n)];
}

Value loop_changed(Runtime& runtime, const Value& self, Arguments& arguments) {
  auto& loop = self.as<LoopObject>();
  const Value value = runtime.tuple(arguments.positional);
  if (loop.last_changed && runtime.equal(*loop.last_changed, value)) return Value::boolean(false);
  if (!loop.last_changed)
    static_cast<Evaluator&>(runtime).remember(std::static_pointer_cast<LoopObject>(self.object()));
  loop.last_changed = value;
  return Value::boolean(true);
}

}  // namespace

Value Evaluator::make_macro(const MacroBody& body, const ScopePtr& scope) {
  auto macro = std::make_shared<MacroObject>();
  macro->body = &body;
  macro->scope = scope;
  macro->nesting = 1;
  if (!scope->is_captured) {
    scope->is_captured = true;
    captured_.push_back(scope);
  }
  return object(Type::kMacro, std::move(macro), sizeof(MacroObject));
}

void Evaluator::execute_call_block(const CallBlockStatement& node, const ScopePtr& scope) {
  const Value caller = make_macro(node.macro, scope);
  print_text(evaluate_call(static_cast<const CallExpr&>(*node.call), scope, &caller));
}

Value Evaluator::call_special(const Value& callee, Arguments& arguments) {
  if (callee.is(Type::kMacro)) return call_macro(callee.as<MacroObject>(), arguments);
  const Bound bound("loop", arguments, {"iterable"}, 1);
  return recurse_loop(callee.as<LoopObject>(), bound.at(0));
}

void Evaluator::bind_macro(const MacroBody& body, Arguments& arguments, const ScopePtr& scope) {
  auto& named = arguments.named;
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto it =
        std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
    if (it == named.end()) return std::nullopt;
    Value value = std::move(it->second);
    named.erase(it);
    return value;
  };
  const std::string_view macro_name =
      body.name.empty() ? std::string_view("caller") : std::string_view(body.name);
  const auto& parameters = body.parameters;
  std::vector<bool> is_missing(parameters.size(), false);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = take_named(parameters[i].name);
    }
    is_missing[i] = !value.has_value();
    scope->set(parameters[i].name,
               value ? *std::move(value)
                     : undefined(fmt::format("parameter '{}' was not provided", parameters[i].name)));
  }
  if (body.uses_caller) {
    const auto caller = take_named("caller");
    scope->set("caller", caller && !caller->is_none() ? *caller : undefined("No caller defined"));
  }
  if (body.uses_kwargs) {
    auto rest = std::make_shared<DictObject>();
    for (const auto& [name, value] : named) dict_set(*rest, string(name), value);
    scope->set("kwargs", dict(std::move(rest)));
  } else if (!named.empty()) {
    fail(ErrorCode::kInvalidArgument, "macro '{}' takes no keyword argument '{}'", macro_name,
         named.front().first);
  }
  if (body.uses_varargs) {
    std::vector<Value> rest;
    for (std::size_t i = parameters.size(); i < arguments.positional.size(); ++i)
      rest.push_back(arguments.positional[i]);
    scope->set("varargs", tuple(std::move(rest)));
  } else if (arguments.positional.size() > parameters.size()) {
    fail(ErrorCode::kInvalidArgument, "macro '{}' takes not more than {} argument(s)", macro_name,
         parameters.size());
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (is_missing[i] && parameters[i].fallback)
      scope->set(parameters[i].name, evaluate(*parameters[i].fallback, scope));
}

Value Evaluator::call_macro(const MacroObject& macro, Arguments& arguments) {
  const ScopePtr scope = make_scope(macro.scope);
  bind_macro(*macro.body, arguments, scope);
  MarkedString text;
  capture(macro.body->body, scope, text);
  return string(std::move(text));
}

std::optional<Value> Evaluator::special_attribute(const Value& object, std::string_view name) {
  if (object.is(Type::kMacro)) {
    const MacroBody& body = *object.as<MacroObject>().body;
    if (name == "name") return body.name.empty() ? Value::none() : string(body.name);
    if (name == "caller") return Value::boolean(body.uses_caller);
    if (name == "catch_kwargs") return Value::boolean(body.uses_kwargs);
    if (name == "catch_varargs") return Value::boolean(body.uses_varargs);
    if (name == "arguments") {
      std::vector<Value> names;
      for (const Parameter& parameter : body.parameters) names.push_back(string(parameter.name));
      return tuple(std::move(names));
    }
    return std::nullopt;
  }
  auto& loop = object.as<LoopObject>();
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(loop.peek(*this) == nullptr);
  if (name == "length") return Value::integer(loop.total(*this));
  if (name == "revindex") return Value::integer(loop.total(*this) - loop.index0);
  if (name == "revindex0") return Value::integer(loop.total(*this) - loop.index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") return loop.index0 == 0 ? undefined("there is no previous item") : loop.before;
  if (name == "nextitem") {
    const Value* next = loop.peek(*this);
    return next != nullptr ? *next : undefined("there is no next item");
  }
  if (name == "cycle") return function("cycle", loop_cycle, object);
  if (name == "changed") return function("changed", loop_changed, object);
  return std::nullopt;
}

std::shared_ptr<IteratorObject> Evaluator::iterate_loop(const Value&) {
  fail(ErrorCode::kInvalidArgument, "the loop variable cannot be iterated");
}

std::int64_t Evaluator::loop_length(const Value& loop) { return loop.as<LoopObject>().total(*this); }

}  // namespace triptych::jinja

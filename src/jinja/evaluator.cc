// Statements. Scoping is jinja2's: for, macro, call, filter, with and block bodies have their own scope, if
// has none.
#include "jinja/evaluator.h"

#include <algorithm>
#include <utility>

#include "jinja/builtins.h"

namespace triptych::jinja {
namespace {

/// The items of "for x in items if test".
struct ConditionIterator final : IteratorObject {
  Evaluator* evaluator = nullptr;
  const ForStatement* node = nullptr;
  ScopePtr scope;
  std::shared_ptr<IteratorObject> source;

  bool next(Runtime& runtime, Value& item) override {
    while (source->next(runtime, item)) {
      const ScopePtr inner = evaluator->make_scope(scope);
      evaluator->assign(node->target, item, inner);
      if (runtime.truth(evaluator->evaluate(*node->test, inner))) return true;
    }
    return false;
  }
};

/// Points the output elsewhere for a while.
class Redirect {
 public:
  Redirect(MarkedString*& out, MarkedString& text) : out_(out), saved_(out) { out_ = &text; }
  ~Redirect() { out_ = saved_; }
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;

 private:
  MarkedString*& out_;
  MarkedString* saved_;
};

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const auto& [key, value] : variables)
    if (key == name) return &value;
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  charge_to(budget_, sizeof(variables[0]));
  variables.emplace_back(name, std::move(value));
}

bool LoopObject::advance(Runtime& runtime) {
  Value item;
  if (after) {
    item = *std::move(after);
    after.reset();
  } else if (at_end || !source->next(runtime, item)) {
    at_end = true;
    return false;
  }
  ++index0;
  before = std::move(current);
  current = std::move(item);
  return true;
}

const Value* LoopObject::peek(Runtime& runtime) {
  if (!after && !at_end) {
    Value item;
    if (source->next(runtime, item)) {
      after = std::move(item);
    } else {
      at_end = true;
    }
  }
  return after ? &*after : nullptr;
}

std::int64_t LoopObject::total(Runtime& runtime) {
  if (length) return *length;
  std::vector<Value> rest;
  Value item;
  while (!at_end && source->next(runtime, item)) rest.push_back(item);
  length = index0 + 1 + (after ? 1 : 0) + static_cast<std::int64_t>(rest.size());
  source = iterate_values(std::move(rest));
  return *length;
}

Evaluator::Evaluator(const Program& program, const Limits& limits, std::tm now, std::size_t max_output_bytes)
    : Runtime(limits, now),
      program_(program),
      max_output_bytes_(max_output_bytes),
      globals_(std::make_shared<DictObject>()) {
  add_globals(*this, *globals_);
  top_ = make_scope(nullptr);
}

Evaluator::~Evaluator() {
  // Macros hold scopes that hold macros: take the rings apart.
  clear_namespaces();
  for (const ScopePtr& scope : captured_) {
    scope->variables.clear();
    scope->parent.reset();
  }
  for (const auto& loop : loops_) loop->last_changed.reset();
}

MarkedString Evaluator::render() {
  try {
    execute(program_.body, top_);
  } catch (const RaisedByTemplate&) {
    throw;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    throw error.with_context(fmt::format("{}:{}", program_.name, line_));
  }
  return std::move(output_);
}

ScopePtr Evaluator::make_scope(const ScopePtr& parent) {
  auto scope = std::make_shared<Scope>();
  budget().charge(1);
  scope->charge_to(&budget(), sizeof(Scope) + 64);
  scope->parent = parent;
  return scope;
}

void Evaluator::emit(const MarkedString& text) {
  budget().charge_text(text.size());
  if (out_->size() + text.size() > max_output_bytes_)
    fail(ErrorCode::kInvalidArgument, "the prompt exceeds {} bytes", max_output_bytes_);
  out_->append(text);
}

void Evaluator::print(const Value& value) {
  if (value.is_string()) {
    emit(value.text());
  } else {
    emit(str(value));
  }
}

void Evaluator::print_text(const Value& value) {
  if (!value.is_string())
    fail(ErrorCode::kInvalidArgument, "a block must give text, not '{}'", type_name(value));
  emit(value.text());
}

Evaluator::Flow Evaluator::capture(const Block& block, const ScopePtr& scope, MarkedString& text) {
  const Redirect redirect(out_, text);
  return execute(block, scope);
}

Evaluator::Flow Evaluator::execute(const Block& block, const ScopePtr& scope) {
  const DepthGuard guard(budget());
  for (const auto& statement : block) {
    const Flow flow = execute(*statement, scope);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute(const Statement& statement, const ScopePtr& scope) {
  budget().charge(1);
  line_ = statement.line;
  switch (statement.kind) {
    case Statement::Kind::kText:
      emit(static_cast<const TextStatement&>(statement).text);
      break;
    case Statement::Kind::kPrint:
      for (const ExprPtr& value : static_cast<const PrintStatement&>(statement).values)
        print(evaluate(*value, scope));
      break;
    case Statement::Kind::kIf:
      return execute_if(static_cast<const IfStatement&>(statement), scope);
    case Statement::Kind::kFor:
      return execute_for(static_cast<const ForStatement&>(statement), scope);
    case Statement::Kind::kSet: {
      const auto& node = static_cast<const SetStatement&>(statement);
      assign(node.target, evaluate(*node.value, scope), scope);
      break;
    }
    case Statement::Kind::kSetBlock:
      return execute_set_block(static_cast<const BlockStatement&>(statement), scope);
    case Statement::Kind::kFilterBlock:
      return execute_filter_block(static_cast<const BlockStatement&>(statement), scope);
    case Statement::Kind::kMacro: {
      const auto& node = static_cast<const MacroStatement&>(statement);
      scope->set(node.macro.name, make_macro(node.macro, scope));
      break;
    }
    case Statement::Kind::kCallBlock:
      execute_call_block(static_cast<const CallBlockStatement&>(statement), scope);
      break;
    case Statement::Kind::kWith: {
      const auto& node = static_cast<const WithStatement&>(statement);
      const ScopePtr inner = make_scope(scope);
      for (const auto& [target, value] : node.bindings) assign(target, evaluate(*value, scope), inner);
      return execute(node.body, inner);
    }
    case Statement::Kind::kGeneration:
      return execute(static_cast<const BlockStatement&>(statement).body, make_scope(scope));
    case Statement::Kind::kBlock: {
      const auto& node = static_cast<const BlockStatement&>(statement);
      return execute(node.body, make_scope(node.scoped ? scope : top_));
    }
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute_if(const IfStatement& node, const ScopePtr& scope) {
  for (const IfStatement::Branch& branch : node.branches)
    if (!branch.test || truth(evaluate(*branch.test, scope))) return execute(branch.body, scope);
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute_for(const ForStatement& node, const ScopePtr& scope) {
  return run_loop(node, evaluate(*node.iterable, scope), scope, 0);
}

Evaluator::Flow Evaluator::run_loop(const ForStatement& node, const Value& iterable, const ScopePtr& scope,
                                    std::int64_t depth0) {
  auto loop = std::make_shared<LoopObject>();
  loop->node = &node;
  loop->depth0 = depth0;
  loop->nesting = iterable.nesting() + 1;
  if (node.is_recursive) loop->outer = scope;
  loop->source = iterate(iterable);
  if (node.test) {
    auto condition = std::make_shared<ConditionIterator>();
    condition->evaluator = this;
    condition->node = &node;
    condition->scope = scope;
    condition->source = std::move(loop->source);
    loop->source = std::move(condition);
  } else {
    loop->length = length(iterable);
  }
  const Value loop_value = object(Type::kLoop, loop, sizeof(LoopObject));
  bool ran_through = false;  // some iteration came to its end, which is what keeps jinja2 from the else block
  Flow flow = Flow::kNormal;
  while (flow != Flow::kBreak && loop->advance(*this)) {
    const ScopePtr inner = make_scope(scope);
    assign(node.target, loop->current, inner);
    inner->set("loop", loop_value);
    flow = execute(node.body, inner);
    if (flow == Flow::kNormal) ran_through = true;
  }
  if (ran_through || node.otherwise.empty()) return Flow::kNormal;
  return execute(node.otherwise, make_scope(scope));
}

Value Evaluator::recurse_loop(const LoopObject& loop, const Value& items) {
  if (!loop.node->is_recursive)
    fail(ErrorCode::kInvalidArgument, "The loop must have the 'recursive' marker to be called recursively.");
  MarkedString text;
  const Redirect redirect(out_, text);
  run_loop(*loop.node, items, loop.outer, loop.depth0 + 1);
  return string(std::move(text));
}

Value Evaluator::filtered(const Expr& filter, MarkedString text, const ScopePtr& scope) {
  const Value input = string(std::move(text));
  const Value* saved = std::exchange(block_text_, &input);
  struct Restore {
    const Value*& slot;
    const Value* value;
    ~Restore() { slot = value; }
  } const restore{block_text_, saved};
  return evaluate(filter, scope);
}

Evaluator::Flow Evaluator::execute_set_block(const BlockStatement& node, const ScopePtr& scope) {
  MarkedString text;
  const ScopePtr inner = make_scope(scope);
  const Flow flow = capture(node.body, inner, text);
  if (flow != Flow::kNormal) return flow;
  Value value = node.filter ? filtered(*node.filter, std::move(text), inner) : string(std::move(text));
  assign(node.target, value, scope);
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute_filter_block(const BlockStatement& node, const ScopePtr& scope) {
  MarkedString text;
  const ScopePtr inner = make_scope(scope);
  const Flow flow = capture(node.body, inner, text);
  if (flow == Flow::kNormal) print_text(filtered(*node.filter, std::move(text), inner));
  return flow;
}

void Evaluator::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  switch (target.kind) {
    case Target::Kind::kName:
      scope->set(target.name, value);
      break;
    case Target::Kind::kNamespaceAttribute: {
      const Value object = lookup(target.name, scope);
      if (!object.is(Type::kNamespace))
        fail(ErrorCode::kInvalidArgument, "cannot assign attribute on non-namespace object");
      dict_set(object.as<NamespaceObject>().attributes, string(target.attribute), value);
      break;
    }
    case Target::Kind::kTuple: {
      const DepthGuard guard(budget());
      const std::vector<Value> items = to_vector(value);
      if (items.size() != target.items.size())
        fail(ErrorCode::kInvalidArgument, "cannot unpack {} value(s) into {} name(s)", items.size(),
             target.items.size());
      for (std::size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i], scope);
      break;
    }
  }
}

}  // namespace triptych::jinja

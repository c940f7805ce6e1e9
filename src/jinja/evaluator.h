// Runs a program. One evaluator serves one render.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/runtime.h"

namespace triptych::jinja {

/// Variables of a block. Names are views of the program's.
struct Scope : Object {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;
  bool is_captured = false;  // a macro holds it

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

struct MacroObject : Object {
  const MacroBody* body = nullptr;
  ScopePtr scope;
};

/// The variable "loop". Looks one item ahead only when the template asks for it, as jinja2 does.
struct LoopObject : Object {
  const ForStatement* node = nullptr;
  ScopePtr outer;  // of a recursive loop
  std::int64_t depth0 = 0;
  std::shared_ptr<IteratorObject> source;
  std::optional<std::int64_t> length;
  std::int64_t index0 = -1;
  std::optional<Value> after;
  bool at_end = false;
  Value current, before;
  std::optional<Value> last_changed;

  bool advance(Runtime& runtime);
  /// The next item, which stays next; nothing at the end.
  const Value* peek(Runtime& runtime);
  std::int64_t total(Runtime& runtime);
};

class Evaluator final : public Runtime {
 public:
  Evaluator(const Program& program, const Limits& limits, std::tm now, std::size_t max_output_bytes);
  ~Evaluator() override;

  /// Variables of the render; fill before render().
  DictObject& variables() { return *globals_; }
  /// Throws Error(kInvalidArgument) "name:line: ...", or RaisedByTemplate.
  MarkedString render();

  Value evaluate(const Expr& expr, const ScopePtr& scope);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);
  ScopePtr make_scope(const ScopePtr& parent);
  /// Renders the body of a recursive loop again, for loop(items).
  Value recurse_loop(const LoopObject& loop, const Value& items);
  /// Remembers a loop that holds values of the template, so that rings through it end with the render.
  void remember(std::shared_ptr<LoopObject> loop) { loops_.push_back(std::move(loop)); }

 protected:
  Value call_special(const Value& callee, Arguments& arguments) override;
  std::optional<Value> special_attribute(const Value& object, std::string_view name) override;
  std::shared_ptr<IteratorObject> iterate_loop(const Value& loop) override;
  std::int64_t loop_length(const Value& loop) override;

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  // Statements (evaluator.cc).
  Flow execute(const Block& block, const ScopePtr& scope);
  Flow execute(const Statement& statement, const ScopePtr& scope);
  Flow execute_if(const IfStatement& node, const ScopePtr& scope);
  Flow execute_for(const ForStatement& node, const ScopePtr& scope);
  Flow run_loop(const ForStatement& node, const Value& iterable, const ScopePtr& scope, std::int64_t depth0);
  Flow execute_set_block(const BlockStatement& node, const ScopePtr& scope);
  Flow execute_filter_block(const BlockStatement& node, const ScopePtr& scope);
  void execute_call_block(const CallBlockStatement& node, const ScopePtr& scope);
  /// Runs a block with its output in `text`.
  Flow capture(const Block& block, const ScopePtr& scope, MarkedString& text);
  void print(const Value& value);
  /// What filter and call blocks give: must be text, as in jinja2.
  void print_text(const Value& value);
  void emit(const MarkedString& text);
  Value filtered(const Expr& filter, MarkedString text, const ScopePtr& scope);

  // Expressions (evaluator_expr.cc).
  Value lookup(std::string_view name, const ScopePtr& scope);
  Value evaluate_collection(const CollectionExpr& expr, const ScopePtr& scope);
  Value evaluate_dict(const DictExpr& expr, const ScopePtr& scope);
  Value evaluate_binary(const BinaryExpr& expr, const ScopePtr& scope);
  Value evaluate_concat(const ConcatExpr& expr, const ScopePtr& scope);
  Value evaluate_compare(const CompareExpr& expr, const ScopePtr& scope);
  Value evaluate_conditional(const ConditionalExpr& expr, const ScopePtr& scope);
  Value evaluate_slice(const SliceExpr& expr, const ScopePtr& scope);
  Value evaluate_call(const CallExpr& expr, const ScopePtr& scope, const Value* caller);
  Value evaluate_filter(const ApplyExpr& expr, const ScopePtr& scope);
  Value evaluate_test(const ApplyExpr& expr, const ScopePtr& scope);
  Arguments evaluate_arguments(const CallArguments& arguments, const ScopePtr& scope);

  // Macros (evaluator_call.cc).
  Value make_macro(const MacroBody& body, const ScopePtr& scope);
  Value call_macro(const MacroObject& macro, Arguments& arguments);
  void bind_macro(const MacroBody& body, Arguments& arguments, const ScopePtr& scope);

  const Program& program_;
  std::size_t max_output_bytes_;
  std::shared_ptr<DictObject> globals_;
  ScopePtr top_;
  MarkedString output_;
  MarkedString* out_ = &output_;
  const Value* block_text_ = nullptr;  // what a filter without input works on
  int line_ = 0;
  std::vector<ScopePtr> captured_;
  std::vector<std::shared_ptr<LoopObject>> loops_;
};

}  // namespace triptych::jinja

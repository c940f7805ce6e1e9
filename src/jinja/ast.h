// The syntax tree of a template. Immutable after parsing; several renders may walk it at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace triptych::jinja {

// ---- Expressions
// -------------------------------------------------------------------------------------------------

struct Expr {
  enum class Kind : std::uint8_t {
    kConstant,
    kName,
    kCollection,
    kDict,
    kUnary,
    kBinary,
    kConcat,
    kCompare,
    kConditional,
    kAttribute,
    kSubscript,
    kSlice,
    kCall,
    kFilter,
    kTest,
  };
  Expr(Kind k, int l) : kind(k), line(l) {}
  virtual ~Expr() = default;

  Kind kind;
  int line;
  int depth = 1;  // levels of the tree below, this one included; bounded by the parser
};
using ExprPtr = std::unique_ptr<Expr>;

enum class UnaryOp : std::uint8_t { kNegate, kPlus, kNot };
enum class BinaryOp : std::uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow, kAnd, kOr };
enum class CompareOp : std::uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct ConstantExpr : Expr {
  ConstantExpr(int l, Value v) : Expr(Kind::kConstant, l), value(std::move(v)) {}
  Value value;
};
struct NameExpr : Expr {
  NameExpr(int l, std::string n) : Expr(Kind::kName, l), name(std::move(n)) {}
  std::string name;
};
struct CollectionExpr : Expr {  // [a, b] or (a, b)
  CollectionExpr(int l, bool tuple) : Expr(Kind::kCollection, l), is_tuple(tuple) {}
  bool is_tuple;
  std::vector<ExprPtr> items;
};
struct DictExpr : Expr {
  explicit DictExpr(int l) : Expr(Kind::kDict, l) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
};
struct UnaryExpr : Expr {
  UnaryExpr(int l, UnaryOp o) : Expr(Kind::kUnary, l), op(o) {}
  UnaryOp op;
  ExprPtr operand;
};
struct BinaryExpr : Expr {
  BinaryExpr(int l, BinaryOp o) : Expr(Kind::kBinary, l), op(o) {}
  BinaryOp op;
  ExprPtr left, right;
};
struct ConcatExpr : Expr {  // a ~ b ~ c
  explicit ConcatExpr(int l) : Expr(Kind::kConcat, l) {}
  std::vector<ExprPtr> items;
};
struct CompareExpr : Expr {  // a < b < c
  explicit CompareExpr(int l) : Expr(Kind::kCompare, l) {}
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct ConditionalExpr : Expr {  // yes if test else no; `no` may be absent
  explicit ConditionalExpr(int l) : Expr(Kind::kConditional, l) {}
  ExprPtr test, yes, no;
};
struct AttributeExpr : Expr {  // object.name
  AttributeExpr(int l, std::string n) : Expr(Kind::kAttribute, l), name(std::move(n)) {}
  ExprPtr object;
  std::string name;
};
struct SubscriptExpr : Expr {  // object[index]
  explicit SubscriptExpr(int l) : Expr(Kind::kSubscript, l) {}
  ExprPtr object, index;
};
struct SliceExpr : Expr {  // object[start:stop:step], each bound may be absent
  explicit SliceExpr(int l) : Expr(Kind::kSlice, l) {}
  ExprPtr object, start, stop, step;
};
struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *sequence
  ExprPtr double_star;  // **mapping
};
struct CallExpr : Expr {
  explicit CallExpr(int l) : Expr(Kind::kCall, l) {}
  ExprPtr callee;
  CallArguments arguments;
};
/// input|name(arguments) or input is name(arguments). A filter without input stands for the text of its
/// block.
struct ApplyExpr : Expr {
  ApplyExpr(Kind k, int l, std::string n) : Expr(k, l), name(std::move(n)) {}
  std::string name;
  ExprPtr input;
  CallArguments arguments;
};

// ---- Statements
// --------------------------------------------------------------------------------------------------

struct Statement {
  enum class Kind : std::uint8_t {
    kText,
    kPrint,
    kIf,
    kFor,
    kSet,
    kSetBlock,
    kMacro,
    kCallBlock,
    kFilterBlock,
    kWith,
    kGeneration,
    kBlock,
    kBreak,
    kContinue,
  };
  Statement(Kind k, int l) : kind(k), line(l) {}
  virtual ~Statement() = default;

  Kind kind;
  int line;
};
using Block = std::vector<std::unique_ptr<Statement>>;

/// What can stand left of "=" or behind "for".
struct Target {
  enum class Kind : std::uint8_t { kName, kNamespaceAttribute, kTuple };
  Kind kind = Kind::kName;
  int line = 0;
  std::string name;
  std::string attribute;
  std::vector<Target> items;
};

struct Parameter {
  std::string name;
  ExprPtr fallback;  // may be absent
};

/// Body of a macro or of a call block.
struct MacroBody {
  std::string name;  // empty for a call block
  std::vector<Parameter> parameters;
  Block body;
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
};

struct TextStatement : Statement {
  TextStatement(int l, std::string t) : Statement(Kind::kText, l), text(std::move(t)) {}
  std::string text;
};
struct PrintStatement : Statement {
  explicit PrintStatement(int l) : Statement(Kind::kPrint, l) {}
  std::vector<ExprPtr> values;
};
struct IfStatement : Statement {
  struct Branch {
    ExprPtr test;  // absent for else
    Block body;
  };
  explicit IfStatement(int l) : Statement(Kind::kIf, l) {}
  std::vector<Branch> branches;
};
struct ForStatement : Statement {
  explicit ForStatement(int l) : Statement(Kind::kFor, l) {}
  Target target;
  ExprPtr iterable;
  ExprPtr test;  // may be absent
  bool is_recursive = false;
  Block body, otherwise;
};
struct SetStatement : Statement {
  explicit SetStatement(int l) : Statement(Kind::kSet, l) {}
  Target target;
  ExprPtr value;
};
/// set block (target), filter block, generation block, named block.
struct BlockStatement : Statement {
  using Statement::Statement;
  Target target;        // kSetBlock
  ExprPtr filter;       // kSetBlock (may be absent), kFilterBlock
  std::string name;     // kBlock
  bool scoped = false;  // kBlock
  Block body;
};
struct MacroStatement : Statement {
  explicit MacroStatement(int l) : Statement(Kind::kMacro, l) {}
  MacroBody macro;
};
struct CallBlockStatement : Statement {
  explicit CallBlockStatement(int l) : Statement(Kind::kCallBlock, l) {}
  MacroBody macro;
  ExprPtr call;  // a CallExpr
};
struct WithStatement : Statement {
  explicit WithStatement(int l) : Statement(Kind::kWith, l) {}
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Block body;
};

/// A parsed template.
struct Program {
  std::string name;
  Block body;
};

}  // namespace triptych::jinja

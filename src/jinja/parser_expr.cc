// Expressions, by recursive descent: one function for each level of binding, as in jinja2.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "jinja/builtins.h"
#include "jinja/parser_impl.h"

namespace triptych::jinja {

template <typename T>
std::unique_ptr<T> Parser::sized(std::unique_ptr<T>&& node, std::initializer_list<const Expr*> children) {
  for (const Expr* child : children) deepen(*node, child);
  return std::move(node);
}

void Parser::deepen(Expr& node, const Expr* child) const {
  if (child == nullptr) return;
  node.depth = std::max(node.depth, child->depth + 1);
  if (node.depth > kMaxDepth) error(node.line, "expression nested too deeply");
}

void Parser::deepen(Expr& node, const CallArguments& arguments) const {
  for (const ExprPtr& argument : arguments.positional) deepen(node, argument.get());
  for (const auto& [name, argument] : arguments.named) deepen(node, argument.get());
  deepen(node, arguments.star.get());
  deepen(node, arguments.double_star.get());
}

ExprPtr Parser::make_binary(int line, BinaryOp op, ExprPtr left, ExprPtr right) {
  auto node = std::make_unique<BinaryExpr>(line, op);
  node->left = std::move(left);
  node->right = std::move(right);
  return sized(std::move(node), {node->left.get(), node->right.get()});
}

ExprPtr Parser::parse_tuple(bool with_conditional, bool parenthesised, std::string_view end_name) {
  auto node = std::make_unique<CollectionExpr>(current().line, /*tuple=*/true);
  bool is_tuple = false;
  while (true) {
    if (!node->items.empty()) expect(Token::kComma);
    if (at(Token::kVariableEnd) || at(Token::kBlockEnd) || at(Token::kRParen) ||
        (!end_name.empty() && at_name(end_name)))
      break;
    node->items.push_back(parse_expression(with_conditional));
    deepen(*node, node->items.back().get());
    if (!at(Token::kComma)) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!node->items.empty()) return std::move(node->items.front());
    if (!parenthesised)
      error(current().line, fmt::format("Expected an expression, got '{}'", describe(current())));
  }
  return node;
}

ExprPtr Parser::parse_expression(bool with_conditional) {
  const Level level(*this);
  return with_conditional ? parse_conditional() : parse_or();
}

ExprPtr Parser::parse_conditional() {
  const Level level(*this);
  const int line = current().line;
  const std::size_t first_unknown = unknown_names_.size();
  ExprPtr yes = parse_or();
  bool is_conditional = false;
  while (skip_name("if")) {
    is_conditional = true;
    auto node = std::make_unique<ConditionalExpr>(line);
    node->yes = std::move(yes);
    node->test = parse_or();
    if (skip_name("else")) node->no = parse_conditional();
    yes = sized(std::move(node), {node->yes.get(), node->test.get(), node->no.get()});
  }
  if (is_conditional)
    for (std::size_t i = first_unknown; i < unknown_names_.size(); ++i) unknown_names_[i].is_soft = true;
  return yes;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (at_name("or")) {
    const int line = advance().line;
    left = make_binary(line, BinaryOp::kOr, std::move(left), parse_and());
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (at_name("and")) {
    const int line = advance().line;
    left = make_binary(line, BinaryOp::kAnd, std::move(left), parse_not());
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Level level(*this);
  auto node = std::make_unique<UnaryExpr>(advance().line, UnaryOp::kNot);
  node->operand = parse_not();
  return sized(std::move(node), {node->operand.get()});
}

ExprPtr Parser::parse_compare() {
  static constexpr std::pair<Token, CompareOp> kOps[] = {
      {Token::kEq, CompareOp::kEq}, {Token::kNe, CompareOp::kNe}, {Token::kLt, CompareOp::kLt},
      {Token::kLe, CompareOp::kLe}, {Token::kGt, CompareOp::kGt}, {Token::kGe, CompareOp::kGe},
  };
  auto node = std::make_unique<CompareExpr>(current().line);
  node->first = parse_sum();
  while (true) {
    const auto op =
        std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& entry) { return at(entry.first); });
    CompareOp kind;
    if (op != std::end(kOps)) {
      advance();
      kind = op->second;
    } else if (skip_name("in")) {
      kind = CompareOp::kIn;
    } else if (at_name("not") && look().type == Token::kName && look().text == "in") {
      advance();
      advance();
      kind = CompareOp::kNotIn;
    } else {
      break;
    }
    node->rest.emplace_back(kind, parse_sum());
    deepen(*node, node->rest.back().second.get());
  }
  if (node->rest.empty()) return std::move(node->first);
  deepen(*node, node->first.get());
  return node;
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (at(Token::kAdd) || at(Token::kSub)) {
    const BinaryOp op = at(Token::kAdd) ? BinaryOp::kAdd : BinaryOp::kSub;
    const int line = advance().line;
    left = make_binary(line, op, std::move(left), parse_concat());
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!at(Token::kTilde)) return first;
  auto node = std::make_unique<ConcatExpr>(current().line);
  node->items.push_back(std::move(first));
  while (skip(Token::kTilde)) node->items.push_back(parse_product());
  for (const ExprPtr& item : node->items) deepen(*node, item.get());
  return node;
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (true) {
    BinaryOp op;
    if (at(Token::kMul)) {
      op = BinaryOp::kMul;
    } else if (at(Token::kDiv)) {
      op = BinaryOp::kDiv;
    } else if (at(Token::kFloorDiv)) {
      op = BinaryOp::kFloorDiv;
    } else if (at(Token::kMod)) {
      op = BinaryOp::kMod;
    } else {
      return left;
    }
    const int line = advance().line;
    left = make_binary(line, op, std::move(left), parse_power());
  }
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary(/*with_filter=*/true);
  while (at(Token::kPow)) {
    const int line = advance().line;
    left = make_binary(line, BinaryOp::kPow, std::move(left), parse_unary(/*with_filter=*/true));
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  const Level level(*this);
  ExprPtr node;
  if (at(Token::kSub) || at(Token::kAdd)) {
    const UnaryOp op = at(Token::kSub) ? UnaryOp::kNegate : UnaryOp::kPlus;
    auto unary = std::make_unique<UnaryExpr>(advance().line, op);
    unary->operand = parse_unary(/*with_filter=*/false);
    node = sized(std::move(unary), {unary->operand.get()});
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr Parser::parse_primary() {
  const Lexeme& token = current();
  const int line = token.line;
  const auto constant = [&](Value value) { return std::make_unique<ConstantExpr>(line, std::move(value)); };
  switch (token.type) {
    case Token::kName: {
      const std::string name = advance().text;
      if (name == "true" || name == "True") return constant(Value::boolean(true));
      if (name == "false" || name == "False") return constant(Value::boolean(false));
      if (name == "none" || name == "None") return constant(Value::none());
      for (MacroBody* macro : macros_) {
        macro->uses_caller |= name == "caller";
        macro->uses_kwargs |= name == "kwargs";
        macro->uses_varargs |= name == "varargs";
      }
      return std::make_unique<NameExpr>(line, name);
    }
    case Token::kString: {
      std::string text;
      while (at(Token::kString)) text += advance().text;  // neighbours are one string
      return constant(make_string(nullptr, std::move(text)));
    }
    case Token::kInteger:
      return constant(Value::integer(advance().integer));
    case Token::kFloat:
      return constant(Value::number(advance().number));
    case Token::kLParen: {
      advance();
      ExprPtr node = parse_tuple(/*with_conditional=*/true, /*parenthesised=*/true);
      expect(Token::kRParen);
      return node;
    }
    case Token::kLBracket:
      return parse_list();
    case Token::kLBrace:
      return parse_dict();
    default:
      error(line, fmt::format("unexpected '{}'", describe(token)));
  }
}

ExprPtr Parser::parse_list() {
  auto node = std::make_unique<CollectionExpr>(advance().line, /*tuple=*/false);
  while (!at(Token::kRBracket)) {
    if (!node->items.empty()) expect(Token::kComma);
    if (at(Token::kRBracket)) break;
    node->items.push_back(parse_expression());
    deepen(*node, node->items.back().get());
  }
  expect(Token::kRBracket);
  return node;
}

ExprPtr Parser::parse_dict() {
  auto node = std::make_unique<DictExpr>(advance().line);
  while (!at(Token::kRBrace)) {
    if (!node->items.empty()) expect(Token::kComma);
    if (at(Token::kRBrace)) break;
    ExprPtr key = parse_expression();
    expect(Token::kColon);
    ExprPtr value = parse_expression();
    deepen(*node, key.get());
    deepen(*node, value.get());
    node->items.emplace_back(std::move(key), std::move(value));
  }
  expect(Token::kRBrace);
  return node;
}

ExprPtr Parser::parse_postfix(ExprPtr node) {
  while (true) {
    if (at(Token::kDot)) {
      node = parse_attribute(std::move(node));
    } else if (at(Token::kLBracket)) {
      node = parse_subscript(std::move(node));
    } else if (at(Token::kLParen)) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr node) {
  while (true) {
    if (at(Token::kPipe)) {
      node = parse_filters(std::move(node), /*first_without_pipe=*/false);
    } else if (at_name("is")) {
      node = parse_test(std::move(node));
    } else if (at(Token::kLParen)) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_attribute(ExprPtr object) {
  const int line = advance().line;
  if (at(Token::kName)) {
    auto node = std::make_unique<AttributeExpr>(line, advance().text);
    node->object = std::move(object);
    return sized(std::move(node), {node->object.get()});
  }
  if (!at(Token::kInteger)) error(current().line, "expected name or number");
  auto node = std::make_unique<SubscriptExpr>(line);
  node->index = std::make_unique<ConstantExpr>(current().line, Value::integer(current().integer));
  advance();
  node->object = std::move(object);
  return sized(std::move(node), {node->object.get()});
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  const int line = advance().line;
  auto index = std::make_unique<CollectionExpr>(line, /*tuple=*/true);
  std::unique_ptr<SliceExpr> slice;
  bool is_first = true;
  while (!at(Token::kRBracket)) {
    if (!is_first) expect(Token::kComma);
    ExprPtr start;
    if (!at(Token::kColon)) start = parse_expression();
    if (!at(Token::kColon)) {
      index->items.push_back(std::move(start));
      deepen(*index, index->items.back().get());
    } else {
      if (!is_first) refuse(line, "a slice inside a list of subscripts");
      const auto at_end = [&] { return at(Token::kRBracket) || at(Token::kComma); };
      advance();
      slice = std::make_unique<SliceExpr>(line);
      slice->start = std::move(start);
      if (!at(Token::kColon) && !at_end()) slice->stop = parse_expression();
      if (skip(Token::kColon) && !at_end()) slice->step = parse_expression();
      if (at(Token::kComma)) refuse(line, "a slice inside a list of subscripts");
    }
    is_first = false;
  }
  expect(Token::kRBracket);
  if (slice) {
    slice->object = std::move(object);
    return sized(std::move(slice),
                 {slice->object.get(), slice->start.get(), slice->stop.get(), slice->step.get()});
  }
  auto node = std::make_unique<SubscriptExpr>(line);
  node->object = std::move(object);
  if (index->items.size() == 1) {
    node->index = std::move(index->items.front());
  } else {
    node->index = std::move(index);
  }
  return sized(std::move(node), {node->object.get(), node->index.get()});
}

CallArguments Parser::parse_arguments() {
  CallArguments out;
  const int line = expect(Token::kLParen).line;
  const auto ensure = [&](bool condition) {
    if (!condition) error(line, "invalid syntax for function call expression");
  };
  bool is_first = true;
  while (!at(Token::kRParen)) {
    if (!is_first) {
      expect(Token::kComma);
      if (at(Token::kRParen)) break;
    }
    is_first = false;
    if (skip(Token::kMul)) {
      ensure(!out.star && !out.double_star);
      out.star = parse_expression();
    } else if (skip(Token::kPow)) {
      ensure(!out.double_star);
      out.double_star = parse_expression();
    } else if (at(Token::kName) && look().type == Token::kAssign) {
      ensure(!out.double_star);
      std::string name = advance().text;
      advance();
      for (const auto& [other, value] : out.named)
        if (other == name) error(line, fmt::format("keyword argument repeated: {}", name));
      out.named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!out.star && !out.double_star && out.named.empty());
      out.positional.push_back(parse_expression());
    }
  }
  expect(Token::kRParen);
  return out;
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  auto node = std::make_unique<CallExpr>(current().line);
  node->arguments = parse_arguments();
  node->callee = std::move(callee);
  deepen(*node, node->arguments);
  return sized(std::move(node), {node->callee.get()});
}

std::string Parser::parse_dotted_name() {
  std::string name = expect(Token::kName).text;
  while (skip(Token::kDot)) name += "." + expect(Token::kName).text;
  return name;
}

ExprPtr Parser::parse_filters(ExprPtr input, bool first_without_pipe) {
  while (at(Token::kPipe) || first_without_pipe) {
    if (!first_without_pipe) advance();
    first_without_pipe = false;
    const int line = current().line;
    auto node = std::make_unique<ApplyExpr>(Expr::Kind::kFilter, line, parse_dotted_name());
    if (find_filter(node->name) == nullptr)
      unknown_names_.push_back({line, fmt::format("filter named '{}'", node->name), is_soft_});
    if (at(Token::kLParen)) node->arguments = parse_arguments();
    node->input = std::move(input);
    deepen(*node, node->arguments);
    input = sized(std::move(node), {node->input.get()});
  }
  return input;
}

ExprPtr Parser::parse_test(ExprPtr input) {
  const int line = advance().line;
  const bool negated = skip_name("not");
  auto node = std::make_unique<ApplyExpr>(Expr::Kind::kTest, line, parse_dotted_name());
  if (find_test(node->name) == nullptr)
    unknown_names_.push_back({line, fmt::format("test named '{}'", node->name), is_soft_});
  if (at(Token::kLParen)) {
    node->arguments = parse_arguments();
  } else if ((at(Token::kName) || at(Token::kString) || at(Token::kInteger) || at(Token::kFloat) ||
              at(Token::kLBracket) || at(Token::kLBrace)) &&
             !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) error(current().line, "You cannot chain multiple tests with is");
    node->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  node->input = std::move(input);
  deepen(*node, node->arguments);
  ExprPtr result = sized(std::move(node), {node->input.get()});
  if (!negated) return result;
  auto negation = std::make_unique<UnaryExpr>(line, UnaryOp::kNot);
  negation->operand = std::move(result);
  return sized(std::move(negation), {negation->operand.get()});
}

}  // namespace triptych::jinja

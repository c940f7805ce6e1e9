// Statements; expressions are in parser_expr.cc.
#include "jinja/parser.h"

#include <algorithm>

#include "base/error.h"
#include "jinja/parser_impl.h"

namespace triptych::jinja {

std::shared_ptr<const Program> parse_program(std::string_view source, std::string_view name) {
  return Parser(tokenize(source, name), name).run();
}

Parser::Level::Level(Parser& parser) : parser_(parser) {
  if (++parser_.level_ > kMaxRecursion) {
    --parser_.level_;
    parser_.error(parser_.current().line, "nested too deeply");
  }
}

void Parser::error(int line, const std::string& message) const {
  fail(ErrorCode::kInvalidFile, "{}:{}: {}", name_, line, message);
}

void Parser::refuse(int line, std::string_view what) const {
  fail(ErrorCode::kUnsupported, "{}:{}: {} is not supported in a chat template", name_, line, what);
}

const Lexeme& Parser::advance() {
  const Lexeme& token = tokens_[at_];
  if (token.type != Token::kEof) ++at_;
  return token;
}

bool Parser::skip(Token type) {
  if (!at(type)) return false;
  advance();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  advance();
  return true;
}

const Lexeme& Parser::expect(Token type) {
  if (at(type)) return advance();
  if (at(Token::kEof))
    error(current().line, fmt::format("unexpected end of template, expected '{}'", describe(type)));
  error(current().line, fmt::format("expected token '{}', got '{}'", describe(type), describe(current())));
}

void Parser::expect_name(std::string_view name) {
  if (at_name(name)) {
    advance();
    return;
  }
  if (at(Token::kEof)) error(current().line, fmt::format("unexpected end of template, expected '{}'", name));
  error(current().line, fmt::format("expected token '{}', got '{}'", name, describe(current())));
}

Parser::BodyState Parser::enter_body(bool is_soft, bool in_loop) {
  const BodyState saved{is_soft_, in_loop_};
  is_soft_ = is_soft;
  in_loop_ = in_loop;
  return saved;
}

void Parser::leave_body(const BodyState& saved) {
  is_soft_ = saved.is_soft;
  in_loop_ = saved.in_loop;
}

std::shared_ptr<const Program> Parser::run() {
  auto program = std::make_shared<Program>();
  program->name = name_;
  program->body = parse_until({});
  check_names();
  return program;
}

void Parser::check_names() {
  for (const UnknownName& unknown : unknown_names_)
    if (!unknown.is_soft) error(unknown.line, fmt::format("No {}.", unknown.what));
}

Block Parser::parse_body(Names end_tags) {
  skip(Token::kColon);  // as in Python, a colon may end the tag
  expect(Token::kBlockEnd);
  return parse_until(end_tags);
}

Block Parser::parse_until(Names end_tags) {
  const Level level(*this);
  Block out;
  while (!at(Token::kEof)) {
    const int line = current().line;
    if (at(Token::kData)) {
      out.push_back(std::make_unique<TextStatement>(line, advance().text));
    } else if (skip(Token::kVariableBegin)) {
      auto print = std::make_unique<PrintStatement>(line);
      print->values.push_back(parse_tuple(/*with_conditional=*/true, /*parenthesised=*/false));
      expect(Token::kVariableEnd);
      out.push_back(std::move(print));
    } else {
      expect(Token::kBlockBegin);
      if (at(Token::kName) && std::find(end_tags.begin(), end_tags.end(), current().text) != end_tags.end())
        return out;
      parse_statement(out);
      expect(Token::kBlockEnd);
    }
  }
  if (end_tags.size() != 0) {
    std::string wanted;
    for (const std::string_view tag : end_tags)
      wanted += fmt::format("{}'{}'", wanted.empty() ? "" : " or ", tag);
    error(current().line,
          fmt::format("unexpected end of template, looking for {}; the innermost open block is '{}'", wanted,
                      open_tags_.empty() ? "" : open_tags_.back()));
  }
  return out;
}

void Parser::parse_statement(Block& out) {
  if (!at(Token::kName)) error(current().line, "tag name expected");
  using Method = void (Parser::*)(Block&);
  static constexpr std::pair<std::string_view, Method> kTags[] = {
      {"if", &Parser::parse_if},
      {"for", &Parser::parse_for},
      {"set", &Parser::parse_set},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},
      {"print", &Parser::parse_print},
      {"generation", &Parser::parse_generation},
      {"block", &Parser::parse_named_block},
      {"break", &Parser::parse_loop_control},
      {"continue", &Parser::parse_loop_control},
  };
  const std::string tag = current().text;
  for (const std::string_view refused : {"include", "import", "from", "extends", "autoescape"})
    if (tag == refused) refuse(current().line, fmt::format("the tag '{}'", tag));
  for (const auto& [name, method] : kTags) {
    if (tag != name) continue;
    open_tags_.push_back(tag);
    (this->*method)(out);
    open_tags_.pop_back();
    return;
  }
  error(current().line,
        fmt::format(
            "unknown tag '{}'{}", tag,
            open_tags_.empty() ? "" : fmt::format("; the innermost open block is '{}'", open_tags_.back())));
}

void Parser::parse_print(Block& out) {
  auto node = std::make_unique<PrintStatement>(advance().line);
  while (!at(Token::kBlockEnd)) {
    if (!node->values.empty()) expect(Token::kComma);
    node->values.push_back(parse_expression());
  }
  out.push_back(std::move(node));
}

void Parser::parse_if(Block& out) {
  auto node = std::make_unique<IfStatement>(advance().line);
  const BodyState saved = enter_body(/*is_soft=*/true, in_loop_);
  while (true) {
    IfStatement::Branch branch;
    branch.test = parse_tuple(/*with_conditional=*/false, /*parenthesised=*/false);
    branch.body = parse_body({"elif", "else", "endif"});
    node->branches.push_back(std::move(branch));
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      node->branches.push_back({nullptr, parse_body({"endif"})});
    }
    break;
  }
  advance();  // endif
  leave_body(saved);
  out.push_back(std::move(node));
}

void Parser::parse_for(Block& out) {
  auto node = std::make_unique<ForStatement>(advance().line);
  ++for_depth_;
  node->target = parse_target(/*with_namespace=*/false, "in");
  expect_name("in");
  node->iterable = parse_tuple(/*with_conditional=*/false, /*parenthesised=*/false, "recursive");
  if (skip_name("if")) {
    const BodyState saved = enter_body(/*is_soft=*/false, in_loop_);
    node->test = parse_expression();
    leave_body(saved);
  }
  node->is_recursive = skip_name("recursive");
  const bool outer_loop = in_loop_;
  const BodyState saved = enter_body(/*is_soft=*/false, /*in_loop=*/true);
  node->body = parse_body({"endfor", "else"});
  if (skip_name("else")) {
    in_loop_ = outer_loop && !node->is_recursive;
    node->otherwise = parse_body({"endfor"});
  }
  advance();  // endfor
  leave_body(saved);
  --for_depth_;
  out.push_back(std::move(node));
}

void Parser::parse_set(Block& out) {
  const int line = advance().line;
  Target target = parse_target(/*with_namespace=*/true);
  if (skip(Token::kAssign)) {
    auto node = std::make_unique<SetStatement>(line);
    node->target = std::move(target);
    node->value = parse_tuple(/*with_conditional=*/true, /*parenthesised=*/false);
    out.push_back(std::move(node));
    return;
  }
  auto node = std::make_unique<BlockStatement>(Statement::Kind::kSetBlock, line);
  node->target = std::move(target);
  const BodyState saved = enter_body(/*is_soft=*/false, in_loop_);
  node->filter = parse_filters(nullptr, /*first_without_pipe=*/false);
  node->body = parse_body({"endset"});
  leave_body(saved);
  advance();
  out.push_back(std::move(node));
}

void Parser::parse_signature(MacroBody& macro) {
  expect(Token::kLParen);
  bool has_fallback = false;
  while (!at(Token::kRParen)) {
    if (!macro.parameters.empty()) expect(Token::kComma);
    Parameter parameter;
    const int line = current().line;
    parameter.name = parse_target_name();
    for (const Parameter& other : macro.parameters)
      if (other.name == parameter.name) error(line, fmt::format("duplicate argument '{}'", parameter.name));
    if (skip(Token::kAssign)) {
      parameter.fallback = parse_expression();
      has_fallback = true;
    } else if (has_fallback) {
      error(current().line, "non-default argument follows default argument");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  expect(Token::kRParen);
}

void Parser::parse_macro_body(MacroBody& macro, std::string_view end_tag) {
  const int line = current().line;
  const BodyState saved = enter_body(/*is_soft=*/false, /*in_loop=*/false);
  macros_.push_back(&macro);
  macro.body = parse_body({end_tag});
  macros_.pop_back();
  leave_body(saved);
  advance();
  for (const Parameter& parameter : macro.parameters) {
    if (parameter.name == "caller" && macro.uses_caller) {
      if (!parameter.fallback)
        error(line, "the special \"caller\" argument must be omitted or be given a default");
      macro.uses_caller = false;
    }
    if (parameter.name == "kwargs") macro.uses_kwargs = false;
    if (parameter.name == "varargs") macro.uses_varargs = false;
  }
}

void Parser::parse_macro(Block& out) {
  auto node = std::make_unique<MacroStatement>(advance().line);
  node->macro.name = parse_target_name();
  parse_signature(node->macro);
  parse_macro_body(node->macro, "endmacro");
  out.push_back(std::move(node));
}

void Parser::parse_call_block(Block& out) {
  auto node = std::make_unique<CallBlockStatement>(advance().line);
  if (at(Token::kLParen)) parse_signature(node->macro);
  node->call = parse_expression();
  if (node->call->kind != Expr::Kind::kCall) error(node->line, "expected call");
  parse_macro_body(node->macro, "endcall");
  out.push_back(std::move(node));
}

void Parser::parse_filter_block(Block& out) {
  auto node = std::make_unique<BlockStatement>(Statement::Kind::kFilterBlock, advance().line);
  const BodyState saved = enter_body(/*is_soft=*/false, in_loop_);
  node->filter = parse_filters(nullptr, /*first_without_pipe=*/true);
  node->body = parse_body({"endfilter"});
  leave_body(saved);
  advance();
  out.push_back(std::move(node));
}

void Parser::parse_with(Block& out) {
  auto node = std::make_unique<WithStatement>(advance().line);
  while (!at(Token::kBlockEnd)) {
    if (!node->bindings.empty()) expect(Token::kComma);
    Target target = parse_target(/*with_namespace=*/false);
    expect(Token::kAssign);
    node->bindings.emplace_back(std::move(target), parse_expression());
  }
  const BodyState saved = enter_body(/*is_soft=*/false, in_loop_);
  node->body = parse_body({"endwith"});
  leave_body(saved);
  advance();
  out.push_back(std::move(node));
}

void Parser::parse_generation(Block& out) {
  auto node = std::make_unique<BlockStatement>(Statement::Kind::kGeneration, advance().line);
  const BodyState saved = enter_body(/*is_soft=*/false, /*in_loop=*/false);
  node->body = parse_body({"endgeneration"});
  leave_body(saved);
  advance();
  out.push_back(std::move(node));
}

void Parser::parse_named_block(Block& out) {
  auto node = std::make_unique<BlockStatement>(Statement::Kind::kBlock, advance().line);
  node->name = expect(Token::kName).text;
  if (std::find(block_names_.begin(), block_names_.end(), node->name) != block_names_.end())
    error(node->line, fmt::format("block '{}' defined twice", node->name));
  block_names_.push_back(node->name);
  node->scoped = skip_name("scoped");
  if (at_name("required")) refuse(node->line, "a required block");
  const BodyState saved = enter_body(/*is_soft=*/false, /*in_loop=*/false);
  node->body = parse_body({"endblock"});
  leave_body(saved);
  advance();
  skip_name(node->name);
  out.push_back(std::move(node));
}

void Parser::parse_loop_control(Block& out) {
  const Lexeme& token = advance();
  if (!in_loop_) error(token.line, fmt::format("'{}' outside of a loop", token.text));
  const auto kind = token.text == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue;
  out.push_back(std::make_unique<Statement>(kind, token.line));
}

void Parser::note_store(const std::string& name, int line) {
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"})
    if (name == constant) error(line, "can't assign to a constant");
  if (name == "loop" && for_depth_ > 0) error(line, "can't assign to special loop variable in for-loop");
}

std::string Parser::parse_target_name() {
  const Lexeme& token = expect(Token::kName);
  note_store(token.text, token.line);
  return token.text;
}

Target Parser::parse_target(bool with_namespace, std::string_view end_name) {
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.line = current().line;
  bool is_tuple = false;
  while (true) {
    if (!tuple.items.empty()) expect(Token::kComma);
    if (at(Token::kVariableEnd) || at(Token::kBlockEnd) || at(Token::kRParen) ||
        (!end_name.empty() && at_name(end_name)))
      break;
    Target item;
    item.line = current().line;
    if (at(Token::kName)) {
      item.name = advance().text;
      if (with_namespace && skip(Token::kDot)) {
        item.kind = Target::Kind::kNamespaceAttribute;
        item.attribute = expect(Token::kName).text;
      } else {
        note_store(item.name, item.line);
      }
    } else {
      item = target_of(*parse_primary());
    }
    tuple.items.push_back(std::move(item));
    if (!at(Token::kComma)) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (tuple.items.empty())
    error(tuple.line, fmt::format("Expected an expression, got '{}'", describe(current())));
  return std::move(tuple.items.front());
}

Target Parser::target_of(const Expr& expr) {
  Target target;
  target.line = expr.line;
  if (expr.kind == Expr::Kind::kName) {
    target.name = static_cast<const NameExpr&>(expr).name;
    note_store(target.name, target.line);
    return target;
  }
  if (expr.kind != Expr::Kind::kCollection || !static_cast<const CollectionExpr&>(expr).is_tuple)
    error(expr.line, "can't assign to this expression");
  target.kind = Target::Kind::kTuple;
  for (const ExprPtr& item : static_cast<const CollectionExpr&>(expr).items)
    target.items.push_back(target_of(*item));
  return target;
}

}  // namespace triptych::jinja

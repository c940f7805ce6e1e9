// The parser's class, shared by parser.cc (statements) and parser_expr.cc (expressions).
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace triptych::jinja {

class Parser {
 public:
  Parser(std::vector<Lexeme> tokens, std::string_view name) : tokens_(std::move(tokens)), name_(name) {}
  std::shared_ptr<const Program> run();

 private:
  static constexpr int kMaxRecursion = 300;  // of the parser's own functions; about 100 pairs of parentheses
  static constexpr int kMaxDepth = 200;      // of an expression

  class Level {
   public:
    explicit Level(Parser& parser);
    ~Level() { --parser_.level_; }

   private:
    Parser& parser_;
  };

  // Token stream.
  const Lexeme& current() const { return tokens_[at_]; }
  const Lexeme& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Lexeme& advance();
  bool at(Token type) const { return current().type == type; }
  bool at_name(std::string_view name) const { return at(Token::kName) && current().text == name; }
  bool skip(Token type);
  bool skip_name(std::string_view name);
  const Lexeme& expect(Token type);
  void expect_name(std::string_view name);
  [[noreturn]] void error(int line, const std::string& message) const;
  [[noreturn]] void refuse(int line, std::string_view what) const;

  // Statements.
  using Names = std::initializer_list<std::string_view>;
  Block parse_until(Names end_tags);  // to the end tag's name, which stays current
  Block parse_body(Names end_tags);   // optional colon, end of block, then parse_until
  void parse_statement(Block& out);
  void parse_print(Block& out);
  void parse_if(Block& out);
  void parse_for(Block& out);
  void parse_set(Block& out);
  void parse_macro(Block& out);
  void parse_call_block(Block& out);
  void parse_filter_block(Block& out);
  void parse_with(Block& out);
  void parse_generation(Block& out);
  void parse_named_block(Block& out);
  void parse_loop_control(Block& out);
  void parse_signature(MacroBody& macro);
  void parse_macro_body(MacroBody& macro, std::string_view end_tag);
  void check_names();

  // Targets.
  Target parse_target(bool with_namespace, std::string_view end_name = "");
  Target target_of(const Expr& expr);
  std::string parse_target_name();
  void note_store(const std::string& name, int line);

  // Expressions, loosest binding first.
  ExprPtr parse_tuple(bool with_conditional, bool parenthesised, std::string_view end_name = "");
  ExprPtr parse_expression(bool with_conditional = true);
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter);
  ExprPtr parse_primary();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_attribute(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_call(ExprPtr callee);
  CallArguments parse_arguments();
  ExprPtr parse_filters(ExprPtr node, bool first_without_pipe);
  ExprPtr parse_test(ExprPtr node);
  ExprPtr make_binary(int line, BinaryOp op, ExprPtr left, ExprPtr right);
  template <typename T>
  std::unique_ptr<T> sized(std::unique_ptr<T>&& node, std::initializer_list<const Expr*> children);
  void deepen(Expr& node, const Expr* child) const;
  void deepen(Expr& node, const CallArguments& arguments) const;
  std::string parse_dotted_name();

  /// A filter or test that does not exist. Inside an if it may stay (it fails when it runs), elsewhere it is
  /// an error.
  struct UnknownName {
    int line;
    std::string what;
    bool is_soft;
  };
  /// Saves and changes the state that a nested body starts with.
  struct BodyState {
    bool is_soft;
    bool in_loop;
  };
  BodyState enter_body(bool is_soft, bool in_loop);
  void leave_body(const BodyState& saved);

  std::vector<Lexeme> tokens_;
  std::string name_;
  std::size_t at_ = 0;
  int level_ = 0;
  bool is_soft_ = false;  // directly inside an if
  bool in_loop_ = false;  // break and continue are allowed
  int for_depth_ = 0;     // a for loop is open: "loop" must not be assigned
  std::vector<MacroBody*> macros_;
  std::vector<std::string> block_names_;
  std::vector<std::string> open_tags_;
  std::vector<UnknownName> unknown_names_;
};

}  // namespace triptych::jinja

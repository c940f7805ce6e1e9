// Source text -> tokens, with the whitespace control that transformers sets: trim_blocks and lstrip_blocks
// on, keep_trailing_newline off. Source: jinja2 3.1 lexer.py (behaviour, not code).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace triptych::jinja {

enum class Token : std::uint8_t {
  kData,  // text between tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kTilde,
  kLBracket,
  kRBracket,
  kLParen,
  kRParen,
  kLBrace,
  kRBrace,
  kEq,
  kNe,
  kGt,
  kGe,
  kLt,
  kLe,
  kAssign,
  kDot,
  kColon,
  kPipe,
  kComma,
  kSemicolon,
  kEof,
};

struct Lexeme {
  Token type = Token::kEof;
  int line = 1;
  std::string text;  // kData, kName, kString (unescaped)
  std::int64_t integer = 0;
  double number = 0;
};

/// The tokens, the last one kEof. `name` goes into errors. Throws Error(kInvalidFile) "name:line: ...".
std::vector<Lexeme> tokenize(std::string_view source, std::string_view name);

/// For messages: "end of statement block", "name"...
std::string describe(const Lexeme& lexeme);
std::string_view describe(Token type);

}  // namespace triptych::jinja

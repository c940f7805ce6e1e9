// Calls of functions in an answer's text: "<tool_call>{"name": ..., "arguments": {...}}</tool_call>", as Qwen
// and Hermes models write them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace triptych::server {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, as the model wrote it
};

/// Separates calls from text while an answer comes.
class ToolCallParser {
 public:
  struct Piece {
    std::string text;             // for the client, now certain
    std::vector<ToolCall> calls;  // that are whole now
  };
  Piece push(std::string_view text);
  /// What was held back; a call that did not end, or is none, is text.
  Piece finish();

 private:
  std::string held_;
};

/// The array [{"name", "parameters"}, ...] of a call that had to come. Nothing for what is not of that form.
std::vector<ToolCall> parse_required_calls(std::string_view text);

}  // namespace triptych::server

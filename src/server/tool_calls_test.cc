#include "server/tool_calls.h"

#include <gtest/gtest.h>

namespace triptych::server {
namespace {

TEST(ToolCalls, ComeOutOfTheTextHoweverItIsCut) {
  const std::string text =
      "Look: <tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2}}\n</tool_call> and <tool";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    ToolCallParser parser;
    std::string out;
    std::vector<ToolCall> calls;
    for (std::size_t at = 0; at < text.size(); at += step) {
      ToolCallParser::Piece piece = parser.push(text.substr(at, step));
      out += piece.text;
      calls.insert(calls.end(), piece.calls.begin(), piece.calls.end());
    }
    out += parser.finish().text;
    EXPECT_EQ(out, "Look:  and <tool");
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].name, "f");
    EXPECT_EQ(calls[0].arguments, R"({"b":1,"a":2})");
  }
}

TEST(ToolCalls, AnEndTagMayBeMissingAndANonCallIsText) {
  ToolCallParser parser;
  parser.push(R"(<tool_call>{"name": "f"})");
  EXPECT_EQ(parser.finish().calls.size(), 1u);
  EXPECT_EQ(parser.push("<tool_call>no JSON</tool_call>").text, "<tool_call>no JSON</tool_call>");
  EXPECT_EQ(parse_required_calls(R"([{"name": "f", "parameters": {"a": 1}}])")[0].arguments, R"({"a":1})");
  EXPECT_TRUE(parse_required_calls("no").empty());
}

}  // namespace
}  // namespace triptych::server

#include "server/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace triptych::server {
namespace {

using testing::HasSubstr;

ChatWire chat(std::string_view text) { return parse_chat_request(text, SamplingParams()); }

// The error of a body; status 0: it was taken.
ApiError error_of(std::string_view text) {
  try {
    chat(text);
  } catch (const ApiError& error) {
    return error;
  }
  return {0, "", "no error"};
}

TEST(ChatRequest, TakesTextsAndPicturesInTheirOrder) {
  const ChatWire wire = chat(R"({"model": "m", "messages": [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "first"},
      {"type": "image_url", "image_url": {"url": "data:,x", "detail": "low"}},
      {"type": "input_image", "image_url": "data:,y"}]}]})");
  ASSERT_EQ(wire.messages.size(), 2u);
  EXPECT_EQ(wire.messages[0].role, "system");
  EXPECT_TRUE(wire.messages[0].content_is_string);
  const auto& parts = wire.messages[1].parts;
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].text, "first");
  EXPECT_EQ(parts[1].kind, ContentPart::Kind::kImage);
  EXPECT_EQ(parts[1].detail, "low");
  EXPECT_EQ(parts[1].param, "messages[1].content[1].image_url.url");
  EXPECT_EQ(parts[2].url, "data:,y");
  EXPECT_EQ(parts[2].param, "messages[1].content[2].image_url");
}

TEST(ChatRequest, ReadsSamplingOverTheModelsOwn) {
  SamplingParams own;
  own.temperature = 0.3F;
  own.top_k = 7;
  const std::string messages = R"("messages": [{"role": "user", "content": "x"}])";
  const ChatWire plain = parse_chat_request("{" + messages + "}", own);
  EXPECT_EQ(plain.common.sampling.temperature, 0.3F);
  EXPECT_EQ(plain.common.sampling.top_k, 7);
  EXPECT_EQ(plain.common.sampling.n_logprobs, -1);
  const ChatWire wire = parse_chat_request(
      "{" + messages + R"(, "temperature": 1.5, "seed": 18446744073709551615, "stop": ["a", ""], "n": 2,
      "logit_bias": {"12": -3.5}, "max_tokens": 9, "max_completion_tokens": 4, "logprobs": true,
      "top_logprobs": 3, "stream": true, "stream_options": {"include_usage": true}, "priority": -2,
      "cache_salt": "s", "max_pixels": 100, "nonsense": 1})",
      own);
  const SamplingParams& sampling = wire.common.sampling;
  EXPECT_EQ(sampling.temperature, 1.5F);
  EXPECT_EQ(sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(sampling.stop, std::vector<std::string>{"a"});
  ASSERT_EQ(sampling.logit_bias.size(), 1u);
  EXPECT_EQ(sampling.logit_bias[0].first, 12);
  EXPECT_EQ(sampling.max_tokens, 4);
  EXPECT_EQ(sampling.n_logprobs, 3);
  EXPECT_TRUE(wire.common.stream && wire.common.include_usage);
  EXPECT_EQ(wire.common.n, 2);
  EXPECT_EQ(wire.common.priority, -2);
  EXPECT_EQ(wire.common.media_options.max_pixels, 100);
  EXPECT_EQ(wire.common.unknown_fields, std::vector<std::string>{"nonsense"});
}

TEST(ChatRequest, NamesTheFieldThatIsWrong) {
  const auto with = [](const std::string& fields) {
    return error_of(R"({"messages": [{"role": "user", "content": "x"}], )" + fields + "}");
  };
  const struct {
    ApiError error;
    const char* param;
  } cases[] = {
      {error_of("{}"), "messages"},
      {error_of(R"({"messages": [{}]})"), "messages[0].role"},
      {error_of(R"({"messages": [{"role": "user"}]})"), "messages[0].content"},
      {error_of(R"({"messages": [{"role": "user", "content": null}]})"), "messages[0].content"},
      {error_of(R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})"),
       "messages[0].content[0].text"},
      {error_of(R"({"messages": [{"role": "user", "content": [{"type": "audio"}]}]})"),
       "messages[0].content[0].type"},
      {with(R"("temperature": -1)"), "temperature"},
      {with(R"("n": 0)"), "n"},
      {with(R"("stop": [1])"), "stop[0]"},
      {with(R"("logit_bias": {"x": 1})"), "logit_bias"},
      {with(R"("stream_options": {"include_usage": 1})"), "stream_options.include_usage"},
      {with(R"("guided_regex": "a", "guided_choice": ["b"])"), "guided_choice"},
      {with(R"("tool_choice": "required")"), "tool_choice"},
      {with(R"("tools": [{"type": "function", "function": {}}])"), "tools[0].function.name"},
      {with(R"("response_format": {"type": "json_schema", "json_schema": {}})"),
       "response_format.json_schema.schema"},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(one.error.status(), 400) << one.error.what();
    EXPECT_EQ(one.error.param(), one.param) << one.error.what();
    EXPECT_EQ(Json::parse(one.error.body())["error"]["param"], one.param);
  }
}

TEST(ChatRequest, KeepsTheOrderOfSchemasAndTools) {
  const ChatWire wire = chat(R"({"messages": [{"role": "user", "content": "x"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}}],
    "guided_json": {"type": "object", "properties": {"z": {}, "a": {}}}})");
  EXPECT_THAT(wire.tools->dump(), HasSubstr(R"({"z":1,"a":2})"));
  EXPECT_THAT(wire.common.sampling.constraint.json_schema, HasSubstr(R"({"z":{},"a":{}})"));
  EXPECT_EQ(wire.tool_choice, ToolChoice::kAuto);
}

TEST(ChatRequest, HoldsRequiredCallsToTheirSchemas) {
  const std::string tools = R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function",
    "function": {"name": "f", "parameters": {"type": "object"}}}], "tool_choice": )";
  const ChatWire named = chat(tools + R"({"type": "function", "function": {"name": "f"}}})");
  EXPECT_EQ(named.tool_name, "f");
  EXPECT_EQ(named.common.sampling.constraint.json_schema, R"({"type":"object"})");
  const ChatWire required = chat(tools + R"("required"})");
  EXPECT_EQ(Json::parse(required.common.sampling.constraint.json_schema)["type"], "array");
  EXPECT_EQ(error_of(tools + R"({"type": "function", "function": {"name": "g"}}})").param(), "tool_choice");
  EXPECT_EQ(chat(tools + R"("none"})").tools, nullptr);
}

TEST(ChatRequest, GivesTemplatesTheArgumentsOfCallsAsObjects) {
  const ChatWire wire =
      chat(R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function",
    "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}}]}]})");
  EXPECT_TRUE(wire.messages[0].content_is_null);
  EXPECT_EQ((*wire.messages[0].fields)["tool_calls"][0]["function"]["arguments"].dump(), R"({"b":1,"a":2})");
}

TEST(CompletionRequest, TakesTextsAndIds) {
  const auto prompts = [](std::string_view text) {
    return parse_completion_request(text, SamplingParams()).prompts;
  };
  EXPECT_EQ(prompts(R"({"prompt": "a"})").size(), 1u);
  EXPECT_EQ(prompts(R"({"prompt": ["a", [1, 2]]})")[1].ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_TRUE(prompts(R"({"prompt": [1, 2]})")[0].is_ids);
  EXPECT_THROW(prompts(R"({"prompt": []})"), ApiError);
  EXPECT_THROW(prompts(R"({"prompt": [1, "a"]})"), ApiError);
  EXPECT_EQ(parse_completion_request(R"({"prompt": "a"})", SamplingParams()).common.sampling.max_tokens, 16);
}

}  // namespace
}  // namespace triptych::server

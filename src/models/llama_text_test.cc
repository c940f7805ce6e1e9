#include "models/llama_text.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

LlamaConfig parse(const char* text, bool force_tie = false) {
  const Json json = Json::parse(text);
  return parse_llama_text(JsonView(json, "config.json"), force_tie);
}

TEST(LlamaText, ClassDefaults) {
  const LlamaConfig llama = parse(R"({"text_config": {}})");
  EXPECT_EQ(llama.vocab_size, 32000);
  EXPECT_EQ(llama.n_kv_heads, 32);
  EXPECT_EQ(llama.max_position_embeddings, 2048);
  EXPECT_FALSE(llama.qkv_bias);
  EXPECT_FALSE(llama.qk_norm);
  const LlamaConfig mistral = parse(R"({"text_config": {"model_type": "mistral"}})");
  EXPECT_EQ(mistral.intermediate_size, 14336);
  EXPECT_EQ(mistral.n_kv_heads, 8);
  EXPECT_EQ(mistral.max_position_embeddings, 4096) << "its window";
  const LlamaConfig qwen2 = parse(R"({"text_config": {"model_type": "qwen2", "attention_bias": true}})");
  EXPECT_EQ(qwen2.intermediate_size, 22016);
  EXPECT_EQ(qwen2.max_position_embeddings, 32768);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias);
  const LlamaConfig qwen3 = parse(
      R"({"text_config": {"model_type": "qwen3_vl_text", "hidden_size": 2048, "num_attention_heads": 32}})");
  EXPECT_EQ(qwen3.head_dim, 128) << "whatever the width";
  EXPECT_EQ(qwen3.max_position_embeddings, 128000);
  EXPECT_EQ(qwen3.rope.theta, 500000.0);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
}

TEST(LlamaText, SlidingWindows) {
  const auto context = [](const char* text) { return parse(text).max_position_embeddings; };
  EXPECT_EQ(context(R"({"text_config": {"model_type": "mistral", "sliding_window": null}})"), 131072);
  EXPECT_EQ(context(R"({"text_config": {"model_type": "mistral", "sliding_window": 1000}})"), 1000);
  EXPECT_EQ(context(R"({"text_config": {"model_type": "qwen2", "sliding_window": 1000}})"), 32768);
  EXPECT_EQ(
      context(R"({"text_config": {"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 9}})"),
      9);
}

TEST(LlamaText, TyingIsReadInsideThenOutside) {
  EXPECT_FALSE(parse(R"({"text_config": {}})").tie_stated);
  EXPECT_TRUE(parse(R"({"text_config": {}, "tie_word_embeddings": true})").tie_word_embeddings);
  EXPECT_FALSE(parse(R"({"text_config": {"tie_word_embeddings": false}, "tie_word_embeddings": true})")
                   .tie_word_embeddings);
  EXPECT_TRUE(parse(R"({"text_config": {"tie_word_embeddings": false}})", true).tie_word_embeddings);
}

TEST(LlamaText, UnknownDecodersAreNamed) {
  try {
    parse(R"({"text_config": {"model_type": "gemma"}})");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("text_config.model_type: text model \"gemma\""));
  }
}

}  // namespace
}  // namespace triptych

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
  EXPECT_EQ(mistral.max_position_embeddings, 131072);
  EXPECT_EQ(mistral.window_of(31), 4096);
  EXPECT_EQ(parse(R"({"text_config": {"model_type": "mistral", "num_key_value_heads": null}})").n_kv_heads,
            32);
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
  // The windows of layers 0 to 3.
  const auto windows = [](const std::string& fields) {
    const LlamaConfig c = parse((R"({"text_config": {"num_hidden_layers": 4, )" + fields + "}}").c_str());
    EXPECT_EQ(c.max_position_embeddings, fields.find("mistral") != std::string::npos ? 131072 : 32768)
        << "a window limits no context";
    return std::vector{c.window_of(0), c.window_of(1), c.window_of(2), c.window_of(3)};
  };
  const std::vector<std::int32_t> none = {0, 0, 0, 0};
  EXPECT_EQ(windows(R"("model_type": "mistral", "sliding_window": null)"), none);
  EXPECT_EQ(windows(R"("model_type": "mistral", "sliding_window": 9)"), (std::vector{9, 9, 9, 9}));
  EXPECT_EQ(windows(R"("model_type": "mistral")"), (std::vector{4096, 4096, 4096, 4096}));
  EXPECT_EQ(windows(R"("model_type": "qwen2", "sliding_window": 9)"), none) << "not switched on";
  const std::string on = R"("model_type": "qwen2", "use_sliding_window": true, )";
  EXPECT_EQ(windows(on + R"("sliding_window": 9)"), none) << "from layer 28 on";
  EXPECT_EQ(windows(on + R"("sliding_window": null, "max_window_layers": 0)"), none);
  EXPECT_EQ(windows(on + R"("max_window_layers": 2)"), (std::vector{0, 0, 4096, 4096}));
  EXPECT_EQ(windows(on + R"("sliding_window": 9, "max_window_layers": 3)"), (std::vector{0, 0, 0, 9}));
  EXPECT_EQ(windows(on + R"("sliding_window": 9, "max_window_layers": 0, "layer_types": ["full_attention",)"
                         R"("full_attention", "full_attention", "full_attention"])"),
            none);
  EXPECT_EQ(windows(on + R"("sliding_window": 9, "layer_types": ["sliding_attention", "full_attention",)"
                         R"("sliding_attention", "full_attention"])"),
            (std::vector{9, 0, 9, 0}));
}

TEST(LlamaText, BadWindowsAreNamed) {
  const auto refused = [](const char* fields, const char* message) {
    try {
      parse(fmt::format(R"({{"text_config": {{"model_type": "qwen2", "num_hidden_layers": 2, {}}}}})", fields)
                .c_str());
      ADD_FAILURE() << fields << " accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(message));
    }
  };
  refused(R"("use_sliding_window": true, "sliding_window": 0)",
          "text_config.sliding_window: expected an integer in [1,");
  refused(R"("use_sliding_window": true, "max_window_layers": -1)",
          "text_config.max_window_layers: expected");
  refused(R"("layer_types": ["full_attention"])",
          "text_config.layer_types: expected one type for each of the 2 layers");
  refused(R"("layer_types": ["full_attention", "chunked_attention"])",
          "text_config.layer_types[1]: \"chunked_attention\" is not supported");
  refused(R"("layer_types": ["full_attention", "sliding_attention"])",
          "text_config.layer_types[1]: \"sliding_attention\" needs use_sliding_window true");
}

TEST(LlamaText, TyingIsReadInsideAndOutside) {
  EXPECT_FALSE(parse(R"({"text_config": {}})").tie_stated);
  EXPECT_TRUE(parse(R"({"text_config": {}, "tie_word_embeddings": true})").tie_word_embeddings);
  EXPECT_TRUE(parse(R"({"text_config": {"tie_word_embeddings": false}, "tie_word_embeddings": true})")
                  .tie_word_embeddings);
  EXPECT_TRUE(parse(R"({"text_config": {"tie_word_embeddings": true}, "tie_word_embeddings": false})")
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

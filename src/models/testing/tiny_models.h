// Every family with tiny widths and random weights, in its published picture geometry or in a small one, so
// that arithmetic, pixels and towers can be run on any number of pictures.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/json.h"
#include "models/model.h"
#include "weights/weight_providers.h"

namespace triptych::test {

enum class Geometry { kPublished, kSmall };

inline constexpr std::string_view kFamilies[] = {"llava",    "llava_next",  "llava_onevision", "qwen_vl",
                                                 "qwen2_vl", "qwen2_5_vl",  "qwen3_vl",        "fuyu",
                                                 "blip2",    "instructblip"};

/// config.json, and preprocessor_config.json with it (null: none).
struct TinyFiles {
  Json config;
  Json preprocessor;
  std::map<std::string, std::int32_t, std::less<>> tokens = {};  // of a tokenizer; empty: none
};

inline TinyFiles tiny_files(std::string_view family, Geometry geometry) {
  const bool small = geometry == Geometry::kSmall;
  const auto read = [](std::string_view text) { return parse_json(text, "tiny_models.h"); };
  const Json llama = read(R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 8,
      "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 16})");
  const Json clip = read(R"({"model_type": "clip_vision_model", "hidden_size": 8, "intermediate_size": 8,
      "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 336, "patch_size": 14})");
  const Json eva = read(R"({"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
      "num_attention_heads": 2, "image_size": 224, "patch_size": 14})");
  const Json qformer = read(R"({"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2,
      "num_attention_heads": 2, "encoder_hidden_size": 8, "vocab_size": 16, "max_position_embeddings": 16})");
  const Json qwen2 = read(R"({"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
      "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 32, "image_token_id": 20,
      "video_token_id": 21, "vision_token_id": 22, "max_position_embeddings": 32768,
      "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}})");
  TinyFiles out;
  const auto clip_processor = [&](int side) {
    return Json{{"size", {{"shortest_edge", side}}}, {"crop_size", {{"width", side}, {"height", side}}}};
  };
  if (family == "llava" || family == "llava_next") {
    out.config = {
        {"architectures",
         {family == "llava" ? "LlavaForConditionalGeneration" : "LlavaNextForConditionalGeneration"}},
        {"model_type", family},
        {"image_token_index", 9},
        {"text_config", llama},
        {"vision_config", clip}};
    const int side = small ? 28 : 336;
    out.config["vision_config"]["image_size"] = side;
    if (family == "llava") {
      out.preprocessor = clip_processor(side);
    } else {
      out.config["image_grid_pinpoints"] = {
          {side, 2 * side}, {2 * side, side}, {2 * side, 2 * side}, {3 * side, side}, {side, 3 * side}};
    }
  } else if (family == "llava_onevision") {
    const int side = small ? 28 : 384;
    out.config = {{"architectures", {"LlavaOnevisionForConditionalGeneration"}},
                  {"model_type", family},
                  {"image_token_index", 9},
                  {"video_token_index", 10},
                  {"text_config", llama},
                  {"vision_config", clip}};
    out.config["text_config"]["model_type"] = "qwen2";
    out.config["text_config"]["num_key_value_heads"] = 1;
    out.config["vision_config"]["model_type"] = "siglip_vision_model";
    out.config["vision_config"]["image_size"] = side;
    if (small) out.config["vision_aspect_ratio"] = "anyres_max_2";
  } else if (family == "blip2" || family == "instructblip") {
    const bool opt = family == "blip2";
    out.config = {
        {"architectures", {opt ? "Blip2ForConditionalGeneration" : "InstructBlipForConditionalGeneration"}},
        {"model_type", family},
        {"image_token_index", 9},
        {"num_query_tokens", 32},
        {"vision_config", eva},
        {"qformer_config", qformer},
        {"text_config", opt ? read(R"({"model_type": "opt", "hidden_size": 8, "ffn_dim": 8,
                      "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 16})")
                            : llama}};
    const int side = small ? 28 : 224;
    out.config["vision_config"]["image_size"] = side;
    out.preprocessor = {{"image_processor_type", "BlipImageProcessor"},
                        {"size", {{"width", side}, {"height", side}}}};
  } else if (family == "qwen2_vl" || family == "qwen2_5_vl") {
    out.config = qwen2;
    out.config["model_type"] = family;
    if (family == "qwen2_vl") {
      out.config["architectures"] = {"Qwen2VLForConditionalGeneration"};
      out.config["vision_config"] =
          read(R"({"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "mlp_ratio": 1})");
    } else {
      out.config["architectures"] = {"Qwen2_5_VLForConditionalGeneration"};
      out.config["vision_config"] = read(R"({"depth": 2, "hidden_size": 16, "out_hidden_size": 16,
          "intermediate_size": 16, "num_heads": 2, "fullatt_block_indexes": [1], "window_size": 112})");
    }
    out.preprocessor = {{"min_pixels", 3136}, {"max_pixels", small ? 28 * 28 * 100 : 12845056}};
  } else if (family == "qwen3_vl") {
    out.config = read(R"({"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl",
        "image_token_id": 20, "video_token_id": 21, "text_config": {"model_type": "qwen3_vl_text",
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 12, "vocab_size": 32, "max_position_embeddings": 32768,
        "rope_scaling": {"rope_type": "default", "mrope_section": [2, 2, 2]}},
        "vision_config": {"depth": 2, "hidden_size": 16, "out_hidden_size": 16, "intermediate_size": 16,
        "num_heads": 2, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}})");
    out.preprocessor = read(R"({"patch_size": 16, "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5], "size": {"shortest_edge": 65536, "longest_edge": 16777216}})");
    if (small) out.preprocessor["size"] = {{"shortest_edge", 4096}, {"longest_edge", 32 * 32 * 100}};
  } else if (family == "fuyu") {
    out.config = read(R"({"architectures": ["FuyuForCausalLM"], "model_type": "fuyu", "vocab_size": 262144,
        "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1})");
    out.config["patch_size"] = small ? 6 : 30;
    out.preprocessor = {{"size", {{"width", small ? 96 : 1920}, {"height", small ? 54 : 1080}}}};
  } else if (family == "qwen_vl") {
    out.config = read(R"({"architectures": ["QWenLMHeadModel"], "model_type": "qwen", "vocab_size": 32,
        "hidden_size": 128, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1,
        "kv_channels": 128, "visual": {"width": 8, "layers": 1, "heads": 2, "mlp_ratio": 2, "output_dim": 128,
        "image_size": 448, "patch_size": 14, "image_start_id": 20}})");
    if (small) out.config["visual"]["image_size"] = 56;
  }
  return out;
}

/// A model and all that it borrows.
class TinyModel {
 public:
  TinyModel(std::string_view family, Geometry geometry) : TinyModel(tiny_files(family, geometry)) {}
  explicit TinyModel(TinyFiles files)
      : files_(std::move(files)),
        backend_(make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt})) {
    ModelSource source{.config = JsonView(files_.config, "config.json")};
    if (!files_.preprocessor.is_null())
      source.preprocessor = JsonView(files_.preprocessor, "preprocessor_config.json");
    if (!files_.tokens.empty())
      source.token_id = [this](std::string_view content) {
        const auto found = files_.tokens.find(content);
        return found == files_.tokens.end() ? std::nullopt : std::optional(found->second);
      };
    source.weights = &weights_;
    source.backend = backend_.get();
    model_ = ModelRegistry::global().find(source.config).load(source);
  }
  const Model& operator*() const { return *model_; }
  const Model* operator->() const { return model_.get(); }
  Backend& backend() { return *backend_; }

 private:
  TinyFiles files_;
  std::unique_ptr<Backend> backend_;
  RandomWeights weights_{DType::kBF16, 1};
  std::unique_ptr<Model> model_;
};

}  // namespace triptych::test

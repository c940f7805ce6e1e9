// Sources: config.json of llava-hf/llava-1.5-7b-hf and -13b-hf, llava-hf/llava-v1.6-mistral-7b-hf,
// llava-hf/llava-onevision-qwen2-0.5b-ov-hf and -7b-ov-hf,
// Qwen/Qwen2-VL-2B- and 7B-Instruct, Qwen/Qwen2.5-VL-3B- and 7B-Instruct, Qwen/Qwen3-VL-2B- to 32B-Instruct,
// adept/fuyu-8b; llava-0.5b pairs
// google/siglip-so400m-patch14-384 with Qwen/Qwen2-0.5B.
#include "benchmark/published_shapes.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace triptych {
namespace {

constexpr std::string_view kLlava7b =
    R"({"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
  "image_token_index": 32000, "text_config": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
  "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05,
  "vocab_size": 32064}, "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336,
  "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14}})";

constexpr std::string_view kLlava13b =
    R"({"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
  "image_token_index": 32000, "text_config": {"model_type": "llama", "hidden_size": 5120, "intermediate_size": 13824,
  "num_hidden_layers": 40, "num_attention_heads": 40, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05,
  "vocab_size": 32064}, "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336,
  "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14}})";

constexpr std::string_view kLlavaHalfB =
    R"({"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
  "image_token_index": 151646, "tie_word_embeddings": true, "vision_feature_layer": -1,
  "vision_feature_select_strategy": "full", "text_config": {"model_type": "qwen2", "hidden_size": 896,
  "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
  "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": true,
  "vocab_size": 151936}, "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 384,
  "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14}})";

// Not published: the size that bench/peers compares with other engines.
constexpr std::string_view kLlavaClipHalfB =
    R"({"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
  "image_token_index": 32000, "text_config": {"model_type": "llama", "hidden_size": 896, "intermediate_size": 4864,
  "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-05, "vocab_size": 32064}, "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024,
  "image_size": 336, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14}})";

constexpr std::string_view kLlavaNextMistral7b = R"({"architectures": ["LlavaNextForConditionalGeneration"],
  "model_type": "llava_next", "image_token_index": 32000, "use_image_newline_parameter": true,
  "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
  "text_config": {"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-05,
  "rope_theta": 1000000.0, "sliding_window": null, "vocab_size": 32064}, "vision_config": {
  "model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
  "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14}})";

constexpr std::string_view kLlavaOnevisionHalfB =
    R"({"architectures": ["LlavaOnevisionForConditionalGeneration"],
  "model_type": "llava_onevision", "image_token_index": 151646, "video_token_index": 151647,
  "tie_word_embeddings": true, "vision_aspect_ratio": "anyres_max_9", "text_config": {"model_type": "qwen2",
  "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
  "num_key_value_heads": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "tie_word_embeddings": true, "vocab_size": 152000}, "vision_config": {"model_type": "siglip_vision_model",
  "hidden_size": 1152, "image_size": 384, "intermediate_size": 4304, "num_attention_heads": 16,
  "num_hidden_layers": 26, "patch_size": 14}})";

constexpr std::string_view kLlavaOnevision7b =
    R"({"architectures": ["LlavaOnevisionForConditionalGeneration"],
  "model_type": "llava_onevision", "image_token_index": 151646, "video_token_index": 151647,
  "tie_word_embeddings": false, "vision_aspect_ratio": "anyres_max_9", "text_config": {"model_type": "qwen2",
  "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
  "num_key_value_heads": 4, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "tie_word_embeddings": false, "vocab_size": 152128}, "vision_config": {"model_type": "siglip_vision_model",
  "hidden_size": 1152, "image_size": 384, "intermediate_size": 4304, "num_attention_heads": 16,
  "num_hidden_layers": 26, "patch_size": 14}})";

constexpr std::string_view kQwen2Vl2b = R"({"architectures": ["Qwen2VLForConditionalGeneration"],
  "model_type": "qwen2_vl", "image_token_id": 151655, "video_token_id": 151656, "vision_start_token_id": 151652,
  "vision_end_token_id": 151653, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
  "num_attention_heads": 12, "num_key_value_heads": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
  "tie_word_embeddings": true, "vocab_size": 151936, "vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 1536,
  "mlp_ratio": 4, "num_heads": 16, "in_chans": 3, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}})";

constexpr std::string_view kQwen2Vl7b = R"({"architectures": ["Qwen2VLForConditionalGeneration"],
  "model_type": "qwen2_vl", "image_token_id": 151655, "video_token_id": 151656, "vision_start_token_id": 151652,
  "vision_end_token_id": 151653, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
  "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
  "tie_word_embeddings": false, "vocab_size": 152064, "vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 3584,
  "mlp_ratio": 4, "num_heads": 16, "in_chans": 3, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}})";

constexpr std::string_view kQwen25Vl3b = R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"],
  "model_type": "qwen2_5_vl", "image_token_id": 151655, "video_token_id": 151656, "vision_start_token_id": 151652,
  "vision_end_token_id": 151653, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
  "num_attention_heads": 16, "num_key_value_heads": 2, "max_position_embeddings": 128000, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
  "tie_word_embeddings": true, "vocab_size": 151936, "vision_config": {"depth": 32, "hidden_size": 1280,
  "intermediate_size": 3420, "out_hidden_size": 2048, "num_heads": 16, "in_chans": 3, "patch_size": 14,
  "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
  "tokens_per_second": 2}})";

constexpr std::string_view kQwen25Vl7b = R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"],
  "model_type": "qwen2_5_vl", "image_token_id": 151655, "video_token_id": 151656, "vision_start_token_id": 151652,
  "vision_end_token_id": 151653, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
  "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 128000, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
  "tie_word_embeddings": false, "vocab_size": 152064, "vision_config": {"depth": 32, "hidden_size": 1280,
  "intermediate_size": 3420, "out_hidden_size": 3584, "num_heads": 16, "in_chans": 3, "patch_size": 14,
  "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
  "tokens_per_second": 2}})";

constexpr std::string_view kQwen3Vl2b = R"({"architectures": ["Qwen3VLForConditionalGeneration"],
  "model_type": "qwen3_vl", "image_token_id": 151655, "video_token_id": 151656, "vision_start_token_id": 151652,
  "vision_end_token_id": 151653, "tie_word_embeddings": true, "text_config": {"model_type": "qwen3_vl_text",
  "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16,
  "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144, "rms_norm_eps": 1e-06,
  "rope_theta": 5000000, "rope_scaling": {"rope_type": "default", "mrope_interleaved": true,
  "mrope_section": [24, 20, 20]}, "vocab_size": 151936}, "vision_config": {"depth": 24, "hidden_size": 1024,
  "intermediate_size": 4096, "num_heads": 16, "out_hidden_size": 2048, "deepstack_visual_indexes": [5, 11, 17],
  "num_position_embeddings": 2304, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2}})";

// What the larger ones have otherwise (JSON merge patches, RFC 7396).
constexpr std::string_view kQwen3Vl4b = R"({"text_config": {"hidden_size": 2560, "intermediate_size": 9728,
  "num_hidden_layers": 36, "num_attention_heads": 32}, "vision_config": {"out_hidden_size": 2560}})";

constexpr std::string_view kQwen3Vl8b = R"({"tie_word_embeddings": false, "text_config": {"hidden_size": 4096,
  "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32}, "vision_config": {"depth": 27,
  "hidden_size": 1152, "intermediate_size": 4304, "out_hidden_size": 4096,
  "deepstack_visual_indexes": [8, 16, 24]}})";

constexpr std::string_view kQwen3Vl32b =
    R"({"tie_word_embeddings": false, "text_config": {"hidden_size": 5120,
  "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64}, "vision_config": {"depth": 27,
  "hidden_size": 1152, "intermediate_size": 4304, "out_hidden_size": 5120,
  "deepstack_visual_indexes": [8, 16, 24]}})";

constexpr std::string_view kFuyu8b = R"({"architectures": ["FuyuForCausalLM"], "model_type": "fuyu",
  "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 36, "num_attention_heads": 64,
  "hidden_act": "relu2", "layer_norm_eps": 1e-05, "rope_theta": 25000.0, "partial_rotary_factor": 0.5,
  "qk_layernorm": true, "max_position_embeddings": 16384, "patch_size": 30, "num_channels": 3,
  "tie_word_embeddings": false, "vocab_size": 262144})";

// Where families keep the number of layers of their language model.
Json& language_part(Json& config) {
  const auto text = config.find("text_config");
  return text != config.end() && text->is_object() ? *text : config;
}

}  // namespace

const std::vector<PublishedShape>& published_shapes() {
  static const std::vector<PublishedShape> shapes = {
      {"llava-0.5b", "SigLIP so400m/14 at 384, Qwen2 0.5B", kLlavaHalfB},
      {"llava-clip-0.5b", "CLIP ViT-L/14 at 336, a LLaMA as wide as Qwen2 0.5B (not published)",
       kLlavaClipHalfB},
      {"llava-1.5-7b", "CLIP ViT-L/14 at 336, Vicuna 7B", kLlava7b},
      {"llava-1.5-13b", "CLIP ViT-L/14 at 336, Vicuna 13B", kLlava13b},
      {"llava-1.6-mistral-7b", "CLIP ViT-L/14 at 336 in tiles, Mistral 7B", kLlavaNextMistral7b},
      {"llava-onevision-0.5b", "SigLIP so400m/14 at 384 in tiles, Qwen2 0.5B", kLlavaOnevisionHalfB},
      {"llava-onevision-7b", "SigLIP so400m/14 at 384 in tiles, Qwen2 7B", kLlavaOnevision7b},
      {"qwen2-vl-2b", "ViT of 32 blocks, Qwen2 1.5B", kQwen2Vl2b},
      {"qwen2-vl-7b", "ViT of 32 blocks, Qwen2 7B", kQwen2Vl7b},
      {"qwen2.5-vl-3b", "windowed ViT of 32 blocks, Qwen2.5 3B", kQwen25Vl3b},
      {"qwen2.5-vl-7b", "windowed ViT of 32 blocks, Qwen2.5 7B", kQwen25Vl7b},
      {"qwen3-vl-2b", "ViT of 24 blocks, Qwen3 1.7B, DeepStack", kQwen3Vl2b},
      {"qwen3-vl-4b", "ViT of 24 blocks, Qwen3 4B, DeepStack", kQwen3Vl2b, kQwen3Vl4b},
      {"qwen3-vl-8b", "ViT of 27 blocks, Qwen3 8B, DeepStack", kQwen3Vl2b, kQwen3Vl8b},
      {"qwen3-vl-32b", "ViT of 27 blocks, Qwen3 32B, DeepStack", kQwen3Vl2b, kQwen3Vl32b},
      {"fuyu-8b", "no tower, Persimmon 8B", kFuyu8b},
  };
  return shapes;
}

Json published_config(std::string_view name, int n_layers) {
  std::string known;
  for (const PublishedShape& shape : published_shapes()) {
    if (shape.name == name) {
      Json config = parse_json(shape.config, shape.name);
      if (!shape.patch.empty()) config.merge_patch(parse_json(shape.patch, shape.name));
      if (const auto all = language_layers(config); all && n_layers > *all)
        fail(ErrorCode::kInvalidArgument, "{} layers: {} has {}", n_layers, name, *all);
      if (n_layers > 0) set_language_layers(config, n_layers);
      return config;
    }
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  }
  fail(ErrorCode::kInvalidArgument, "no shape is named \"{}\"; known: {}", name, known);
}

std::optional<int> language_layers(const Json& config) {
  Json copy = config;
  const Json& part = language_part(copy);
  const auto found = part.find("num_hidden_layers");
  if (found == part.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int>();
}

void set_language_layers(Json& config, int n_layers) {
  language_part(config)["num_hidden_layers"] = n_layers;
}

}  // namespace triptych

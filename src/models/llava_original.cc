#include "models/llava_original.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/clip_image_processor.h"
#include "models/llama_text.h"

namespace triptych {
namespace {

constexpr std::string_view kLlamaClass = "LlavaLlamaForCausalLM";
constexpr std::string_view kMistralClass = "LlavaMistralForCausalLM";

[[noreturn]] void refuse(const JsonView& c, std::string_view key, std::string_view value,
                         std::string_view supported) {
  fail(ErrorCode::kUnsupported, "{}.{}: \"{}\" is not supported; supported: {}", c.path(), key,
       value.substr(0, 200), supported);
}

LlavaVisionConfig parse_vision(const JsonView& c) {
  LlavaVisionConfig out;
  const std::string tower = c.at("mm_vision_tower").as_string();
  ClipVisionConfig& v = out.tower;
  v.hidden_size = 1024;
  v.intermediate_size = 4096;
  v.n_layers = 24;
  v.n_heads = 16;
  v.patch_size_px = 14;
  if (tower.ends_with("clip-vit-large-patch14-336")) {
    v.image_size_px = 336;
  } else if (tower.ends_with("clip-vit-large-patch14")) {
    v.image_size_px = 224;
  } else {
    refuse(c, "mm_vision_tower", tower, "clip-vit-large-patch14-336, clip-vit-large-patch14");
  }
  const std::string projector = c.get_string("mm_projector_type", "linear");
  if (projector != "mlp2x_gelu") refuse(c, "mm_projector_type", projector, "mlp2x_gelu");
  // Features of several scales, and what pools or draws them anew before the projector.
  if (c.get_bool("s2", false)) refuse(c, "s2", "true", "false");
  const std::string resampler = c.get_string("mm_resampler_type", "");
  if (!resampler.empty()) refuse(c, "mm_resampler_type", resampler, "null");
  const Json minus_two = -2;
  out.add_feature_layer(c.find("mm_vision_select_layer").value_or(JsonView(minus_two, c.path())));
  const std::string feature = c.get_string("mm_vision_select_feature", "patch");
  if (feature != "patch" && feature != "cls_patch")
    refuse(c, "mm_vision_select_feature", feature, "patch, cls_patch");
  out.drop_first_row = feature == "patch";
  return out;
}

AnyRes parse_tiles(const ModelSource& source, const LlavaVisionConfig& vision) {
  const JsonView& c = source.config;
  if (!vision.drop_first_row)
    refuse(c, "mm_vision_select_feature", "cls_patch", "patch, where pictures are tiled");
  const std::string merge = c.get_string("mm_patch_merge_type", "flat");
  if (merge != "spatial_unpad")
    refuse(c, "mm_patch_merge_type", merge, "spatial_unpad, where image_aspect_ratio asks for tiles");
  const JsonView pinpoints = c.at("image_grid_pinpoints");
  if (pinpoints.is_string())
    refuse(c, "image_grid_pinpoints", pinpoints.as_string(), "a list of [width, height]");
  AnyRes out = AnyRes::parse(c, vision, pinpoints, AnyRes::PairOrder::kWidthHeight, std::nullopt);
  out.set_cap(c.at("image_aspect_ratio"), false);
  return out;
}

ImageBrackets parse_brackets(const ModelSource& source, std::int64_t vocab_size) {
  const auto id_of = [&](std::string_view token) {
    const auto id = source.token_id ? source.token_id(token) : std::nullopt;
    if (!id || *id >= vocab_size)
      fail(ErrorCode::kUnsupported,
           "{}.mm_use_im_start_end: true, but {} is no token of the tokenizer and the vocabulary of {}",
           source.config.path(), token, vocab_size);
    return *id;
  };
  return {.start = id_of("<im_start>"), .end = id_of("<im_end>")};
}

}  // namespace

bool is_llava_original(const JsonView& c) { return !c.has("text_config"); }

bool is_tiled_original(const JsonView& c) {
  const auto ratio = c.find("image_aspect_ratio");
  return ratio && ratio->is_string() && ratio->as_string().starts_with("anyres");
}

std::string_view llava_original_class(const JsonView& c) {
  if (const auto names = c.find("architectures"); names && names->is_array())
    for (const JsonView& name : names->items())
      if (name.is_string() && name.as_string() == kMistralClass) return kMistralClass;
  return c.get_string("model_type", "") == "llava_mistral" ? kMistralClass : kLlamaClass;
}

std::vector<std::int32_t> ImageBrackets::around(std::span<const std::int32_t> ids,
                                                std::int32_t placeholder) const {
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool is_picture = ids[i] == placeholder;
    if (is_picture && (i == 0 || ids[i - 1] != start)) out.push_back(start);
    out.push_back(ids[i]);
    if (is_picture && (i + 1 == ids.size() || ids[i + 1] != end)) out.push_back(end);
  }
  return out;
}

LlavaOriginal LlavaOriginal::parse(const ModelSource& source) {
  const JsonView& c = source.config;
  LlavaOriginal out;
  // Its model_type is its own ("llava", "llava_llama", "llava_mistral"); the numbers are the language
  // model's.
  out.text_model_type = llava_original_class(c) == kMistralClass ? "mistral" : "llama";
  out.text = LlamaConfig::parse(c, llama_defaults(out.text_model_type, c));
  out.text.tie_word_embeddings = out.text.tie_word_embeddings || source.tie_word_embeddings;
  out.vision = parse_vision(c);
  // Pictures take an id behind the vocabulary, which never reaches the embedding.
  out.image_token_id = static_cast<std::int32_t>(out.text.vocab_size);
  const std::string ratio = c.get_string("image_aspect_ratio", "square");
  if (is_tiled_original(c)) {
    out.anyres = parse_tiles(source, out.vision);
  } else {
    if (ratio != "square" && ratio != "pad")
      refuse(c, "image_aspect_ratio", ratio, "square, pad, anyres, anyres_max_N");
    // Whether one view gets a newline depends on who calls the original code, and how.
    const std::string merge = c.get_string("mm_patch_merge_type", "flat");
    if (merge != "flat") refuse(c, "mm_patch_merge_type", merge, "flat, where pictures are not tiled");
    out.do_pad = ratio == "pad";
  }
  if (c.get_bool("mm_use_im_start_end", false)) out.brackets = parse_brackets(source, out.text.vocab_size);
  return out;
}

}  // namespace triptych

#include "nn/llava_vision.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/profile.h"
#include "nn/activation.h"

namespace triptych {

void LlavaVisionConfig::add_feature_layer(const JsonView& value) {
  const int n_states = tower.n_layers + 1;
  const auto index = static_cast<int>(value.as_int(-n_states, n_states - 1));
  feature_layers.push_back(index < 0 ? n_states + index : index);
}

LlavaVisionDefaults llava_vision_defaults() {
  LlavaVisionDefaults out;
  out.tower.hidden_size = 1024;
  out.tower.intermediate_size = 4096;
  out.tower.n_layers = 24;
  out.tower.n_heads = 16;
  out.tower.image_size_px = 336;
  out.tower.patch_size_px = 14;
  return out;
}

LlavaVisionConfig LlavaVisionConfig::parse(const JsonView& c, const LlavaVisionDefaults& defaults) {
  LlavaVisionConfig out;
  // An object that leaves fields out takes the tower's own class defaults (CLIPVisionConfig's are those of
  // ViT-B/32).
  const auto vision = c.find("vision_config");
  out.tower = vision ? ClipVisionConfig::parse(*vision) : defaults.tower;
  const Json default_layer = defaults.feature_layer;
  const JsonView layer = c.find("vision_feature_layer").value_or(JsonView(default_layer, c.path()));
  if (layer.is_array()) {
    for (const JsonView& item : layer.items()) out.add_feature_layer(item);
    if (out.feature_layers.empty() || out.feature_layers.size() > 64) layer.fail_expected("1 to 64 layers");
  } else {
    out.add_feature_layer(layer);
  }
  const std::string strategy =
      c.get_string("vision_feature_select_strategy", defaults.drop_first_row ? "default" : "full");
  if (strategy != "default" && strategy != "full")
    fail(ErrorCode::kInvalidFile,
         "{}.vision_feature_select_strategy: expected \"default\" or \"full\", got \"{}\"", c.path(),
         strategy);
  out.drop_first_row = strategy == "default";
  out.projector_hidden_act = get_activation(c, "projector_hidden_act", Activation::kGelu);
  out.projector_bias = c.get_bool("multimodal_projector_bias", true) ? Bias::kRequired : Bias::kNone;
  return out;
}

LlavaVision LlavaVision::bind(const LlavaVisionConfig& config, const Binder& vision, const Binder& projector,
                              std::int64_t width) {
  LlavaVision out;
  out.config_ = config;
  out.width_ = width;
  out.vision_tower_ = ClipVision::bind(
      config.tower, vision.scope("vision_tower"),
      *std::max_element(config.feature_layers.begin(), config.feature_layers.end()), "model.vision_tower");
  Binder linears = projector.scope("multi_modal_projector");
  out.linear_1_ = linears.linear(
      "linear_1", width, config.tower.hidden_size * static_cast<std::int64_t>(config.feature_layers.size()),
      config.projector_bias);
  out.linear_2_ = linears.linear("linear_2", width, width, config.projector_bias);
  out.linear_1_->set_reader(*out.linear_2_);
  return out;
}

TensorView LlavaVision::encode(ExecContext& cx, std::span<const TensorView> pictures) const {
  const auto n = static_cast<std::int64_t>(pictures.size());
  const std::int64_t rows = config_.tower.n_rows();          // S
  const std::int64_t tokens = config_.tokens_per_picture();  // S or S - 1
  const std::int64_t dv = config_.tower.hidden_size;
  const std::size_t n_states = config_.feature_layers.size();
  TensorView out = cx.empty({n * tokens, width_});
  const ArenaScope scratch(cx.arena());
  const auto states = cx.arena().make_span<TensorView>(n_states);
  vision_tower_.forward(cx, pictures, config_.feature_layers, states);  // each [n S, Dv]
  TensorView features = cx.empty({n * tokens, static_cast<std::int64_t>(n_states) * dv});
  for (std::size_t s = 0; s < n_states; ++s)
    for (std::int64_t i = 0; i < n; ++i) {
      const auto first = static_cast<std::int64_t>(s) * dv;
      cx.copy(states[s].rows((i + 1) * rows - tokens, (i + 1) * rows),
              features.rows(i * tokens, (i + 1) * tokens).cols(first, first + dv));
    }
  const ProfileZone zone("projector");
  const Activations x = cx.linear(*linear_1_, features, config_.projector_hidden_act);  // [n tokens, D]
  cx.linear_into(*linear_2_, x, out);                                                   // [n tokens, D]
  cx.tap(out, "model.multi_modal_projector");
  return out;
}

}  // namespace triptych

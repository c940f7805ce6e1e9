// Qwen2-VL (and QVQ, and fine-tunes of them): a tower for any resolution with 2-D rotary positions, a merger
// that joins 2x2 patches, a Qwen2 decoder with M-RoPE; pictures and videos.
//   Wang et al., "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution"
//   (arXiv 2409.12191), section 2.1. Reference: transformers 5.24, models/qwen2_vl/modeling_qwen2_vl.py.
// Shapes: P patches, Dv tower width, Fv its feed-forward width, m merge size, D language width, T tokens, V
// vocabulary. Deviations: EXIF orientation is applied and alpha composited over white before the processor
// (the reference does neither); frames of videos are resized with Pillow's bicubic.
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/profile.h"
#include "models/model.h"
#include "models/qwen2_vl_common.h"
#include "models/region_tags.h"
#include "nn/activation.h"
#include "nn/config_numbers.h"
#include "nn/norm.h"

namespace triptych {
namespace {

constexpr RegionTags kRegionTags{.ref_open = "<|object_ref_start|>",
                                 .ref_close = "<|object_ref_end|>",
                                 .box_open = "<|box_start|>",
                                 .box_close = "<|box_end|>",
                                 .quad_open = "<|quad_start|>",
                                 .quad_close = "<|quad_end|>"};
// ---- configuration
// ------------------------------------------------------------------------------------------------

Qwen2VlConfig parse_config(const ModelSource& source) {
  const JsonView v = source.config.at("vision_config");
  // hidden_size is the width of the merger's output here, not the tower's.
  Qwen2VlConfig out =
      Qwen2VlConfig::parse(source, parse_qwen2_vl_text(source.config, source.tie_word_embeddings),
                           QwenVisionConfig::parse(v, "embed_dim", {.width = 1280}), "hidden_size");
  const double ratio = read_positive(v, "mlp_ratio", 4.0, 64.0);
  out.vision_intermediate = static_cast<std::int64_t>(static_cast<double>(out.vision.width) * ratio);
  if (out.vision_intermediate < 1)
    fail(ErrorCode::kInvalidFile, "{}.mlp_ratio: {} of {} columns leaves none", v.path(), ratio,
         out.vision.width);
  out.vision_act = get_activation(v, "hidden_act", Activation::kQuickGelu);
  out.videos = Qwen2ImageProcessor::for_videos(Qwen2VlConfig::video_file(source), out.geometry());
  return out;
}

// ---- the model
// ----------------------------------------------------------------------------------------------------

class Qwen2Vl : public Qwen2VlModel {
 public:
  explicit Qwen2Vl(const ModelSource& source);
  std::vector<Region> find_regions(std::string_view text, std::span<const std::int32_t>,
                                   std::span<const MediaPlan> plans) const override {
    return find_tagged_regions(text, kRegionTags, plans);
  }

 private:
  void encode_frames(ExecContext& cx, std::span<const VisionFrame> frames, TensorView out) const override;

  std::vector<LayerNormBlock> blocks_;
  LayerNorm merger_ln_q_;
  MergerMlp merger_mlp_;
};

Qwen2Vl::Qwen2Vl(const ModelSource& source) : Qwen2VlModel(parse_config(source)) {
  const Binder vision = bind_patch_embed(source, Bias::kNone);
  for (int i = 0; i < config_.vision.depth; ++i)
    blocks_.push_back(LayerNormBlock::bind(vision.scope(fmt::format("blocks.{}", i)), "mlp.fc1", "mlp.fc2",
                                           config_, kTowerEps));
  Binder merger = merger_scope(source);
  merger_ln_q_ = LayerNorm::bind(merger, "ln_q", config_.vision.width, kTowerEps);
  merger_mlp_ = MergerMlp::bind(merger, "mlp.0", "mlp.2", config_);
  merger.equalizable({.writers = {{"ln_q.weight"}, {"ln_q.bias"}},
                      .readers = {"mlp.0.weight"},
                      .n_channels = config_.vision.width,
                      .repeat = config_.vision.merged_width() / config_.vision.width});
  bind_language_model(source);
  info_.family = "qwen2_vl";
  info_.architecture = "Qwen2VLForConditionalGeneration";
  info_.names_regions = true;
}

// out [P / (m m), D].
void Qwen2Vl::encode_frames(ExecContext& cx, std::span<const VisionFrame> frames, TensorView out) const {
  const std::span<const std::int32_t> segments = frame_segments(cx, frames);
  TensorView h = embed_patches(cx, frames, segments);  // [P, Dv]
  const RopeAngles rope = rope_angles(cx, frames);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    cx.block({"model.visual", "blocks", static_cast<int>(i)}, h, [&] {
      blocks_[i](cx, h, {rope, segments, config_.vision.n_heads, config_.vision_act});
    });
  const ProfileZone zone("projector");
  merger_mlp_(cx, joined(merger_ln_q_(cx, h)), out);  // [P / (m m), D]
  cx.tap(out, "model.visual.merger");
}

}  // namespace

void register_qwen2_vl(ModelRegistry& registry) {
  registry.add({.name = "qwen2_vl",
                .architectures = {"Qwen2VLForConditionalGeneration"},
                .matches = nullptr,
                .load = [](const ModelSource& source) { return std::make_unique<Qwen2Vl>(source); },
                .takes_videos = true,
                .without_preprocessor = ModelRegistry::needs_preprocessor});
}

}  // namespace triptych

// Qwen2-VL (and QVQ, and fine-tunes of them): a tower for any resolution with 2-D rotary positions, a merger
// that joins 2x2 patches, a Qwen2 decoder with M-RoPE; pictures and videos.
//   Wang et al., "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution"
//   (arXiv 2409.12191), section 2.1. Reference: transformers 5.24, models/qwen2_vl/modeling_qwen2_vl.py.
// Shapes: P patches, Dv tower width, Fv its feed-forward width, m merge size, D language width, T tokens, V
// vocabulary. Deviations: EXIF orientation is applied and alpha composited over white before the processor
// (the reference does neither); frames of videos are resized with Pillow's bicubic.
#include "base/error.h"
#include "base/profile.h"
#include "models/model.h"
#include "models/prompt_layout.h"
#include "models/qwen2_image_processor.h"
#include "models/qwen2_prompt.h"
#include "models/region_tags.h"
#include "nn/activation.h"
#include "nn/llama_decoder.h"
#include "nn/norm.h"
#include "nn/qwen_vision.h"
#include "weights/weight_names.h"

namespace triptych {
namespace {

constexpr RegionTags kRegionTags{.ref_open = "<|object_ref_start|>",
                                 .ref_close = "<|object_ref_end|>",
                                 .box_open = "<|box_start|>",
                                 .box_close = "<|box_end|>",
                                 .quad_open = "<|quad_start|>",
                                 .quad_close = "<|quad_end|>"};
constexpr float kTowerEps = 1e-6F;              // not in the configuration
constexpr std::int64_t kPatchesAtOnce = 16384;  // of several frames; bounds the memory of a step

// ---- configuration
// ------------------------------------------------------------------------------------------------

struct Qwen2VlConfig {
  LlamaConfig text;
  QwenVisionConfig vision;
  std::int64_t vision_intermediate = 0;  // Fv
  Activation vision_act = Activation::kQuickGelu;
  Qwen2VisionTokens tokens;
  Qwen2ImageProcessor images, videos;

  static Qwen2VlConfig parse(const ModelSource& source);
  Qwen2ImageProcessor::Geometry geometry() const {
    return {vision.patch_size_px, vision.temporal_patch_size, vision.merge_size};
  }
};

Qwen2VlConfig Qwen2VlConfig::parse(const ModelSource& source) {
  const JsonView& c = source.config;
  const JsonView v = c.at("vision_config");
  Qwen2VlConfig out;
  out.text = parse_qwen2_vl_text(c, source.tie_word_embeddings);
  out.vision = QwenVisionConfig::parse(v, "embed_dim", 1280);
  const double ratio = v.get_double("mlp_ratio", 4.0);
  if (!(ratio > 0 && ratio <= 64))
    fail(ErrorCode::kInvalidFile, "{}.mlp_ratio: expected a number in (0, 64], got {}", v.path(), ratio);
  out.vision_intermediate = static_cast<std::int64_t>(static_cast<double>(out.vision.width) * ratio);
  out.vision_act = get_activation(v, "hidden_act", Activation::kQuickGelu);
  // hidden_size is the width of the merger's output here, not the tower's.
  const std::int64_t merged = v.get_int("hidden_size", 3584, 1, 1 << 24);
  if (merged != out.text.hidden_size)
    fail(ErrorCode::kInvalidFile, "{}.hidden_size: expected the language model's width {}, got {}", v.path(),
         out.text.hidden_size, merged);
  out.tokens = Qwen2VisionTokens::parse(source);
  out.images = Qwen2ImageProcessor::for_images(source.preprocessor, out.geometry());
  out.videos = Qwen2ImageProcessor::for_videos(
      source.video_preprocessor ? source.video_preprocessor : source.preprocessor, out.geometry());
  return out;
}

// ---- the model
// ----------------------------------------------------------------------------------------------------

class Qwen2Vl : public Model {
 public:
  explicit Qwen2Vl(const ModelSource& source);
  const ModelInfo& info() const override { return info_; }
  MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const override;
  Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const override;
  PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                             std::span<const MediaPlan> plans) const override;
  TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const override;
  TensorView forward(ExecContext& cx, const Batch& batch) const override;
  std::vector<Region> find_regions(std::string_view text, std::span<const std::int32_t>,
                                   std::span<const MediaPlan> plans) const override {
    return find_tagged_regions(text, kRegionTags, plans);
  }
  const PartSizes& part_sizes() const override { return sizes_; }

 private:
  struct Block {
    LayerNorm norm1;
    std::unique_ptr<LinearWeight> qkv;   // [3 Dv, Dv]
    std::unique_ptr<LinearWeight> proj;  // [Dv, Dv]
    LayerNorm norm2;
    std::unique_ptr<LinearWeight> fc1;  // [Fv, Dv]
    std::unique_ptr<LinearWeight> fc2;  // [Dv, Fv]
  };
  Block bind_block(Binder binder) const;
  void encode_frames(ExecContext& cx, std::span<const VisionFrame> frames, TensorView out) const;
  void run_block(ExecContext& cx, const Block& block, TensorView h, const RopeAngles& rope,
                 std::span<const std::int32_t> segments) const;

  Qwen2VlConfig config_;
  ModelInfo info_;
  PartSizes sizes_;
  std::unique_ptr<LinearWeight> patch_embed_;  // [Dv, 3 tp p p]
  std::vector<float> inverse_frequencies_;     // [Dh / 4]
  std::vector<Block> blocks_;
  LayerNorm merger_ln_q_;
  std::unique_ptr<LinearWeight> merger_mlp_0_;  // [m m Dv, m m Dv]
  std::unique_ptr<LinearWeight> merger_mlp_2_;  // [D, m m Dv]
  LlamaDecoder language_model_;
};

Qwen2Vl::Qwen2Vl(const ModelSource& source) : config_(Qwen2VlConfig::parse(source)) {
  const QwenVisionConfig& v = config_.vision;
  WeightProvider& weights = *source.weights;
  weights.rename([](std::string_view name) { return canonical_weight_name(name); });
  const Binder vision = source.binder(sizes_, "vision").scope("visual");
  patch_embed_ =
      vision.scope("patch_embed")
          .patch_embedding("proj.weight",
                           {v.width, 3, v.temporal_patch_size, v.patch_size_px, v.patch_size_px}, "");
  inverse_frequencies_ = axial_inverse_frequencies(v.head_dim(), v.rope_theta);
  for (int i = 0; i < v.depth; ++i) blocks_.push_back(bind_block(vision.scope(fmt::format("blocks.{}", i))));
  Binder merger = source.binder(sizes_, "projector").scope("visual.merger");
  merger_ln_q_ = LayerNorm::bind(merger, "ln_q", v.width, kTowerEps);
  merger_mlp_0_ = merger.linear("mlp.0", v.merged_width(), v.merged_width(), Bias::kRequired);
  merger_mlp_2_ = merger.linear("mlp.2", config_.text.hidden_size, v.merged_width(), Bias::kRequired);
  merger_mlp_0_->set_reader(*merger_mlp_2_);
  const Binder language = source.binder(sizes_, "language").scope("lm");
  language_model_ = LlamaDecoder::bind(config_.text, language, "lm_head", "model.language_model");

  info_.family = "qwen2_vl";
  info_.architecture = "Qwen2VLForConditionalGeneration";
  info_.names_regions = true;
  describe_qwen2_vl(config_.text, config_.tokens, info_);
  info_.video_sampling = config_.videos.video_sampling();
  info_.takes_pixel_limits = true;
}

Qwen2Vl::Block Qwen2Vl::bind_block(Binder binder) const {
  const std::int64_t d = config_.vision.width;
  const std::int64_t f = config_.vision_intermediate;
  Block out{.norm1 = LayerNorm::bind(binder, "norm1", d, kTowerEps),
            .qkv = binder.linear("attn.qkv", 3 * d, d, Bias::kRequired),
            .proj = binder.linear("attn.proj", d, d, Bias::kRequired),
            .norm2 = LayerNorm::bind(binder, "norm2", d, kTowerEps),
            .fc1 = binder.linear("mlp.fc1", f, d, Bias::kRequired),
            .fc2 = binder.linear("mlp.fc2", d, f, Bias::kRequired)};
  out.fc1->set_reader(*out.fc2);
  return out;
}

MediaPlan Qwen2Vl::plan_media(const MediaMeta& meta, const MediaOptions& options) const {
  return (meta.is_video ? config_.videos : config_.images).plan(meta, options, info_.max_context_tokens);
}

Tensor Qwen2Vl::preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const {
  return (plan.meta.is_video ? config_.videos : config_.images)(frames, plan, pool);  // [P, 3 tp p p]
}

PromptLayout Qwen2Vl::expand_prompt(std::span<const std::int32_t> ids,
                                    std::span<const MediaPlan> plans) const {
  return expand_qwen2_prompt(ids, plans,
                             {.tokens = config_.tokens,
                              .tower = config_.geometry(),
                              .tokens_per_second = 0,
                              .max_context_tokens = info_.max_context_tokens});
}

TensorView Qwen2Vl::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
  std::int64_t n_tokens = 0;
  for (const MediaItem& item : items) n_tokens += item.plan.n_tokens;
  TensorView out = cx.empty({n_tokens, config_.text.hidden_size});
  const ArenaScope scratch(cx.arena());
  std::span<const VisionFrame> frames = vision_frames(cx, items);
  std::int64_t row = 0;
  while (!frames.empty()) {
    const auto group = frames.first(leading_frames(frames, kPatchesAtOnce));
    std::int64_t n_patches = 0;
    for (const VisionFrame& frame : group) n_patches += frame.n_patches();
    const std::int64_t end = row + n_patches / (config_.vision.merge_size * config_.vision.merge_size);
    encode_frames(cx, group, out.rows(row, end));
    frames = frames.subspan(group.size());
    row = end;
  }
  return out;
}

// out [P / (m m), D].
void Qwen2Vl::encode_frames(ExecContext& cx, std::span<const VisionFrame> frames, TensorView out) const {
  const ArenaScope scratch(cx.arena());
  const QwenVisionConfig& v = config_.vision;
  const std::span<const std::int32_t> segments = frame_segments(cx, frames);
  TensorView h = cx.empty({segments.back(), v.width});
  for (std::size_t i = 0; i < frames.size(); ++i)
    cx.linear_into(*patch_embed_, frames[i].patches, h.rows(segments[i], segments[i + 1]));  // [P, Dv]
  cx.tap(h, "model.visual.patch_embed");
  const RopeAngles rope = axial_rope_angles(cx, frames, v.merge_size, inverse_frequencies_);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    cx.block({"model.visual", "blocks", static_cast<int>(i)}, h,
             [&] { run_block(cx, blocks_[i], h, rope, segments); });
  const ProfileZone zone("projector");
  const TensorView x = merger_ln_q_(cx, h).reshape({out.dim(0), v.merged_width()});  // [P/mm, mm Dv]
  const Activations f = cx.linear(*merger_mlp_0_, x, Activation::kGelu);             // [P/mm, mm Dv]
  cx.linear_into(*merger_mlp_2_, f, out);                                            // [P/mm, D]
  cx.tap(out, "model.visual.merger");
}

void Qwen2Vl::run_block(ExecContext& cx, const Block& block, TensorView h, const RopeAngles& rope,
                        std::span<const std::int32_t> segments) const {
  {
    const ArenaScope scratch(cx.arena());
    const VisionAttention attention{*block.qkv, config_.vision.n_heads, rope, segments};
    TensorView x = attention(cx, cx.tap_input(block.norm1.of(h), "norm1"));  // [P, Dv]
    cx.linear_add(*block.proj, x, h, "attn");                                // [P, Dv]
  }
  const Activations x = cx.linear(*block.fc1, block.norm2.of(h), config_.vision_act);  // [P, Fv]
  cx.linear_add(*block.fc2, x, h, "mlp");                                              // [P, Dv]
}

TensorView Qwen2Vl::forward(ExecContext& cx, const Batch& batch) const {
  TensorView h = language_model_.embed(cx, ids_for_embedding(cx, batch));  // [T, D]
  apply_media(cx, batch, h);
  return language_model_.forward(
      cx, h, {batch.positions, batch.sequences, batch.kv_slots, batch.kv_cache, batch.logit_rows});  // [n, V]
}

}  // namespace

void register_qwen2_vl(ModelRegistry& registry) {
  registry.add({.name = "qwen2_vl",
                .architectures = {"Qwen2VLForConditionalGeneration"},
                .matches = nullptr,
                .load = [](const ModelSource& source) { return std::make_unique<Qwen2Vl>(source); },
                .takes_videos = true});
}

}  // namespace triptych

// Qwen2.5-VL: Qwen2-VL with another tower - attention in windows save for a few blocks, RMSNorm, a gated
// feed-forward part - and positions of videos in seconds.
//   Bai et al., "Qwen2.5-VL Technical Report" (arXiv 2502.13923), section 2.1. Reference: transformers 5.24,
//   models/qwen2_5_vl/modeling_qwen2_5_vl.py.
// Shapes: P patches, Dv tower width, Fv its feed-forward width, m merge size, D language width, T tokens, V
// vocabulary. Deviations: EXIF orientation is applied and alpha composited over white before the processor
// (the reference does neither); frames of videos are resized with Pillow's bicubic; a video without a frame
// rate has 2 frames a second (the reference: 24).
#include <algorithm>

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

constexpr float kTowerEps = 1e-6F;              // not in the configuration
constexpr std::int64_t kPatchesAtOnce = 16384;  // of several frames; bounds the memory of a step

// ---- configuration
// ------------------------------------------------------------------------------------------------

struct Qwen25VlConfig {
  LlamaConfig text;
  QwenVisionConfig vision;
  std::int64_t vision_intermediate = 0;  // Fv
  Activation vision_act = Activation::kSilu;
  int window_blocks = 0;         // side of a window, in merge blocks
  std::vector<bool> sees_frame;  // per block: attention over the whole frame
  int tokens_per_second = 4;
  Qwen2VisionTokens tokens;
  Qwen2ImageProcessor images, videos;

  static Qwen25VlConfig parse(const ModelSource& source);
  void parse_windows(const JsonView& vision_config);
  Qwen2ImageProcessor::Geometry geometry() const {
    return {vision.patch_size_px, vision.temporal_patch_size, vision.merge_size};
  }
};

void Qwen25VlConfig::parse_windows(const JsonView& v) {
  const std::int64_t window_px = v.get_int("window_size", 112, 1, 1 << 20);
  window_blocks = static_cast<int>(window_px / vision.merge_size / vision.patch_size_px);
  if (window_blocks < 1)
    fail(ErrorCode::kInvalidFile, "{}.window_size: expected at least one merge block, {} pixels, got {}",
         v.path(), vision.merge_size * vision.patch_size_px, window_px);
  sees_frame.assign(static_cast<std::size_t>(vision.depth), false);
  const auto mark = [&](std::int64_t block) {
    if (block < vision.depth) sees_frame[static_cast<std::size_t>(block)] = true;
  };
  if (const auto list = v.find("fullatt_block_indexes")) {
    for (const JsonView& item : list->items()) mark(item.as_int(0, 1 << 20));
  } else {
    for (const int block : {7, 15, 23, 31}) mark(block);
  }
}

Qwen25VlConfig Qwen25VlConfig::parse(const ModelSource& source) {
  const JsonView& c = source.config;
  const JsonView v = c.at("vision_config");
  Qwen25VlConfig out;
  out.text = parse_qwen2_vl_text(c, source.tie_word_embeddings);
  out.vision = QwenVisionConfig::parse(v, "hidden_size", 3584);
  out.vision_intermediate = v.get_int("intermediate_size", 3420, 1, 1 << 24);
  out.vision_act = get_activation(v, "hidden_act", Activation::kSilu);
  const std::int64_t merged = v.get_int("out_hidden_size", 3584, 1, 1 << 24);
  if (merged != out.text.hidden_size)
    fail(ErrorCode::kInvalidFile, "{}.out_hidden_size: expected the language model's width {}, got {}",
         v.path(), out.text.hidden_size, merged);
  out.parse_windows(v);
  out.tokens_per_second = static_cast<int>(v.get_int("tokens_per_second", 4, 1, 1 << 20));
  out.tokens = Qwen2VisionTokens::parse(source);
  out.images = Qwen2ImageProcessor::for_images(source.preprocessor, out.geometry());
  out.videos = Qwen2ImageProcessor::for_videos(
      source.video_preprocessor ? source.video_preprocessor : source.preprocessor, out.geometry());
  return out;
}

// ---- the model
// ----------------------------------------------------------------------------------------------------

class Qwen25Vl : public Model {
 public:
  explicit Qwen25Vl(const ModelSource& source);
  const ModelInfo& info() const override { return info_; }
  MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const override;
  Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const override;
  PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                             std::span<const MediaPlan> plans) const override;
  TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const override;
  TensorView forward(ExecContext& cx, const Batch& batch) const override;
  std::vector<Region> find_regions(std::string_view text, std::span<const std::int32_t>,
                                   std::span<const MediaPlan> plans) const override {
    return find_json_regions(text, plans);
  }
  const PartSizes& part_sizes() const override { return sizes_; }

 private:
  struct Block {
    RmsNorm norm1;
    std::unique_ptr<LinearWeight> qkv;   // [3 Dv, Dv]
    std::unique_ptr<LinearWeight> proj;  // [Dv, Dv]
    RmsNorm norm2;
    std::unique_ptr<LinearWeight> gate_up_proj;  // [2 Fv, Dv]
    std::unique_ptr<LinearWeight> down_proj;     // [Dv, Fv]
  };
  Block bind_block(Binder binder) const;
  void encode_frames(ExecContext& cx, std::span<const VisionFrame> frames, TensorView out) const;
  void run_block(ExecContext& cx, const Block& block, TensorView h, const RopeAngles& rope,
                 std::span<const std::int32_t> segments) const;
  TensorView reorder(ExecContext& cx, const TensorView& x, std::span<const std::int32_t> blocks) const;

  Qwen25VlConfig config_;
  ModelInfo info_;
  PartSizes sizes_;
  std::unique_ptr<LinearWeight> patch_embed_;  // [Dv, 3 tp p p]
  std::vector<float> inverse_frequencies_;     // [Dh / 4]
  std::vector<Block> blocks_;
  RmsNorm merger_ln_q_;
  std::unique_ptr<LinearWeight> merger_mlp_0_;  // [m m Dv, m m Dv]
  std::unique_ptr<LinearWeight> merger_mlp_2_;  // [D, m m Dv]
  LlamaDecoder language_model_;
};

Qwen25Vl::Qwen25Vl(const ModelSource& source) : config_(Qwen25VlConfig::parse(source)) {
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
  merger_ln_q_ = RmsNorm::bind(merger, "ln_q", v.width, kTowerEps);
  merger_mlp_0_ = merger.linear("mlp.0", v.merged_width(), v.merged_width(), Bias::kRequired);
  merger_mlp_2_ = merger.linear("mlp.2", config_.text.hidden_size, v.merged_width(), Bias::kRequired);
  merger_mlp_0_->set_reader(*merger_mlp_2_);
  const Binder language = source.binder(sizes_, "language").scope("lm");
  language_model_ = LlamaDecoder::bind(config_.text, language, "lm_head", "model.language_model");

  info_.family = "qwen2_5_vl";
  info_.architecture = "Qwen2_5_VLForConditionalGeneration";
  info_.names_regions = true;
  describe_qwen2_vl(config_.text, config_.tokens, info_);
  info_.video_sampling = config_.videos.video_sampling();
  info_.takes_pixel_limits = true;
}

Qwen25Vl::Block Qwen25Vl::bind_block(Binder binder) const {
  const std::int64_t d = config_.vision.width;
  const std::int64_t f = config_.vision_intermediate;
  const Binder::StackPart gate_up[] = {{"mlp.gate_proj", f, Bias::kRequired},
                                       {"mlp.up_proj", f, Bias::kRequired}};
  Block out{.norm1 = RmsNorm::bind(binder, "norm1", d, kTowerEps),
            .qkv = binder.linear("attn.qkv", 3 * d, d, Bias::kRequired),
            .proj = binder.linear("attn.proj", d, d, Bias::kRequired),
            .norm2 = RmsNorm::bind(binder, "norm2", d, kTowerEps),
            .gate_up_proj = binder.linear_stack(gate_up, d),
            .down_proj = binder.linear("mlp.down_proj", d, f, Bias::kRequired)};
  out.gate_up_proj->set_reader(*out.down_proj);
  return out;
}

MediaPlan Qwen25Vl::plan_media(const MediaMeta& meta, const MediaOptions& options) const {
  return (meta.is_video ? config_.videos : config_.images).plan(meta, options, info_.max_context_tokens);
}

Tensor Qwen25Vl::preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const {
  return (plan.meta.is_video ? config_.videos : config_.images)(frames, plan, pool);  // [P, 3 tp p p]
}

PromptLayout Qwen25Vl::expand_prompt(std::span<const std::int32_t> ids,
                                     std::span<const MediaPlan> plans) const {
  return expand_qwen2_prompt(ids, plans,
                             {.tokens = config_.tokens,
                              .tower = config_.geometry(),
                              .tokens_per_second = config_.tokens_per_second,
                              .max_context_tokens = info_.max_context_tokens});
}

TensorView Qwen25Vl::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
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

// x [P, w] with its merge blocks in the order given.
TensorView Qwen25Vl::reorder(ExecContext& cx, const TensorView& x,
                             std::span<const std::int32_t> blocks) const {
  const std::int64_t unit = std::int64_t{config_.vision.merge_size} * config_.vision.merge_size;
  return cx.gather_rows(x.reshape({x.dim(0) / unit, unit * x.dim(1)}), blocks).reshape(x.shape());
}

// out [P / (m m), D].
void Qwen25Vl::encode_frames(ExecContext& cx, std::span<const VisionFrame> frames, TensorView out) const {
  const ArenaScope scratch(cx.arena());
  const QwenVisionConfig& v = config_.vision;
  const std::span<const std::int32_t> segments = frame_segments(cx, frames);
  const WindowOrder windows = window_order(cx, frames, v.merge_size, config_.window_blocks);
  TensorView h = cx.empty({segments.back(), v.width});
  for (std::size_t i = 0; i < frames.size(); ++i)
    cx.linear_into(*patch_embed_, frames[i].patches, h.rows(segments[i], segments[i + 1]));  // [P, Dv]
  cx.tap(h, "model.visual.patch_embed");
  h = reorder(cx, h, windows.blocks);
  RopeAngles rope = axial_rope_angles(cx, frames, v.merge_size, inverse_frequencies_);
  rope = {reorder(cx, rope.cos, windows.blocks), reorder(cx, rope.sin, windows.blocks)};
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    cx.block({"model.visual", "blocks", static_cast<int>(i)}, h, [&] {
      run_block(cx, blocks_[i], h, rope, config_.sees_frame[i] ? segments : windows.segments);
    });
  const ProfileZone zone("projector");
  TensorView x = merger_ln_q_(cx, h).reshape({out.dim(0), v.merged_width()});  // [P/mm, mm Dv]
  const Activations f = cx.linear(*merger_mlp_0_, x, Activation::kGelu);       // [P/mm, mm Dv]
  x = cx.linear(*merger_mlp_2_, f);                                            // [P/mm, D]
  cx.tap(x, "model.visual.merger");
  cx.scatter_rows(x, windows.blocks, out);  // back to the picture's order
}

void Qwen25Vl::run_block(ExecContext& cx, const Block& block, TensorView h, const RopeAngles& rope,
                         std::span<const std::int32_t> segments) const {
  {
    const ArenaScope scratch(cx.arena());
    const VisionAttention attention{*block.qkv, config_.vision.n_heads, rope, segments};
    TensorView x = attention(cx, cx.tap_input(block.norm1.of(h), "norm1"));  // [P, Dv]
    cx.linear_add(*block.proj, x, h, "attn");                                // [P, Dv]
  }
  const Activations x =
      cx.gated_linear(config_.vision_act, *block.gate_up_proj, block.norm2.of(h));  // [P, Fv]
  cx.linear_add(*block.down_proj, x, h, "mlp");                                     // [P, Dv]
}

TensorView Qwen25Vl::forward(ExecContext& cx, const Batch& batch) const {
  TensorView h = language_model_.embed(cx, ids_for_embedding(cx, batch));  // [T, D]
  apply_media(cx, batch, h);
  return language_model_.forward(
      cx, h, {batch.positions, batch.sequences, batch.kv_slots, batch.kv_cache, batch.logit_rows});  // [n, V]
}

}  // namespace

void register_qwen2_5_vl(ModelRegistry& registry) {
  registry.add({.name = "qwen2_5_vl",
                .architectures = {"Qwen2_5_VLForConditionalGeneration"},
                .matches = nullptr,
                .load = [](const ModelSource& source) { return std::make_unique<Qwen25Vl>(source); },
                .takes_videos = true});
}

}  // namespace triptych

// Qwen2.5-VL: Qwen2-VL with another tower - attention in windows save for a few blocks, RMSNorm, a gated
// feed-forward part - and positions of videos in seconds.
//   Bai et al., "Qwen2.5-VL Technical Report" (arXiv 2502.13923), section 2.1. Reference: transformers 5.24,
//   models/qwen2_5_vl/modeling_qwen2_5_vl.py.
// Shapes: P patches, Dv tower width, Fv its feed-forward width, m merge size, D language width, T tokens, V
// vocabulary. Deviations: EXIF orientation is applied and alpha composited over white before the processor
// (the reference does neither); frames of videos are resized with Pillow's bicubic; a video without a frame
// rate has 2 frames a second (the reference: 24).
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/profile.h"
#include "models/model.h"
#include "models/qwen2_vl_common.h"
#include "models/region_tags.h"
#include "nn/activation.h"
#include "nn/norm.h"

namespace triptych {
namespace {

// ---- configuration
// ------------------------------------------------------------------------------------------------

Qwen2VlConfig parse_config(const ModelSource& source) {
  const JsonView v = source.config.at("vision_config");
  Qwen2VlConfig out =
      Qwen2VlConfig::parse(source, parse_qwen2_vl_text(source.config, source.tie_word_embeddings),
                           QwenVisionConfig::parse(v, "hidden_size", {.width = 3584}), "out_hidden_size");
  out.vision_intermediate = v.get_int("intermediate_size", 3420, 1, 1 << 24);
  out.vision_act = get_activation(v, "hidden_act", Activation::kSilu);
  out.tokens_per_second = static_cast<int>(v.get_int("tokens_per_second", 4, 1, 1 << 20));
  out.videos = Qwen2ImageProcessor::for_videos(Qwen2VlConfig::video_file(source), out.geometry());
  return out;
}

struct WindowConfig {
  int window_blocks = 0;         // side of a window, in merge blocks
  std::vector<bool> sees_frame;  // per block: attention over the whole frame

  static WindowConfig parse(const JsonView& vision_config, const QwenVisionConfig& vision);
};

WindowConfig WindowConfig::parse(const JsonView& v, const QwenVisionConfig& vision) {
  WindowConfig out;
  const std::int64_t window_px = v.get_int("window_size", 112, 1, 1 << 20);
  out.window_blocks = static_cast<int>(window_px / vision.merge_size / vision.patch_size_px);
  if (out.window_blocks < 1)
    fail(ErrorCode::kInvalidFile, "{}.window_size: expected at least one merge block, {} pixels, got {}",
         v.path(), vision.merge_size * vision.patch_size_px, window_px);
  out.sees_frame.assign(static_cast<std::size_t>(vision.depth), false);
  const auto mark = [&](std::int64_t block) {
    if (block >= 0 && block < vision.depth) out.sees_frame[static_cast<std::size_t>(block)] = true;
  };
  if (const auto list = v.find("fullatt_block_indexes")) {
    for (const JsonView& item : list->items()) mark(item.as_int(-(1 << 20), 1 << 20));
  } else {
    for (const int block : {7, 15, 23, 31}) mark(block);
  }
  return out;
}

// ---- the model
// ----------------------------------------------------------------------------------------------------

class Qwen25Vl : public Qwen2VlModel {
 public:
  explicit Qwen25Vl(const ModelSource& source);
  std::vector<Region> find_regions(std::string_view text, std::span<const std::int32_t>,
                                   std::span<const MediaPlan> plans) const override {
    return find_json_regions(text, plans);
  }

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
  void encode_frames(ExecContext& cx, std::span<const VisionFrame> frames, TensorView out) const override;
  void run_block(ExecContext& cx, const Block& block, TensorView h, const RopeAngles& rope,
                 std::span<const std::int32_t> segments) const;
  TensorView reorder(ExecContext& cx, const TensorView& x, std::span<const std::int32_t> blocks) const;

  WindowConfig windows_;
  std::vector<Block> blocks_;
  RmsNorm merger_ln_q_;
  MergerMlp merger_mlp_;
};

Qwen25Vl::Qwen25Vl(const ModelSource& source)
    : Qwen2VlModel(parse_config(source)),
      windows_(WindowConfig::parse(source.config.at("vision_config"), config_.vision)) {
  const Binder vision = bind_patch_embed(source, Bias::kNone);
  for (int i = 0; i < config_.vision.depth; ++i)
    blocks_.push_back(bind_block(vision.scope(fmt::format("blocks.{}", i))));
  Binder merger = merger_scope(source);
  merger_ln_q_ = RmsNorm::bind(merger, "ln_q", config_.vision.width, kTowerEps);
  merger_mlp_ = MergerMlp::bind(merger, "mlp.0", "mlp.2", config_);
  merger.equalizable({.writers = {{"ln_q.weight"}},
                      .readers = {"mlp.0.weight"},
                      .n_channels = config_.vision.width,
                      .repeat = config_.vision.merged_width() / config_.vision.width});
  bind_language_model(source);
  info_.family = "qwen2_5_vl";
  info_.architecture = "Qwen2_5_VLForConditionalGeneration";
  info_.names_regions = true;
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
  binder.equalizable({.writers = {{"norm1.weight"}}, .readers = {"attn.qkv.weight"}, .n_channels = d});
  binder.equalizable({.writers = {{"attn.qkv.weight", 2 * d}, {"attn.qkv.bias", 2 * d}},
                      .readers = {"attn.proj.weight"},
                      .n_channels = d});
  binder.equalizable({.writers = {{"norm2.weight"}},
                      .readers = {"mlp.gate_proj.weight", "mlp.up_proj.weight"},
                      .n_channels = d});
  binder.equalizable({.writers = {{"mlp.up_proj.weight"}, {"mlp.up_proj.bias"}},
                      .readers = {"mlp.down_proj.weight"},
                      .n_channels = f});
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
  const std::span<const std::int32_t> segments = frame_segments(cx, frames);
  const WindowOrder order = window_order(cx, frames, config_.vision.merge_size, windows_.window_blocks);
  TensorView h = reorder(cx, embed_patches(cx, frames, segments), order.blocks);  // [P, Dv]
  RopeAngles rope = rope_angles(cx, frames);
  rope = {reorder(cx, rope.cos, order.blocks), reorder(cx, rope.sin, order.blocks)};
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    cx.block({"model.visual", "blocks", static_cast<int>(i)}, h,
             [&] { run_block(cx, blocks_[i], h, rope, windows_.sees_frame[i] ? segments : order.segments); });
  const ProfileZone zone("projector");
  TensorView x = cx.empty(out.shape());
  merger_mlp_(cx, joined(merger_ln_q_(cx, h)), x);  // [P / (m m), D]
  cx.tap(x, "model.visual.merger");
  cx.scatter_rows(x, order.blocks, out);  // back to the picture's order
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

}  // namespace

void register_qwen2_5_vl(ModelRegistry& registry) {
  registry.add({.name = "qwen2_5_vl",
                .architectures = {"Qwen2_5_VLForConditionalGeneration"},
                .matches = nullptr,
                .load = [](const ModelSource& source) { return std::make_unique<Qwen25Vl>(source); },
                .takes_videos = true,
                .without_preprocessor = ModelRegistry::needs_preprocessor});
}

}  // namespace triptych

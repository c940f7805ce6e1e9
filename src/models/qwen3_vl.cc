// Qwen3-VL (dense: 2B to 32B): a tower with learned positions beside rotary ones, whose inner rows reach the
// first layers of the decoder (DeepStack), a Qwen3 decoder with interleaved M-RoPE, and videos with their
// time written before every pair of frames.
//   Bai et al., "Qwen3-VL Technical Report" (arXiv 2511.21631), section 2; Meng et al., "DeepStack" (arXiv
//   2406.04334). Reference: transformers 5.24, models/qwen3_vl/modeling_qwen3_vl.py, processing_qwen3_vl.py.
// Shapes: P patches, Dv tower width, Fv its feed-forward width, m merge size, D language width, S taps of
// DeepStack, T tokens, V vocabulary. Deviations: EXIF orientation is applied and alpha composited over white
// before the processor (the reference does neither); frames of videos are resized with Pillow's bicubic; a
// video without a frame rate has 2 frames a second (the reference: 24), and one frame makes a video.
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/profile.h"
#include "models/llama_text.h"
#include "models/model.h"
#include "models/prompt_layout.h"
#include "models/qwen2_prompt.h"
#include "models/qwen2_vl_common.h"
#include "models/region_tags.h"
#include "nn/activation.h"
#include "nn/norm.h"

namespace triptych {
namespace {

// ---- configuration
// ------------------------------------------------------------------------------------------------

LlamaConfig parse_text(const ModelSource& source) {
  const JsonView text = source.config.at("text_config");
  LlamaConfig out = LlamaConfig::parse(text, llama_defaults("qwen3_vl_text", text));
  out.rope.mrope_interleaved = true;  // whatever the file says, as the reference
  if (out.rope.mrope_section.empty()) {
    if (out.rope.rotary_dim != 128)
      fail(ErrorCode::kInvalidFile,
           "{}: mrope_section is missing, and its default [24, 20, 20] is for heads of 128, not {}",
           text.path(), out.rope.rotary_dim);
    out.rope.mrope_section = {24, 20, 20};
  }
  out.tie_stated = out.tie_stated || source.config.has("tie_word_embeddings");
  out.tie_word_embeddings = out.tie_word_embeddings || source.config.get_bool("tie_word_embeddings", false) ||
                            source.tie_word_embeddings;
  return out;
}

Qwen2VlConfig parse_config(const ModelSource& source) {
  const JsonView v = source.config.at("vision_config");
  const QwenVisionConfig defaults{.depth = 27, .width = 1152, .patch_size_px = 16};
  Qwen2VlConfig out = Qwen2VlConfig::parse(
      source, parse_text(source), QwenVisionConfig::parse(v, "hidden_size", defaults), "out_hidden_size");
  out.vision_intermediate = v.get_int("intermediate_size", 4304, 1, 1 << 24);
  out.vision_act = get_activation(v, "hidden_act", Activation::kGeluTanh);
  out.videos = Qwen2ImageProcessor::for_qwen3_videos(Qwen2VlConfig::video_file(source), out.geometry());
  return out;
}

// The number of learned positions, a square: those of the tower's own grid.
std::int64_t parse_n_positions(const JsonView& v) {
  const std::int64_t n = v.get_int("num_position_embeddings", 2304, 1, 1 << 24);
  std::int64_t side = 1;
  while (side * side < n) ++side;
  if (side * side != n)
    fail(ErrorCode::kInvalidFile, "{}.num_position_embeddings: expected a square number, got {}", v.path(),
         n);
  return n;
}

// The blocks whose rows go to decoder layers 0, 1, 2, ..., ascending; rows for a layer that is not there go
// nowhere, as in the reference.
std::vector<int> parse_deepstack(const JsonView& v, const Qwen2VlConfig& config) {
  constexpr std::string_view kKey = "deepstack_visual_indexes";
  std::vector<int> out;
  if (const auto list = v.find(kKey)) {
    for (const JsonView& item : list->items())
      out.push_back(static_cast<int>(item.as_int(out.empty() ? 0 : out.back() + 1, config.vision.depth - 1)));
  } else {
    out = {8, 16, 24};
    if (config.vision.depth <= out.back())
      fail(ErrorCode::kInvalidFile, "{}: {} is missing, and its default [8, 16, 24] needs 25 blocks, not {}",
           v.path(), kKey, config.vision.depth);
  }
  return out;
}

// ---- the model
// ----------------------------------------------------------------------------------------------------

class Qwen3Vl : public Qwen2VlModel {
 public:
  explicit Qwen3Vl(const ModelSource& source);
  TensorView forward(ExecContext& cx, const Batch& batch) const override;
  std::string video_text(const MediaPlan& plan) const override;
  std::vector<Region> find_regions(std::string_view text, std::span<const std::int32_t>,
                                   std::span<const MediaPlan> plans) const override {
    return find_json_regions(text, plans, RegionUnit::kThousandths);
  }

 private:
  // Rows of a block on their way to the decoder.
  struct DeepStack {
    int block = 0;
    LayerNorm norm;  // over the joined patches, [m m Dv]
    MergerMlp mlp;
  };
  std::int64_t media_width() const override;
  void encode_frames(ExecContext& cx, std::span<const VisionFrame> frames, TensorView out) const override;
  std::span<const LlamaDecoder::AddedRows> deepstack_rows(ExecContext& cx, const Batch& batch) const;

  Tensor positions_;  // learned, of a square grid, in host memory
  std::vector<LayerNormBlock> blocks_;
  LayerNorm merger_norm_;  // over a patch
  MergerMlp merger_mlp_;
  std::vector<DeepStack> deepstack_;  // [S]
};

Qwen3Vl::Qwen3Vl(const ModelSource& source) : Qwen2VlModel(parse_config(source)) {
  const JsonView v = source.config.at("vision_config");
  const std::vector<int> taps = parse_deepstack(v, config_);
  Binder vision = bind_patch_embed(source, Bias::kRequired);
  positions_ = vision.host_tensor("pos_embed.weight", {parse_n_positions(v), config_.vision.width});
  for (int i = 0; i < config_.vision.depth; ++i)
    blocks_.push_back(LayerNormBlock::bind(vision.scope(fmt::format("blocks.{}", i)), "mlp.linear_fc1",
                                           "mlp.linear_fc2", config_, kTowerEps));
  Binder merger = merger_scope(source, "merger");
  merger_norm_ = LayerNorm::bind(merger, "norm", config_.vision.width, kTowerEps);
  merger_mlp_ = MergerMlp::bind(merger, "linear_fc1", "linear_fc2", config_);
  merger.equalizable({.writers = {{"norm.weight"}, {"norm.bias"}},
                      .readers = {"linear_fc1.weight"},
                      .n_channels = config_.vision.width,
                      .repeat = config_.vision.merged_width() / config_.vision.width});
  for (std::size_t i = 0; i < taps.size(); ++i) {
    Binder tap = merger_scope(source, fmt::format("deepstack_merger_list.{}", i));
    deepstack_.push_back({.block = taps[i],
                          .norm = LayerNorm::bind(tap, "norm", config_.vision.merged_width(), kTowerEps),
                          .mlp = MergerMlp::bind(tap, "linear_fc1", "linear_fc2", config_)});
  }
  bind_language_model(source);
  splits_videos_ = true;
  info_.family = "qwen3_vl";
  info_.architecture = "Qwen3VLForConditionalGeneration";
  info_.default_chat_template = qwen2_vl_template("");  // no system message of its own
  info_.names_regions = true;
}

// The time of a pair of frames is the mean of theirs.
std::string Qwen3Vl::video_text(const MediaPlan& plan) const {
  const MediaMeta& meta = plan.meta;
  const int n_in_step = config_.vision.temporal_patch_size;
  const double rate = frames_per_second(meta);
  TRIPTYCH_CHECK(
      meta.frame_times_s.empty() || meta.frame_times_s.size() == static_cast<std::size_t>(meta.n_frames),
      "[qwen3_vl] {} times of {} frames", meta.frame_times_s.size(), meta.n_frames);
  const auto time_s = [&](int frame) {
    frame = std::min(frame, meta.n_frames - 1);  // the last is repeated
    return meta.frame_times_s.empty() ? frame / rate : meta.frame_times_s[static_cast<std::size_t>(frame)];
  };
  std::string out;
  for (int first = 0; first < meta.n_frames; first += n_in_step)
    out += fmt::format("<{:.1f} seconds><|vision_start|>{}<|vision_end|>",
                       (time_s(first) + time_s(first + n_in_step - 1)) / 2, info_.video_placeholder);
  return out;
}

std::int64_t Qwen3Vl::media_width() const {
  return config_.text.hidden_size * static_cast<std::int64_t>(1 + deepstack_.size());
}

// out [P / (m m), (1 + S) D]: what replaces token embeddings, then what is added behind layers 0, 1, 2, ...
void Qwen3Vl::encode_frames(ExecContext& cx, std::span<const VisionFrame> frames, TensorView out) const {
  const std::int64_t d = config_.text.hidden_size;
  const std::span<const std::int32_t> segments = frame_segments(cx, frames);
  TensorView h = embed_patches(cx, frames, segments);  // [P, Dv]
  {
    const ArenaScope scratch(cx.arena());
    cx.add_inplace(h, interpolated_positions(cx, frames, config_.vision.merge_size, positions_));  // [P, Dv]
  }
  const RopeAngles rope = rope_angles(cx, frames);
  std::size_t tap = 0;
  std::int64_t column = d;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    cx.block({"model.visual", "blocks", static_cast<int>(i)}, h, [&] {
      blocks_[i](cx, h, {rope, segments, config_.vision.n_heads, config_.vision_act});
    });
    if (tap == deepstack_.size() || deepstack_[tap].block != static_cast<int>(i)) continue;
    const ProfileZone zone("projector");
    const ArenaScope scratch(cx.arena());
    const DeepStack& deep = deepstack_[tap];
    const TensorView rows = out.cols(column, column + d);
    deep.mlp(cx, deep.norm.of(joined(h)), rows);  // [P / (m m), D]
    cx.tap(rows, "model.visual.deepstack_merger_list.{}", tap);
    ++tap;
    column += d;
  }
  const ProfileZone zone("projector");
  const TensorView rows = out.cols(0, d);
  merger_mlp_(cx, joined(merger_norm_(cx, h)), rows);  // [P / (m m), D]
  cx.tap(rows, "model.visual.merger");
}

TensorView Qwen3Vl::forward(ExecContext& cx, const Batch& batch) const {
  TensorView h = language_model_.embed(cx, ids_for_embedding(cx, batch));  // [T, D]
  apply_media(cx, batch, h);
  return language_model_.forward(
      cx, h,
      {batch.positions, batch.lengths, batch.sequences, batch.kv_slots, batch.kv_cache, batch.logit_rows,
       deepstack_rows(cx, batch), batch.skipped_layers});  // [n, V]
}

std::span<const LlamaDecoder::AddedRows> Qwen3Vl::deepstack_rows(ExecContext& cx, const Batch& batch) const {
  const std::int64_t d = config_.text.hidden_size;
  const auto out = cx.arena().make_span<LlamaDecoder::AddedRows>(batch.media.size() * deepstack_.size());
  std::size_t next = 0;
  for (const EmbeddingOverride& media : batch.media)
    for (std::size_t i = 0; i < deepstack_.size(); ++i)
      out[next++] = {
          .after_layer = static_cast<int>(i),
          .rows = media.rows.cols(static_cast<std::int64_t>(i + 1) * d, static_cast<std::int64_t>(i + 2) * d),
          .at_rows = media.at_rows};
  return out;
}

}  // namespace

void register_qwen3_vl(ModelRegistry& registry) {
  registry.add({.name = "qwen3_vl",
                .architectures = {"Qwen3VLForConditionalGeneration"},
                .matches = nullptr,
                .load = [](const ModelSource& source) { return std::make_unique<Qwen3Vl>(source); },
                .takes_videos = true,
                .without_preprocessor = ModelRegistry::needs_preprocessor});
}

}  // namespace triptych

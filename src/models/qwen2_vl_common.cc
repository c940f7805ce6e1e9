#include "models/qwen2_vl_common.h"

#include <utility>

#include "base/error.h"
#include "base/profile.h"
#include "models/prompt_layout.h"
#include "weights/weight_names.h"

namespace triptych {
namespace {

constexpr std::int64_t kPatchesAtOnce = 16384;  // of several frames; bounds the memory of a step

}  // namespace

Qwen2VlConfig Qwen2VlConfig::parse(const ModelSource& source, const LlamaConfig& text,
                                   const QwenVisionConfig& vision, std::string_view merged_width_key) {
  const JsonView v = source.config.at("vision_config");
  Qwen2VlConfig out;
  out.text = text;
  out.vision = vision;
  const std::int64_t merged = v.get_int(merged_width_key, 3584, 1, 1 << 24);
  if (merged != out.text.hidden_size)
    fail(ErrorCode::kInvalidFile, "{}.{}: expected the language model's width {}, got {}", v.path(),
         merged_width_key, out.text.hidden_size, merged);
  out.tokens = Qwen2VisionTokens::parse(source);
  out.images = Qwen2ImageProcessor::for_images(source.preprocessor, out.geometry());
  return out;
}

LayerNormBlock LayerNormBlock::bind(Binder binder, std::string_view fc1, std::string_view fc2,
                                    const Qwen2VlConfig& config, float eps) {
  const std::int64_t d = config.vision.width;
  const std::int64_t f = config.vision_intermediate;
  LayerNormBlock out{.norm1 = LayerNorm::bind(binder, "norm1", d, eps),
                     .qkv = binder.linear("attn.qkv", 3 * d, d, Bias::kRequired),
                     .proj = binder.linear("attn.proj", d, d, Bias::kRequired),
                     .norm2 = LayerNorm::bind(binder, "norm2", d, eps),
                     .fc1 = binder.linear(fc1, f, d, Bias::kRequired),
                     .fc2 = binder.linear(fc2, d, f, Bias::kRequired)};
  out.fc1->set_reader(*out.fc2);
  const auto weight_of = [](std::string_view linear) { return std::string(linear) + ".weight"; };
  binder.equalizable(
      {.writers = {{"norm1.weight"}, {"norm1.bias"}}, .readers = {"attn.qkv.weight"}, .n_channels = d});
  binder.equalizable({.writers = {{"attn.qkv.weight", 2 * d}, {"attn.qkv.bias", 2 * d}},
                      .readers = {"attn.proj.weight"},
                      .n_channels = d});
  binder.equalizable(
      {.writers = {{"norm2.weight"}, {"norm2.bias"}}, .readers = {weight_of(fc1)}, .n_channels = d});
  return out;
}

void LayerNormBlock::operator()(ExecContext& cx, TensorView h, const Call& call) const {
  {
    const ArenaScope scratch(cx.arena());
    const VisionAttention attention{*qkv, call.n_heads, call.rope, call.segments};
    TensorView x = attention(cx, cx.tap_input(norm1.of(h), "norm1"));  // [P, Dv]
    cx.linear_add(*proj, x, h, "attn");                                // [P, Dv]
  }
  const Activations x = cx.linear(*fc1, norm2.of(h), call.act);  // [P, Fv]
  cx.linear_add(*fc2, x, h, "mlp");                              // [P, Dv]
}

MergerMlp MergerMlp::bind(Binder& binder, std::string_view fc1, std::string_view fc2,
                          const Qwen2VlConfig& config) {
  const std::int64_t width = config.vision.merged_width();
  MergerMlp out{.fc1 = binder.linear(fc1, width, width, Bias::kRequired),
                .fc2 = binder.linear(fc2, config.text.hidden_size, width, Bias::kRequired)};
  out.fc1->set_reader(*out.fc2);
  return out;
}

void MergerMlp::operator()(ExecContext& cx, const LinearInput& x, TensorView out) const {
  const Activations f = cx.linear(*fc1, x, Activation::kGelu);  // [P/mm, mm Dv]
  cx.linear_into(*fc2, f, out);                                 // [P/mm, D]
}

Qwen2VlModel::Qwen2VlModel(Qwen2VlConfig config) : config_(std::move(config)) {
  describe_qwen2_vl(config_.text, config_.tokens, info_);
  info_.video_sampling = config_.videos.video_sampling();
  info_.takes_pixel_limits = true;
}

Binder Qwen2VlModel::bind_patch_embed(const ModelSource& source, Bias bias) {
  const QwenVisionConfig& v = config_.vision;
  source.weights->rename([](std::string_view name) { return canonical_weight_name(name); });
  Binder vision = source.binder(sizes_, "vision").scope("visual");
  patch_embed_ = vision.scope("patch_embed")
                     .patch_embedding("proj.weight",
                                      {v.width, 3, v.temporal_patch_size, v.patch_size_px, v.patch_size_px},
                                      bias == Bias::kNone ? "" : "proj.bias");
  inverse_frequencies_ = axial_inverse_frequencies(v.head_dim(), v.rope_theta);
  return vision;
}

Binder Qwen2VlModel::merger_scope(const ModelSource& source, std::string_view name) {
  return source.binder(sizes_, "projector").scope("visual").scope(name);
}

void Qwen2VlModel::bind_language_model(const ModelSource& source) {
  const Binder language = source.binder(sizes_, "language").scope("lm");
  language_model_ = LlamaDecoder::bind(config_.text, language, "lm_head", "model.language_model");
}

MediaPlan Qwen2VlModel::plan_media(const MediaMeta& meta, const MediaOptions& options) const {
  return (meta.is_video ? config_.videos : config_.images).plan(meta, options, info_.max_context_tokens);
}

Tensor Qwen2VlModel::preprocess(std::span<const Image> frames, const MediaPlan& plan,
                                ThreadPool* pool) const {
  return (plan.meta.is_video ? config_.videos : config_.images)(frames, plan, pool);  // [P, 3 tp p p]
}

PromptLayout Qwen2VlModel::expand_prompt(std::span<const std::int32_t> ids,
                                         std::span<const MediaPlan> plans) const {
  return expand_qwen2_prompt(ids, plans,
                             {.tokens = config_.tokens,
                              .tower = config_.geometry(),
                              .tokens_per_second = config_.tokens_per_second,
                              .splits_videos = splits_videos_,
                              .max_context_tokens = info_.max_context_tokens});
}

TensorView Qwen2VlModel::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
  std::int64_t n_tokens = 0;
  for (const MediaItem& item : items) n_tokens += item.plan.n_tokens;
  TensorView out = cx.empty({n_tokens, media_width()});
  const ArenaScope scratch(cx.arena());
  std::span<const VisionFrame> frames = vision_frames(cx, items);
  std::int64_t row = 0;
  while (!frames.empty()) {
    const auto group = frames.first(leading_frames(frames, kPatchesAtOnce));
    std::int64_t n_patches = 0;
    for (const VisionFrame& frame : group) n_patches += frame.n_patches();
    const std::int64_t end = row + n_patches / (config_.vision.merge_size * config_.vision.merge_size);
    const ArenaScope group_scratch(cx.arena());
    encode_frames(cx, group, out.rows(row, end));
    frames = frames.subspan(group.size());
    row = end;
  }
  return out;
}

TensorView Qwen2VlModel::embed_patches(ExecContext& cx, std::span<const VisionFrame> frames,
                                       std::span<const std::int32_t> segments) const {
  TensorView h = cx.empty({segments.back(), config_.vision.width});
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const ArenaScope pixels(cx.arena());
    cx.linear_into(*patch_embed_, cx.upload(frames[i].patches),
                   h.rows(segments[i], segments[i + 1]));  // [P, Dv]
  }
  cx.tap(h, "model.visual.patch_embed");
  return h;
}

RopeAngles Qwen2VlModel::rope_angles(ExecContext& cx, std::span<const VisionFrame> frames) const {
  return axial_rope_angles(cx, frames, config_.vision.merge_size, inverse_frequencies_);
}

TensorView Qwen2VlModel::forward(ExecContext& cx, const Batch& batch) const {
  TensorView h = language_model_.embed(cx, ids_for_embedding(cx, batch));  // [T, D]
  apply_media(cx, batch, h);
  return language_model_.forward(cx, h,
                                 {.positions = batch.positions,
                                  .lengths = batch.lengths,
                                  .sequences = batch.sequences,
                                  .kv_slots = batch.kv_slots,
                                  .kv_cache = batch.kv_cache,
                                  .logit_rows = batch.logit_rows,
                                  .skipped_layers = batch.skipped_layers});  // [n, V]
}

}  // namespace triptych

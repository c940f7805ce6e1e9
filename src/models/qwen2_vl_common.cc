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

Qwen2VlConfig Qwen2VlConfig::parse(const ModelSource& source, const QwenVisionConfig& vision,
                                   std::string_view merged_width_key) {
  const JsonView v = source.config.at("vision_config");
  Qwen2VlConfig out;
  out.text = parse_qwen2_vl_text(source.config, source.tie_word_embeddings);
  out.vision = vision;
  const std::int64_t merged = v.get_int(merged_width_key, 3584, 1, 1 << 24);
  if (merged != out.text.hidden_size)
    fail(ErrorCode::kInvalidFile, "{}.{}: expected the language model's width {}, got {}", v.path(),
         merged_width_key, out.text.hidden_size, merged);
  out.tokens = Qwen2VisionTokens::parse(source);
  out.images = Qwen2ImageProcessor::for_images(source.preprocessor, out.geometry());
  out.videos = Qwen2ImageProcessor::for_videos(
      source.video_preprocessor ? source.video_preprocessor : source.preprocessor, out.geometry());
  return out;
}

Qwen2VlModel::Qwen2VlModel(Qwen2VlConfig config) : config_(std::move(config)) {
  describe_qwen2_vl(config_.text, config_.tokens, info_);
  info_.video_sampling = config_.videos.video_sampling();
  info_.takes_pixel_limits = true;
}

Binder Qwen2VlModel::bind_patch_embed(const ModelSource& source) {
  const QwenVisionConfig& v = config_.vision;
  source.weights->rename([](std::string_view name) { return canonical_weight_name(name); });
  Binder vision = source.binder(sizes_, "vision").scope("visual");
  patch_embed_ =
      vision.scope("patch_embed")
          .patch_embedding("proj.weight",
                           {v.width, 3, v.temporal_patch_size, v.patch_size_px, v.patch_size_px}, "");
  inverse_frequencies_ = axial_inverse_frequencies(v.head_dim(), v.rope_theta);
  return vision;
}

Binder Qwen2VlModel::merger_scope(const ModelSource& source) {
  return source.binder(sizes_, "projector").scope("visual.merger");
}

void Qwen2VlModel::bind_merger_mlp(Binder& merger) {
  const std::int64_t width = config_.vision.merged_width();
  merger_mlp_0_ = merger.linear("mlp.0", width, width, Bias::kRequired);
  merger_mlp_2_ = merger.linear("mlp.2", config_.text.hidden_size, width, Bias::kRequired);
  merger_mlp_0_->set_reader(*merger_mlp_2_);
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
                              .max_context_tokens = info_.max_context_tokens});
}

TensorView Qwen2VlModel::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
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

void Qwen2VlModel::merge(ExecContext& cx, const TensorView& x, TensorView out) const {
  const TensorView joined = x.reshape({out.dim(0), config_.vision.merged_width()});  // [P/mm, mm Dv]
  const Activations f = cx.linear(*merger_mlp_0_, joined, Activation::kGelu);        // [P/mm, mm Dv]
  cx.linear_into(*merger_mlp_2_, f, out);                                            // [P/mm, D]
  cx.tap(out, "model.visual.merger");
}

TensorView Qwen2VlModel::forward(ExecContext& cx, const Batch& batch) const {
  TensorView h = language_model_.embed(cx, ids_for_embedding(cx, batch));  // [T, D]
  apply_media(cx, batch, h);
  return language_model_.forward(cx, h,
                                 {batch.positions, batch.lengths, batch.sequences, batch.kv_slots,
                                  batch.kv_cache, batch.logit_rows});  // [n, V]
}

}  // namespace triptych

// LLaVA-OneVision: a SigLIP tower, a two-layer projector, a Qwen2 decoder; pictures in up to 36 tiles,
// several pictures, videos.
//   Li et al., "LLaVA-OneVision: Easy Visual Task Transfer" (arXiv 2408.03326), section 3.
//   Reference: transformers 5.24, models/llava_onevision/modeling_llava_onevision.py,
//   image_processing_pil_llava_onevision.py, video_processing_llava_onevision.py,
//   processing_llava_onevision.py.
// Pictures are seen whole and in tiles (models/anyres.h), whose map is made smaller when it has clearly more
// than N views' places (vision_aspect_ratio "anyres_max_N"). Each frame of a video is seen whole, its g x g
// features are pooled bilinearly to q x q, q = ceil(g / 2), and one newline ends the video:
//   tokens = frames * q * q + 1
// Shapes: S tower side, g = S / patch, P = g * g, V views, F frames, D language width, T tokens.
// Deviations: EXIF orientation is applied and alpha is composited over white first (the reference does
// neither); frames are resized with Pillow's bicubic (the reference uses torchvision's, a few grey levels
// off). Several pictures are tiled each, as the reference does with a plain list of pictures; given a list of
// lists, as its apply_chat_template makes when it tokenizes, it shows each of them whole, padded to a square.
// Of a video 32 frames are taken at most, one a second, as the paper does; the reference leaves that to the
// caller.
#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/anyres.h"
#include "models/clip_image_processor.h"
#include "models/llama_text.h"
#include "models/model.h"
#include "models/prompt_layout.h"
#include "nn/interpolate.h"
#include "nn/llama_decoder.h"
#include "nn/llava_vision.h"
#include "weights/weight_names.h"

namespace triptych {
namespace {

// ---- configuration
// ------------------------------------------------------------------------------------------------

// The published one: pictures and videos come before the text of their message.
constexpr std::string_view kTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + ' ' }}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% "
    "endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'video') %}{{ '<video>\n' }}{% "
    "endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ '\n' + "
    "content['text'] }}{% endfor %}"
    "{{ '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

constexpr std::int64_t kFramesAtOnce = 16;  // of a video; bounds the memory of a step

// What becomes of the frames of a video.
struct FrameProcessor {
  Filter resample = Filter::kBicubic;
  NormalizeOptions normalize;
};

struct LlavaOnevisionConfig {
  LlamaConfig text;
  LlavaVisionConfig vision;
  MediaPlaceholders placeholders{.image = 151646, .video = 151647};
  AnyRes anyres;
  FrameProcessor frames;
  VideoSampling sampling{.frames_per_s = 1.0, .min_frames = 8, .max_frames = 32, .frame_multiple = 1};

  static LlavaOnevisionConfig parse(const ModelSource& source);
  std::int64_t pooled_grid() const noexcept { return (anyres.grid + 1) / 2; }  // q
};

// LlavaOnevisionConfig's own: SigLIP so400m/14 at 384 pixels, without its last layer.
LlavaVisionDefaults vision_defaults() {
  LlavaVisionDefaults out;
  out.tower.siglip = true;
  out.tower.hidden_size = 1152;
  out.tower.intermediate_size = 4304;
  out.tower.n_layers = 26;
  out.tower.n_heads = 16;
  out.tower.image_size_px = 384;
  out.tower.patch_size_px = 14;
  out.tower.layer_norm_eps = 1e-6F;
  out.tower.hidden_act = Activation::kGeluTanh;
  out.feature_layer = -1;
  out.drop_first_row = false;
  return out;
}

// 1 to 6 tiles of the tower's size in both directions.
Json default_pinpoints(int side) {
  Json out = Json::array();
  for (int h = 1; h <= 6; ++h)
    for (int w = 1; w <= 6; ++w) out.push_back({h * side, w * side});
  return out;
}

std::int32_t parse_token(const JsonView& c, std::string_view index_key, std::string_view id_key,
                         std::int32_t fallback) {
  constexpr std::int64_t kMaxId = 1 << 30;
  return static_cast<std::int32_t>(c.get_int(id_key, c.get_int(index_key, fallback, 0, kMaxId), 0, kMaxId));
}

// The processor counts tokens by its own copy; where the two differ the reference fails at every picture.
void check_same_ratio(const ModelSource& source, const JsonView& ratio) {
  if (!source.processor) return;
  const std::string counted = source.processor->get_string("vision_aspect_ratio", ratio.as_string());
  if (counted != ratio.as_string())
    fail(ErrorCode::kInvalidFile, "{}.vision_aspect_ratio: \"{}\" differs from \"{}\" of {}",
         source.processor->path(), counted.substr(0, 100), ratio.as_string(), ratio.path());
}

FrameProcessor parse_frames(const std::optional<JsonView>& file, int side) {
  const JsonView p = file.value_or(JsonView(empty_json_object(), "video_preprocessor_config.json"));
  check_picture_size(p, side);
  return {.resample = filter_from_pillow(static_cast<int>(p.get_int("resample", 3, 0, 5))),
          .normalize = parse_normalize(p)};
}

LlavaOnevisionConfig LlavaOnevisionConfig::parse(const ModelSource& source) {
  const JsonView& c = source.config;
  LlavaOnevisionConfig out;
  // Either file of the two may say that the head is tied.
  out.text =
      parse_llama_text(c, source.tie_word_embeddings || c.get_bool("tie_word_embeddings", false), "qwen2");
  out.vision = LlavaVisionConfig::parse(c, vision_defaults());
  out.placeholders.image = parse_token(c, "image_token_index", "image_token_id", out.placeholders.image);
  out.placeholders.video = parse_token(c, "video_token_index", "video_token_id", out.placeholders.video);
  // The processor's list says how pictures are cut; the configuration's must agree with it, so one is enough.
  const auto listed = source.preprocessor ? source.preprocessor->find("image_grid_pinpoints") : std::nullopt;
  const int side = out.vision.tower.image_size_px;
  const Json all = default_pinpoints(side);
  const JsonView pinpoints =
      listed ? *listed : c.find("image_grid_pinpoints").value_or(JsonView(all, "image_grid_pinpoints"));
  out.anyres = AnyRes::parse(c, out.vision, pinpoints, AnyRes::PairOrder::kHeightWidth, source.preprocessor);
  const Json max_9 = "anyres_max_9";
  const JsonView ratio =
      c.find("vision_aspect_ratio").value_or(JsonView(max_9, c.path() + ".vision_aspect_ratio"));
  out.anyres.set_cap(ratio, true);
  check_same_ratio(source, ratio);
  // A directory without a video processor uses its image processor, as the reference does.
  out.frames =
      parse_frames(source.video_preprocessor ? source.video_preprocessor : source.preprocessor, side);
  return out;
}

// ---- the model
// ----------------------------------------------------------------------------------------------------

class LlavaOnevision : public Model {
 public:
  explicit LlavaOnevision(const ModelSource& source);
  const ModelInfo& info() const override { return info_; }
  MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const override;
  Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const override;
  PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                             std::span<const MediaPlan> plans) const override;
  TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const override;
  TensorView forward(ExecContext& cx, const Batch& batch) const override;
  const PartSizes& part_sizes() const override { return sizes_; }

 private:
  void encode_video(ExecContext& cx, const MediaItem& item, TensorView out) const;

  LlavaOnevisionConfig config_;
  ModelInfo info_;
  PartSizes sizes_;
  LlavaVision vision_;
  Tensor image_newline_;  // [D]
  LlamaDecoder language_model_;
};

LlavaOnevision::LlavaOnevision(const ModelSource& source) : config_(LlavaOnevisionConfig::parse(source)) {
  const LlavaOnevisionConfig& c = config_;
  WeightProvider& weights = *source.weights;
  weights.rename([](std::string_view name) { return canonical_weight_name(name); });
  vision_ = LlavaVision::bind(c.vision, source.binder(sizes_, "vision"), source.binder(sizes_, "projector"),
                              c.text.hidden_size);
  image_newline_ = source.binder(sizes_, "projector").tensor("image_newline", {c.text.hidden_size});
  language_model_ = LlamaDecoder::bind(c.text, source.binder(sizes_, "language").scope("lm"), "lm_head",
                                       "model.language_model");

  info_.family = "llava_onevision";
  info_.architecture = "LlavaOnevisionForConditionalGeneration";
  info_.vocab_size = c.text.vocab_size;
  info_.hidden_size = c.text.hidden_size;
  info_.n_layers = c.text.n_layers;
  info_.n_heads = c.text.n_heads;
  info_.n_kv_heads = c.text.n_kv_heads;
  info_.head_dim = c.text.head_dim;
  info_.max_context_tokens = c.text.max_position_embeddings;
  info_.max_shareable_tokens = c.text.rope.max_shareable_tokens();
  info_.image_placeholder = "<image>";
  info_.image_token_id = c.placeholders.image;
  info_.video_placeholder = "<video>";
  info_.video_token_id = c.placeholders.video;
  info_.video_sampling = c.sampling;
  info_.never_sample = {c.placeholders.image, c.placeholders.video};
  info_.default_chat_template = kTemplate;
}

MediaPlan LlavaOnevision::plan_media(const MediaMeta& meta, const MediaOptions&) const {
  if (!meta.is_video) return config_.anyres.plan(meta);
  const int side = config_.anyres.side_px;
  const auto q = static_cast<int>(config_.pooled_grid());
  MediaPlan plan{.meta = meta,
                 .resized_width_px = side,
                 .resized_height_px = side,
                 .grid_t = meta.n_frames,
                 .grid_h = q,
                 .grid_w = q};
  plan.n_patches = meta.n_frames * config_.anyres.tower_rows;
  plan.n_tokens = std::int64_t{meta.n_frames} * q * q + 1;
  plan.n_prompt_tokens = plan.n_tokens;
  return plan;
}

Tensor LlavaOnevision::preprocess(std::span<const Image> frames, const MediaPlan& plan,
                                  ThreadPool* pool) const {
  if (!plan.meta.is_video) return config_.anyres.preprocess(frames.front(), plan, pool);  // [V, 3, S, S]
  const int side = config_.anyres.side_px;
  Tensor out(DType::kF32, {static_cast<std::int64_t>(frames.size()), 3, side, side});
  for (std::size_t i = 0; i < frames.size(); ++i)
    normalize_chw(
        resize(frames[i], side, side, config_.frames.resample, pool), config_.frames.normalize,
        {out.view().row(static_cast<std::int64_t>(i)).f32(), static_cast<std::size_t>(3 * side * side)});
  return out;  // [F, 3, S, S]
}

PromptLayout LlavaOnevision::expand_prompt(std::span<const std::int32_t> ids,
                                           std::span<const MediaPlan> plans) const {
  return expand_in_place(ids, config_.placeholders, plans);
}

TensorView LlavaOnevision::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
  std::int64_t n_tokens = 0;
  for (const MediaItem& item : items) n_tokens += item.plan.n_tokens;
  TensorView out = cx.empty({n_tokens, config_.text.hidden_size});
  std::int64_t row = 0;
  for (const MediaItem& item : items) {
    const TensorView rows = out.rows(row, row + item.plan.n_tokens);
    if (item.plan.meta.is_video) {
      encode_video(cx, item, rows);
    } else {
      config_.anyres.encode(cx, vision_, image_newline_.view(), item, rows);
    }
    row += item.plan.n_tokens;
  }
  return out;  // [n tokens, D]
}

// out [F q q + 1, D].
void LlavaOnevision::encode_video(ExecContext& cx, const MediaItem& item, TensorView out) const {
  const std::int64_t g = config_.anyres.grid;
  const std::int64_t q = config_.pooled_grid();
  const std::int64_t n_frames = item.pixels.shape().dim(0);
  TRIPTYCH_CHECK(out.dim(0) == n_frames * q * q + 1, "[llava_onevision] {} rows planned for {} frames",
                 out.dim(0), n_frames);
  for (std::int64_t frame = 0; frame < n_frames; frame += kFramesAtOnce) {
    const ArenaScope scratch(cx.arena());
    const std::int64_t n = std::min(kFramesAtOnce, n_frames - frame);
    const auto views = cx.arena().make_span<TensorView>(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      views[static_cast<std::size_t>(i)] = item.pixels.view().row(frame + i);
    const TensorView features = vision_.encode(cx, views);  // [n P, D]
    RowMixture pooled(cx.arena(), n * q * q);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t y = 0; y < q; ++y)
        for (std::int64_t x = 0; x < q; ++x)
          pooled.add(bilinear_tap(y, g, q), bilinear_tap(x, g, q),
                     [&](std::int64_t row, std::int64_t col) { return (i * g + row) * g + col; });
    pooled.write(cx, features, out.rows(frame * q * q, (frame + n) * q * q));  // [n q q, D]
  }
  cx.copy(image_newline_.view(), out.row(n_frames * q * q));
}

TensorView LlavaOnevision::forward(ExecContext& cx, const Batch& batch) const {
  TensorView h = language_model_.embed(cx, ids_for_embedding(cx, batch));  // [T, D]
  apply_media(cx, batch, h);
  return language_model_.forward(cx, h,
                                 {.positions = batch.positions,
                                  .lengths = batch.lengths,
                                  .sequences = batch.sequences,
                                  .kv_slots = batch.kv_slots,
                                  .kv_cache = batch.kv_cache,
                                  .logit_rows = batch.logit_rows,
                                  .skipped_layers = batch.skipped_layers});
}

}  // namespace

void register_llava_onevision(ModelRegistry& registry) {
  registry.add({.name = "llava_onevision",
                .architectures = {"LlavaOnevisionForConditionalGeneration"},
                .matches = nullptr,
                .load = [](const ModelSource& source) { return std::make_unique<LlavaOnevision>(source); },
                .takes_videos = true,
                .without_preprocessor = ModelRegistry::needs_preprocessor});
}

}  // namespace triptych

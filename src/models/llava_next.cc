// LLaVA-NeXT (LLaVA-1.6): LLaVA with pictures in tiles of the tower's size ("any resolution").
//   Liu et al., "LLaVA-NeXT: Improved reasoning, OCR, and world knowledge" (2024).
//   Reference: transformers 5.24, models/llava_next/modeling_llava_next.py,
//   image_processing_pil_llava_next.py, processing_llava_next.py.
// A picture is seen whole (resized to S x S, aspect ratio ignored) and as nh x nw tiles of S x S cut from a
// canvas it is fitted and centred in. The features of the tiles are put together as one map, the rows and
// columns that only saw padding are cut away, each row of the map ends with a learned newline, and the whole
// view's features come first:
//   tokens = P + rows * (cols + 1)
// Shapes: S tower side, g = S / patch, P = g * g, V views of a picture (1 + nh nw), D language width.
// Deviations: EXIF orientation is applied and alpha is composited over white first (the reference does
// neither).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/clip_image_processor.h"
#include "models/llama_text.h"
#include "models/model.h"
#include "models/prompt_layout.h"
#include "nn/llama_decoder.h"
#include "nn/llava_vision.h"
#include "weights/weight_names.h"

namespace triptych {
namespace {

// ---- configuration
// ------------------------------------------------------------------------------------------------

// Documented prompts of the published models, for directories without a template of their own.
constexpr std::string_view kMistralTemplate =
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' }}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}{{ '<image>\n' }}{% else %}{{ "
    "content['text'] }}{% endif %}"
    "{% endfor %}{{ ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' }}{% for content in message['content'] %}{{ "
    "content['text'] }}{% endfor %}{{ '</s>' }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}";
constexpr std::string_view kVicunaTemplate =
    "{% if messages[0]['role'] != 'system' %}{{ 'A chat between a curious human and an artificial "
    "intelligence assistant. The "
    "assistant gives helpful, detailed, and polite answers to the human\\'s questions. ' }}{% endif %}"
    "{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'][0]['text'] + ' ' "
    "}}{% else %}"
    "{{ message['role'].upper() + ': ' }}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}{{ '<image>\n' }}{% else %}{{ "
    "content['text'] }}{% endif %}"
    "{% endfor %}{{ '</s>' if message['role'] == 'assistant' else ' ' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}";
constexpr std::string_view kChatmlTemplate =
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nAnswer the questions.<|im_end|>' }}{% "
    "endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}{{ '<image>\n' }}{% else %}{{ "
    "content['text'] }}{% endif %}"
    "{% endfor %}{{ '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

struct LlavaNextConfig {
  LlamaConfig text;
  std::string text_model_type;
  LlavaVisionConfig vision;
  std::int32_t image_token_id = 32000;
  std::vector<SizePx> pinpoints;  // canvases a picture may be fitted in
  Filter resample = Filter::kBicubic;
  NormalizeOptions normalize;

  static LlavaNextConfig parse(const ModelSource& source);
};

// Lists of [height, width], each a multiple of the tower's side.
std::vector<SizePx> parse_pinpoints(const JsonView& value, int side) {
  std::vector<SizePx> out;
  for (const JsonView& item : value.items()) {
    const auto pair = item.items();
    if (pair.size() != 2) item.fail_expected("[height, width]");
    const SizePx size{static_cast<int>(pair[1].as_int(1, 1 << 16)),
                      static_cast<int>(pair[0].as_int(1, 1 << 16))};
    if (size.width_px % side != 0 || size.height_px % side != 0 ||
        (size.width_px / side) * static_cast<std::int64_t>(size.height_px / side) > 256)
      item.fail_expected(fmt::format("multiples of the tower's image_size {} with at most 256 tiles", side));
    out.push_back(size);
  }
  if (out.empty() || out.size() > 1024) value.fail_expected("1 to 1024 sizes");
  return out;
}

LlavaNextConfig LlavaNextConfig::parse(const ModelSource& source) {
  const JsonView& c = source.config;
  LlavaNextConfig out;
  out.text = parse_llama_text(c, source.tie_word_embeddings);
  out.text_model_type = c.at("text_config").get_string("model_type", "llama");
  out.vision = LlavaVisionConfig::parse(c);
  const int side = out.vision.tower.image_size_px;
  if (out.vision.tokens_per_picture() != out.vision.tower.n_patches())
    fail(ErrorCode::kUnsupported,
         "{}.vision_feature_select_strategy: tiles need one feature per patch, without the class token",
         c.path());
  out.image_token_id = static_cast<std::int32_t>(
      c.get_int("image_token_id", c.get_int("image_token_index", 32000, 0, 1 << 30), 0, 1 << 30));
  // The processor's list says how pictures are cut; the configuration's must agree with it, so one is enough.
  const auto listed = source.preprocessor ? source.preprocessor->find("image_grid_pinpoints") : std::nullopt;
  if (const auto pinpoints = listed ? listed : c.find("image_grid_pinpoints")) {
    out.pinpoints = parse_pinpoints(*pinpoints, side);
  } else {
    out.pinpoints = {
        {2 * side, side}, {side, 2 * side}, {2 * side, 2 * side}, {side, 3 * side}, {3 * side, side}};
  }
  const Json empty = Json::object();
  const JsonView processor = source.preprocessor.value_or(JsonView(empty, "preprocessor_config.json"));
  out.resample = filter_from_pillow(static_cast<int>(processor.get_int("resample", 3, 0, 5)));
  out.normalize = parse_normalize(processor);
  if (const auto size = processor.find("size"); size && size->is_object()) {
    const char* const key = size->has("shortest_edge") ? "shortest_edge" : "height";
    if (size->get_int(key, side) != side)
      size->at(key).fail_expected(fmt::format("the tower's image_size {}", side));
  }
  return out;
}

// ---- geometry
// -----------------------------------------------------------------------------------------------------

// The canvas that keeps most of the picture's pixels, and of those the one that wastes least; the first on a
// tie.
SizePx select_best_resolution(SizePx picture, std::span<const SizePx> pinpoints) {
  SizePx best;
  std::int64_t best_effective = -1;
  std::int64_t best_wasted = 0;
  for (const SizePx& p : pinpoints) {
    const double scale = std::min(static_cast<double>(p.width_px) / picture.width_px,
                                  static_cast<double>(p.height_px) / picture.height_px);
    const auto w = static_cast<std::int64_t>(picture.width_px * scale);
    const auto h = static_cast<std::int64_t>(picture.height_px * scale);
    const std::int64_t effective =
        std::min(w * h, static_cast<std::int64_t>(picture.width_px) * picture.height_px);
    const std::int64_t wasted = static_cast<std::int64_t>(p.width_px) * p.height_px - effective;
    if (effective > best_effective || (effective == best_effective && wasted < best_wasted)) {
      best = p;
      best_effective = effective;
      best_wasted = wasted;
    }
  }
  return best;
}

// Size of the picture inside its canvas. In double and in this order: 300 * (336 / 300) rounds up to 337
// before the limit.
SizePx fitted_size(SizePx picture, SizePx canvas) {
  const double scale_w = static_cast<double>(canvas.width_px) / picture.width_px;
  const double scale_h = static_cast<double>(canvas.height_px) / picture.height_px;
  if (scale_w < scale_h)
    return {canvas.width_px,
            std::min(static_cast<int>(std::ceil(picture.height_px * scale_w)), canvas.height_px)};
  return {std::min(static_cast<int>(std::ceil(picture.width_px * scale_h)), canvas.width_px),
          canvas.height_px};
}

// Rows and columns of the feature map that are kept, by the original aspect ratio.
struct Unpadded {
  std::int64_t first_row, n_rows, first_col, n_cols;
};
Unpadded unpad(SizePx picture, std::int64_t height, std::int64_t width) {
  const std::int64_t w = picture.width_px;
  const std::int64_t h = picture.height_px;
  if (w * height > width * h) {  // wider than the canvas: rows were padded
    const std::int64_t padding = (height - h * width / w) / 2;
    return {padding, height - 2 * padding, 0, width};
  }
  const std::int64_t padding = (width - w * height / h) / 2;
  return {0, height, padding, width - 2 * padding};
}

// ---- the model
// ----------------------------------------------------------------------------------------------------

class LlavaNext : public Model {
 public:
  explicit LlavaNext(const ModelSource& source);
  const ModelInfo& info() const override { return info_; }
  MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const override;
  Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const override;
  PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                             std::span<const MediaPlan> plans) const override;
  TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const override;
  TensorView forward(ExecContext& cx, const Batch& batch) const override;
  const PartSizes& part_sizes() const override { return sizes_; }

 private:
  int grid() const { return config_.vision.tower.image_size_px / config_.vision.tower.patch_size_px; }
  Unpadded kept(const MediaPlan& plan) const {
    return unpad({plan.meta.width_px, plan.meta.height_px}, static_cast<std::int64_t>(plan.grid_h) * grid(),
                 static_cast<std::int64_t>(plan.grid_w) * grid());
  }

  LlavaNextConfig config_;
  ModelInfo info_;
  PartSizes sizes_;
  LlavaVision vision_;
  Tensor image_newline_;  // [D]
  LlamaDecoder language_model_;
};

LlavaNext::LlavaNext(const ModelSource& source) : config_(LlavaNextConfig::parse(source)) {
  const LlavaNextConfig& c = config_;
  WeightProvider& weights = *source.weights;
  weights.rename([](std::string_view name) { return canonical_weight_name(name); });
  vision_ = LlavaVision::bind(c.vision, source.binder(sizes_, "vision"), source.binder(sizes_, "projector"),
                              c.text.hidden_size);
  image_newline_ = source.binder(sizes_, "projector").tensor("image_newline", {c.text.hidden_size});
  language_model_ = LlamaDecoder::bind(c.text, source.binder(sizes_, "language").scope("lm"), "lm_head",
                                       "model.language_model");

  info_.family = "llava_next";
  info_.architecture = "LlavaNextForConditionalGeneration";
  info_.vocab_size = c.text.vocab_size;
  info_.hidden_size = c.text.hidden_size;
  info_.n_layers = c.text.n_layers;
  info_.n_heads = c.text.n_heads;
  info_.n_kv_heads = c.text.n_kv_heads;
  info_.head_dim = c.text.head_dim;
  info_.max_context_tokens = c.text.max_position_embeddings;
  info_.max_shareable_tokens = c.text.rope.max_shareable_tokens();
  info_.image_placeholder = "<image>";
  info_.image_token_id = c.image_token_id;
  info_.never_sample = {c.image_token_id};
  const std::string& type = c.text_model_type;
  // Yi calls itself llama; its vocabulary tells.
  const bool chatml = type == "qwen2" || (source.token_id && source.token_id("<|im_start|>"));
  info_.default_chat_template = type == "mistral" ? kMistralTemplate
                                : chatml          ? kChatmlTemplate
                                                  : kVicunaTemplate;
}

// grid_h x grid_w counts tiles; resized is the picture inside its canvas.
MediaPlan LlavaNext::plan_media(const MediaMeta& meta, const MediaOptions&) const {
  const SizePx picture{meta.width_px, meta.height_px};
  const SizePx canvas = select_best_resolution(picture, config_.pinpoints);
  const SizePx fitted = fitted_size(picture, canvas);
  MediaPlan plan;
  plan.meta = meta;
  plan.resized_width_px = fitted.width_px;
  plan.resized_height_px = fitted.height_px;
  plan.grid_h = canvas.height_px / config_.vision.tower.image_size_px;
  plan.grid_w = canvas.width_px / config_.vision.tower.image_size_px;
  const Unpadded k = kept(plan);
  plan.n_tokens = config_.vision.tokens_per_picture() + k.n_rows * (k.n_cols + 1);
  plan.n_prompt_tokens = plan.n_tokens;
  return plan;
}

Tensor LlavaNext::preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const {
  const Image& picture = frames.front();
  const int side = config_.vision.tower.image_size_px;
  const std::int64_t n_views = 1 + static_cast<std::int64_t>(plan.grid_h) * plan.grid_w;
  Tensor out(DType::kF32, {n_views, 3, side, side});
  const auto write = [&](const Image& view, std::int64_t i) {
    normalize_chw(view, config_.normalize,
                  {out.view().row(i).f32(), static_cast<std::size_t>(3 * side * side)});
  };
  write(resize(picture, side, side, config_.resample, pool), 0);
  const int left = (plan.grid_w * side - plan.resized_width_px) / 2;
  const int top = (plan.grid_h * side - plan.resized_height_px) / 2;
  const Image canvas =
      pad(resize(picture, plan.resized_width_px, plan.resized_height_px, config_.resample, pool),
          {.left = left,
           .top = top,
           .right = plan.grid_w * side - plan.resized_width_px - left,
           .bottom = plan.grid_h * side - plan.resized_height_px - top},
          kBlack);
  for (int y = 0; y < plan.grid_h; ++y)
    for (int x = 0; x < plan.grid_w; ++x)
      write(crop(canvas, x * side, y * side, {side, side}),
            1 + static_cast<std::int64_t>(y) * plan.grid_w + x);
  return out;  // [V, 3, S, S]
}

PromptLayout LlavaNext::expand_prompt(std::span<const std::int32_t> ids,
                                      std::span<const MediaPlan> plans) const {
  return expand_in_place(ids, config_.image_token_id, plans);
}

TensorView LlavaNext::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
  const std::int64_t g = grid();
  const std::int64_t p = config_.vision.tokens_per_picture();
  const std::int64_t d = config_.text.hidden_size;
  std::int64_t n_views = 0;
  std::int64_t n_tokens = 0;
  for (const MediaItem& item : items) {
    n_views += item.pixels.shape().dim(0);
    n_tokens += item.plan.n_tokens;
  }
  TensorView out = cx.empty({n_tokens, d});
  const ArenaScope scratch(cx.arena());
  const auto views = cx.arena().make_span<TensorView>(static_cast<std::size_t>(n_views));
  std::size_t next = 0;
  for (const MediaItem& item : items)
    for (std::int64_t i = 0; i < item.pixels.shape().dim(0); ++i) views[next++] = item.pixels.view().row(i);
  TensorView table = cx.empty({n_views * p + 1, d});  // features of all views, then the newline
  cx.copy(vision_.encode(cx, views), table.rows(0, n_views * p));
  cx.copy(image_newline_, table.row(n_views * p));

  // Which row of the table each token is.
  const auto rows = cx.arena().make_span<std::int32_t>(static_cast<std::size_t>(n_tokens));
  std::size_t t = 0;
  std::int64_t first = 0;  // first row of this picture's views
  for (const MediaItem& item : items) {
    const Unpadded k = kept(item.plan);
    TRIPTYCH_CHECK(item.plan.n_tokens == p + k.n_rows * (k.n_cols + 1) &&
                       item.pixels.shape().dim(0) == 1 + std::int64_t{item.plan.grid_h} * item.plan.grid_w,
                   "[llava_next] {} rows of {} views planned for {}x{} kept", item.plan.n_tokens,
                   item.pixels.shape().dim(0), k.n_rows, k.n_cols);
    for (std::int64_t i = 0; i < p; ++i) rows[t++] = static_cast<std::int32_t>(first + i);
    for (std::int64_t y = k.first_row; y < k.first_row + k.n_rows; ++y) {
      for (std::int64_t x = k.first_col; x < k.first_col + k.n_cols; ++x) {
        const std::int64_t tile = 1 + (y / g) * item.plan.grid_w + x / g;
        rows[t++] = static_cast<std::int32_t>(first + tile * p + (y % g) * g + x % g);
      }
      rows[t++] = static_cast<std::int32_t>(n_views * p);
    }
    first += item.pixels.shape().dim(0) * p;
  }
  cx.copy(cx.gather_rows(table, rows), out);
  return out;  // [n tokens, D]
}

TensorView LlavaNext::forward(ExecContext& cx, const Batch& batch) const {
  TensorView h = language_model_.embed(cx, ids_for_embedding(cx, batch));  // [T, D]
  apply_media(cx, batch, h);
  return language_model_.forward(
      cx, h,
      {batch.positions, batch.lengths, batch.sequences, batch.kv_slots, batch.kv_cache, batch.logit_rows});
}

}  // namespace

void register_llava_next(ModelRegistry& registry) {
  registry.add({.name = "llava_next",
                .architectures = {"LlavaNextForConditionalGeneration"},
                .matches = nullptr,
                .load = [](const ModelSource& source) { return std::make_unique<LlavaNext>(source); },
                .without_preprocessor = ModelRegistry::needs_preprocessor});
}

}  // namespace triptych

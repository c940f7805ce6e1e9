// Fuyu: a decoder that reads picture patches directly, without a tower.
//   Adept, "Fuyu-8B: A Multimodal Architecture for AI Agents" (2023). The decoder is Persimmon-8B's.
//   Reference: transformers 5.24, models/fuyu/{modeling_fuyu,image_processing_pil_fuyu,processing_fuyu}.py,
//   models/persimmon/modeling_persimmon.py.
// A picture is a grid of p x p patches, each projected to one token; every row of patches ends with a newline
// token:
//   [ speaker x cols, newline ] x rows, <s>, text ..., <0x04>
// Shapes: p patch side, P patches, D width, H heads, Dh head width, F feed-forward width, T tokens, V
// vocabulary. Deviations: EXIF orientation is applied and alpha is composited over white first (the reference
// does neither).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/clip_image_processor.h"
#include "models/fuyu_tags.h"
#include "models/model.h"
#include "models/prompt_layout.h"
#include "nn/activation.h"
#include "nn/config_numbers.h"
#include "nn/logit_rows.h"
#include "nn/norm.h"
#include "nn/rope.h"
#include "weights/weight_names.h"

namespace triptych {
namespace {

// ---- configuration
// ------------------------------------------------------------------------------------------------

// Captioning and question prompts are plain text after the picture and end with a newline, as published; the
// answer starts after <0x04>.
constexpr std::string_view kDefaultTemplate =
    "{% for message in messages %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' %}{{ '|SPEAKER|' }}{% else %}{{ content['text'] }}"
    "{% if loop.last and message['role'] == 'user' and content['text'] and not "
    "content['text'].endswith('\n') %}"
    "{{ '\n' }}{% endif %}{% endif %}"
    "{% endfor %}{% endfor %}";

struct FuyuConfig {
  // Persimmon; defaults are FuyuConfig's.
  std::int64_t vocab_size = 262144;
  std::int64_t hidden_size = 4096;         // D
  std::int64_t intermediate_size = 16384;  // F
  int n_layers = 36;
  int n_heads = 64;   // H
  int head_dim = 64;  // Dh
  std::int64_t max_position_embeddings = 16384;
  float layer_norm_eps = 1e-5F;
  Activation hidden_act = Activation::kRelu2;
  bool qk_layernorm = true;
  bool tie_word_embeddings = false;
  RopeConfig rope;

  int patch_size_px = 30;
  SizePx limit_px{1920, 1080};  // pictures are shrunk to fit, never enlarged
  Filter resample = Filter::kBilinear;
  Rgb8 padding{1, 1, 1};  // before rescaling: nearly black
  NormalizeOptions normalize;

  std::int32_t speaker_id = 71011;  // |SPEAKER|, stands for a patch
  std::int32_t newline_id = 71019;  // |NEWLINE|
  std::int32_t bos_id = 1;          // <s>, after the picture
  std::int32_t answer_id = 71122;   // <0x04>, the answer begins
  std::int32_t end_id = 71013;      // |ENDOFTEXT|

  /// What normalised pixels are multiples of; none when the channels differ.
  ActivationQuant pixel_grid() const;
  static FuyuConfig parse(const ModelSource& source);
  void parse_processor(const JsonView& c);
  void find_tokens(const ModelSource& source);
};

ActivationQuant FuyuConfig::pixel_grid() const {
  const auto same = [](const std::array<double, 3>& v) { return v[0] == v[1] && v[1] == v[2]; };
  const double mean = normalize.do_normalize ? normalize.mean[0] : 0;
  const double deviation = normalize.do_normalize ? normalize.std[0] : 1;
  const double step = (normalize.do_rescale ? normalize.rescale_factor : 1.0) / deviation;
  if (!same(normalize.mean) || !same(normalize.std) || !(step > 0)) return {};
  // Pixel p is code p - 128.
  return {static_cast<float>(step), static_cast<float>(128 * step - mean / deviation)};
}

FuyuConfig FuyuConfig::parse(const ModelSource& source) {
  const JsonView& top = source.config;
  const JsonView c = top.find("text_config").value_or(top);
  FuyuConfig out;
  out.vocab_size = c.get_int("vocab_size", out.vocab_size, 1, 1 << 24);
  out.hidden_size = c.get_int("hidden_size", out.hidden_size, 1, 1 << 20);
  out.intermediate_size = c.get_int("intermediate_size", out.intermediate_size, 1, 1 << 22);
  out.n_layers = static_cast<int>(c.get_int("num_hidden_layers", out.n_layers, 1, 1024));
  out.n_heads = static_cast<int>(c.get_int("num_attention_heads", out.n_heads, 1, 65536));
  if (out.hidden_size % out.n_heads != 0)
    fail(ErrorCode::kInvalidFile, "{}: hidden_size {} is no multiple of num_attention_heads {}", c.path(),
         out.hidden_size, out.n_heads);
  out.head_dim = static_cast<int>(out.hidden_size / out.n_heads);
  out.max_position_embeddings =
      c.get_int("max_position_embeddings", out.max_position_embeddings, 1, std::int64_t{1} << 31);
  out.layer_norm_eps = read_norm_eps(c, "layer_norm_eps", 1e-5);
  out.hidden_act = get_activation(c, "hidden_act", Activation::kRelu2);
  out.qk_layernorm = c.get_bool("qk_layernorm", true);
  out.tie_word_embeddings = source.tie_word_embeddings ||
                            c.get_bool("tie_word_embeddings", top.get_bool("tie_word_embeddings", false));
  out.rope = RopeConfig::parse(c, out.head_dim, 25000.0, out.max_position_embeddings,
                               read_positive(top, "partial_rotary_factor", 0.5, 1.0));
  out.patch_size_px = static_cast<int>(top.get_int("patch_size", 30, 1, 4096));
  top.get_int("num_channels", 3, 3, 3);
  out.parse_processor(
      source.preprocessor.value_or(JsonView(empty_json_object(), "preprocessor_config.json")));
  out.find_tokens(source);
  return out;
}

void FuyuConfig::parse_processor(const JsonView& c) {
  if (const auto size = c.find("size"))
    limit_px = {static_cast<int>(size->at("width").as_int(1, 1 << 16)),
                static_cast<int>(size->at("height").as_int(1, 1 << 16))};
  if (const auto patch = c.find("patch_size"); patch && patch->is_object())
    for (const char* key : {"height", "width"})
      if (patch->at(key).as_int() != patch_size_px)
        fail(ErrorCode::kInvalidFile, "{}.{}: expected config.json's patch_size {}", patch->path(), key,
             patch_size_px);
  resample = filter_from_pillow(static_cast<int>(c.get_int("resample", 2, 0, 5)));
  const auto value = static_cast<std::uint8_t>(c.get_int("padding_value", 1, 0, 255));
  padding = {value, value, value};
  const std::string mode = c.get_string("padding_mode", "constant");
  if (mode != "constant")
    fail(ErrorCode::kUnsupported, "{}.padding_mode: \"{}\" is not supported; supported: constant", c.path(),
         mode);
  normalize = parse_normalize(c);
  if (!c.has("image_mean")) normalize.mean = {0.5, 0.5, 0.5};
  if (!c.has("image_std")) normalize.std = {0.5, 0.5, 0.5};
}

// Ids are those of the directory's vocabulary; the published ones stand in where there is none.
void FuyuConfig::find_tokens(const ModelSource& source) {
  const auto find = [&](std::string_view content, std::int32_t& id) {
    if (source.token_id)
      if (const auto found = source.token_id(content)) id = *found;
    if (id < 0 || id >= vocab_size)
      fail(ErrorCode::kInvalidFile, "the tokenizer has no token {} within the vocabulary of {}", content,
           vocab_size);
  };
  if (!source.token_id && vocab_size <= answer_id) return;  // shapes alone, without a tokenizer
  find("|SPEAKER|", speaker_id);
  find("|NEWLINE|", newline_id);
  find("<s>", bos_id);
  find("<0x04>", answer_id);
  find("|ENDOFTEXT|", end_id);
}

// ---- the model
// ----------------------------------------------------------------------------------------------------

class Fuyu : public Model {
 public:
  explicit Fuyu(const ModelSource& source);
  const ModelInfo& info() const override { return info_; }
  MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const override;
  Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const override;
  PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                             std::span<const MediaPlan> plans) const override;
  TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const override;
  TensorView forward(ExecContext& cx, const Batch& batch) const override;
  std::vector<TypedTag> find_typed_tags(std::string_view text,
                                        std::span<const MediaPlan> plans) const override {
    return tags_.find_typed(text, plans.empty() ? nullptr : &plans.front());
  }
  AnswerTag read_answer_tag(std::span<const std::int32_t> ids,
                            std::span<const MediaPlan> plans) const override {
    return tags_.read_answer(ids, plans.empty() ? nullptr : &plans.front());
  }
  std::vector<Region> find_regions(std::string_view, std::span<const std::int32_t> ids,
                                   std::span<const MediaPlan> plans) const override {
    return plans.empty() ? std::vector<Region>{} : tags_.find_regions(ids, plans.front());
  }
  const PartSizes& part_sizes() const override { return sizes_; }

 private:
  struct Layer {
    LayerNorm input_layernorm;
    std::unique_ptr<LinearWeight> query_key_value;  // [3 D, D], per head q, k, v
    std::optional<LayerNorm> q_layernorm;           // [Dh], shared by the heads
    std::optional<LayerNorm> k_layernorm;
    std::unique_ptr<LinearWeight> dense;  // [D, D]
    LayerNorm post_attention_layernorm;
    std::unique_ptr<LinearWeight> dense_h_to_4h;  // [F, D]
    std::unique_ptr<LinearWeight> dense_4h_to_h;  // [D, F]
  };
  TensorView self_attention(ExecContext& cx, const Layer& layer, int index, const LinearInput& x,
                            const RopeAngles& angles, const Batch& batch) const;

  FuyuConfig config_;
  FuyuTags tags_;
  ModelInfo info_;
  PartSizes sizes_;
  std::unique_ptr<LinearWeight> vision_embed_tokens_;  // [D, 3 p p]
  std::unique_ptr<EmbeddingWeight> embed_tokens_;      // [V, D]
  std::vector<Layer> layers_;
  LayerNorm final_layernorm_;
  std::unique_ptr<LinearWeight> lm_head_;  // [V, D]
  Rope rope_;
};

Fuyu::Fuyu(const ModelSource& source) : config_(FuyuConfig::parse(source)), rope_(config_.rope) {
  const FuyuConfig& c = config_;
  const std::int64_t d = c.hidden_size;
  WeightProvider& weights = *source.weights;
  weights.rename([](std::string_view name) { return canonical_weight_name(name); });
  vision_embed_tokens_ = source.binder(sizes_, "vision")
                             .linear("vision_embed_tokens", d, 3LL * c.patch_size_px * c.patch_size_px,
                                     Bias::kRequired, {.role = LinearRole::kPixelInput, .int8_inputs = true});
  Binder language = source.binder(sizes_, "language").scope("lm");
  embed_tokens_ = language.embedding("embed_tokens.weight", c.vocab_size, d);
  for (int i = 0; i < c.n_layers; ++i) {
    Binder b = language.scope(fmt::format("layers.{}", i));
    Layer layer;
    layer.input_layernorm = LayerNorm::bind(b, "input_layernorm", d, c.layer_norm_eps);
    layer.query_key_value = b.linear("self_attn.query_key_value", 3 * d, d, Bias::kRequired);
    if (c.qk_layernorm) {
      layer.q_layernorm = LayerNorm::bind(b, "self_attn.q_layernorm", c.head_dim, c.layer_norm_eps);
      layer.k_layernorm = LayerNorm::bind(b, "self_attn.k_layernorm", c.head_dim, c.layer_norm_eps);
    }
    layer.dense = b.linear("self_attn.dense", d, d, Bias::kRequired);
    layer.post_attention_layernorm = LayerNorm::bind(b, "post_attention_layernorm", d, c.layer_norm_eps);
    layer.dense_h_to_4h = b.linear("mlp.dense_h_to_4h", c.intermediate_size, d, Bias::kRequired);
    layer.dense_4h_to_h = b.linear("mlp.dense_4h_to_h", d, c.intermediate_size, Bias::kRequired);
    b.equalizable({.writers = {{"input_layernorm.weight"}, {"input_layernorm.bias"}},
                   .readers = {"self_attn.query_key_value.weight"},
                   .n_channels = d});
    b.equalizable({.writers = {{"post_attention_layernorm.weight"}, {"post_attention_layernorm.bias"}},
                   .readers = {"mlp.dense_h_to_4h.weight"},
                   .n_channels = d});
    layers_.push_back(std::move(layer));
  }
  final_layernorm_ = LayerNorm::bind(language, "final_layernorm", d, c.layer_norm_eps);
  const bool own_head = weights.has("lm_head.weight");  // a stored one counts before the flag
  if (!own_head && !c.tie_word_embeddings)
    fail(ErrorCode::kNotFound, "tensor lm_head.weight is missing and tie_word_embeddings is false");
  lm_head_ = language.root().linear(own_head ? "lm_head" : "lm.embed_tokens", c.vocab_size, d, Bias::kNone,
                                    {.role = LinearRole::kHead});

  info_.family = "fuyu";
  info_.architecture = "FuyuForCausalLM";
  info_.vocab_size = c.vocab_size;
  info_.hidden_size = d;
  info_.n_layers = c.n_layers;
  info_.n_heads = c.n_heads;
  info_.n_kv_heads = c.n_heads;
  info_.head_dim = c.head_dim;
  info_.max_context_tokens = c.max_position_embeddings;
  info_.max_shareable_tokens = c.rope.max_shareable_tokens();
  info_.eos_token_ids = {c.end_id};
  info_.image_placeholder = "|SPEAKER|";
  info_.image_token_id = c.speaker_id;
  info_.never_sample = {c.speaker_id, c.newline_id};
  info_.default_chat_template = kDefaultTemplate;
  info_.never_typed = {"|NEWLINE|", "|ENDOFTEXT|", "<s>"};
  info_.names_regions = true;
  if (source.token_id) tags_ = FuyuTags(source.token_id, c.limit_px);
  info_.max_images = 1;
  info_.supports_system_prompt = false;
  info_.add_special_tokens_with_media = false;  // <s> follows the picture
}

// grid_h x grid_w counts patches; partial ones at the right and at the bottom are padded.
MediaPlan Fuyu::plan_media(const MediaMeta& meta, const MediaOptions&) const {
  const SizePx limit = config_.limit_px;
  const int p = config_.patch_size_px;
  MediaPlan plan;
  plan.meta = meta;
  plan.resized_width_px = meta.width_px;
  plan.resized_height_px = meta.height_px;
  if (meta.width_px > limit.width_px || meta.height_px > limit.height_px) {
    const double scale = std::min(static_cast<double>(limit.height_px) / meta.height_px,
                                  static_cast<double>(limit.width_px) / meta.width_px);
    plan.resized_width_px = static_cast<int>(meta.width_px * scale);
    plan.resized_height_px = static_cast<int>(meta.height_px * scale);
    if (plan.resized_width_px < 1 || plan.resized_height_px < 1)
      fail(ErrorCode::kInvalidArgument,
           "a picture of {}x{} pixels has no pixel left when it is shrunk to fit {}x{}", meta.width_px,
           meta.height_px, limit.width_px, limit.height_px);
  }
  plan.grid_w = (plan.resized_width_px + p - 1) / p;
  plan.grid_h = (plan.resized_height_px + p - 1) / p;
  plan.n_tokens = static_cast<std::int64_t>(plan.grid_h) * plan.grid_w;
  plan.n_patches = plan.n_tokens;
  plan.n_prompt_tokens = static_cast<std::int64_t>(plan.grid_h) * (plan.grid_w + 1);
  return plan;
}

Tensor Fuyu::preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const {
  const std::int64_t p = config_.patch_size_px;
  const int width = plan.grid_w * config_.patch_size_px;
  const int height = plan.grid_h * config_.patch_size_px;
  const Image fitted =
      pad(resize(frames.front(), plan.resized_width_px, plan.resized_height_px, config_.resample, pool),
          {.left = 0,
           .top = 0,
           .right = width - plan.resized_width_px,
           .bottom = height - plan.resized_height_px},
          config_.padding);
  const std::vector<float> planes = normalize_chw(fitted, config_.normalize);  // [3, height, width]
  Tensor out(DType::kF32, {plan.n_tokens, p * p * 3});
  float* to = out.f32();
  for (std::int64_t row = 0; row < plan.grid_h; ++row)
    for (std::int64_t col = 0; col < plan.grid_w; ++col)
      for (std::int64_t y = 0; y < p; ++y)
        for (std::int64_t x = 0; x < p; ++x)
          for (std::int64_t channel = 0; channel < 3; ++channel)
            *to++ = planes[static_cast<std::size_t>((channel * height + row * p + y) * width + col * p + x)];
  return out;  // [P, p p 3], channel last inside a patch
}

PromptLayout Fuyu::expand_prompt(std::span<const std::int32_t> ids, std::span<const MediaPlan> plans) const {
  check_placeholder_count(std::count(ids.begin(), ids.end(), config_.speaker_id),
                          static_cast<std::int64_t>(plans.size()));
  PromptLayout out;
  std::span<const std::int32_t> text = ids;
  if (!plans.empty()) {
    if (plans.size() > 1)
      fail(ErrorCode::kInvalidArgument, "Fuyu takes one picture in a prompt, got {}", plans.size());
    if (ids.front() != config_.speaker_id)
      fail(ErrorCode::kInvalidArgument, "Fuyu's picture stands before the text");
    const MediaPlan& plan = plans.front();
    for (int row = 0; row < plan.grid_h; ++row) {
      out.runs.push_back({.media_index = 0,
                          .first_media_row = static_cast<std::int64_t>(row) * plan.grid_w,
                          .first_prompt_row = static_cast<std::int64_t>(out.input_ids.size()),
                          .n_rows = plan.grid_w});
      out.input_ids.insert(out.input_ids.end(), static_cast<std::size_t>(plan.grid_w), config_.speaker_id);
      out.input_ids.push_back(config_.newline_id);
    }
    out.input_ids.push_back(config_.bos_id);
    text = ids.subspan(1);
  }
  out.input_ids.insert(out.input_ids.end(), text.begin(), text.end());
  if (!plans.empty()) out.input_ids.push_back(config_.answer_id);
  out.positions.resize(out.input_ids.size());
  for (std::size_t i = 0; i < out.positions.size(); ++i) out.positions[i] = static_cast<std::int32_t>(i);
  out.next_position = static_cast<std::int32_t>(out.input_ids.size());
  return out;
}

TensorView Fuyu::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
  std::int64_t n = 0;
  for (const MediaItem& item : items) n += item.plan.n_tokens;
  TensorView out = cx.empty({n, config_.hidden_size});
  std::int64_t first = 0;
  for (const MediaItem& item : items) {
    const ArenaScope scratch(cx.arena());
    cx.linear_into(*vision_embed_tokens_, cx.upload(item.pixels), out.rows(first, first + item.plan.n_tokens),
                   {.activation = Activation::kNone, .residual = {}, .x_quant = config_.pixel_grid()});
    first += item.plan.n_tokens;
  }
  cx.tap(out, "model.vision_embed_tokens");
  return out;  // [P, D]
}

TensorView Fuyu::self_attention(ExecContext& cx, const Layer& layer, int index, const LinearInput& x,
                                const RopeAngles& angles, const Batch& batch) const {
  const std::int64_t h = config_.n_heads;
  const std::int64_t dh = config_.head_dim;
  TensorView qkv = cx.linear(*layer.query_key_value, x).split_last(h, 3 * dh);  // [T, H, 3 Dh]
  TensorView q = qkv.cols(0, dh);                                               // [T, H, Dh]
  TensorView k = qkv.cols(dh, 2 * dh);
  TensorView v = qkv.cols(2 * dh, 3 * dh);
  if (config_.qk_layernorm) {
    cx.layer_norm_inplace(q, layer.q_layernorm->weight, layer.q_layernorm->bias, layer.q_layernorm->eps);
    cx.layer_norm_inplace(k, layer.k_layernorm->weight, layer.k_layernorm->bias, layer.k_layernorm->eps);
  }
  cx.rope(q, angles.cos, angles.sin);
  cx.rope(k, angles.cos, angles.sin);
  cx.kv_append(*batch.kv_cache, index, k, v, batch.kv_slots);
  return cx.paged_attention(*batch.kv_cache, index, batch.sequences, 1.0F / std::sqrt(static_cast<float>(dh)),
                            q);  // [T, D]
}

TensorView Fuyu::forward(ExecContext& cx, const Batch& batch) const {
  TensorView h = cx.embedding(*embed_tokens_, ids_for_embedding(cx, batch));  // [T, D]
  apply_media(cx, batch, h);
  const RopeAngles angles = rope_.angles(cx, batch.positions, batch.lengths);
  const LogitRows logit_rows(cx, batch.logit_rows, h);
  for (int i = 0; i < config_.n_layers; ++i) {
    if (batch.skips(i)) continue;
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    cx.block({"model.language_model", "layers", i}, h, [&] {
      const LinearInput x = cx.tap_input(layer.input_layernorm.of(h), "input_layernorm");
      TensorView a = self_attention(cx, layer, i, x, angles, batch);  // [T, D]
      if (i + 1 == config_.n_layers) logit_rows.keep(cx, a, h);
      cx.linear_add(*layer.dense, a, h, "self_attn");  // [T, D]
      const Activations f = cx.linear(*layer.dense_h_to_4h, layer.post_attention_layernorm.of(h),
                                      config_.hidden_act);  // [T, F]
      cx.linear_add(*layer.dense_4h_to_h, f, h, "mlp");     // [T, D]
    });
  }
  if (cx.tapping()) cx.tap(final_layernorm_(cx, h), "model.language_model.final_layernorm");
  TensorView last = logit_rows.of(cx, h);                  // [n, D]
  return cx.linear(*lm_head_, final_layernorm_.of(last));  // [n, V]
}

}  // namespace

void register_fuyu(ModelRegistry& registry) {
  registry.add({.name = "fuyu",
                .architectures = {"FuyuForCausalLM"},
                .matches = nullptr,
                .load = [](const ModelSource& source) { return std::make_unique<Fuyu>(source); },
                .without_preprocessor = ModelRegistry::needs_preprocessor});
}

}  // namespace triptych

// Qwen-VL and Qwen-VL-Chat, the original of 2023: a ViT, a resampler with 256 queries, the Qwen decoder.
//   Bai et al., "Qwen-VL: A Versatile Vision-Language Model for Understanding, Localization, Text Reading,
//   and Beyond" (2023), section 2.1. Reference: the code published with the checkpoints (modeling_qwen.py,
//   visual.py, qwen_generation_utils.py of Qwen-VL-Chat).
// A picture takes <img>, 256 places and </img>. The places hold the bytes of its file name and then <imgpad>,
// as in the reference; their embeddings are replaced, so the name makes no difference. Shapes: P patches (32
// x 32), Dv tower width, Hv tower heads, D language width, F feed-forward width, H heads, Dh head width, T
// tokens, V vocabulary. Deviations: EXIF orientation is applied and alpha is composited over white first (the
// reference does neither).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/clip_image_processor.h"
#include "models/model.h"
#include "models/prompt_layout.h"
#include "models/region_tags.h"
#include "nn/config_numbers.h"
#include "nn/interpolate.h"
#include "nn/logit_rows.h"
#include "nn/norm.h"
#include "nn/rope.h"

namespace triptych {
namespace {

// ---- configuration
// ------------------------------------------------------------------------------------------------

// ChatML as qwen_generation_utils.py writes it; the pictures of a message are numbered through the
// conversation.
constexpr std::string_view kDefaultTemplate =
    "{% set image_count = namespace(value=0) %}"
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>' "
    "}}{% endif %}"
    "{% for message in messages %}{% if not loop.first or message['role'] != 'system' %}{{ '\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}"
    "{% set image_count.value = image_count.value + 1 %}{{ 'Picture ' ~ image_count.value ~ ': "
    "<img><imgpad></img>\n' }}"
    "{% else %}{{ content['text'] }}{% endif %}{% endfor %}{{ '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\n<|im_start|>assistant\n' }}{% endif %}";

constexpr RegionTags kRegionTags{.ref_open = "<ref>",
                                 .ref_close = "</ref>",
                                 .box_open = "<box>",
                                 .box_close = "</box>",
                                 .quad_open = "<quad>",
                                 .quad_close = "</quad>"};
constexpr int kQueries = 256;  // not in the configuration
constexpr int kResamplerHeadDim = 128;

struct QwenVlConfig {
  // Language model.
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;  // D
  std::int64_t ffn_size = 0;     // F: intermediate_size counts both branches
  int n_layers = 0;
  int n_heads = 0;
  int head_dim = 0;
  float layer_norm_epsilon = 1e-6F;
  std::int64_t seq_length = 2048;  // trained length, from which the two scalings start
  std::int64_t max_position_embeddings = 8192;
  double rotary_emb_base = 10000.0;
  bool use_dynamic_ntk = true;
  bool use_logn_attn = true;
  Bias bias = Bias::kNone;
  // Tower.
  int image_size_px = 448;
  int patch_size_px = 14;
  std::int64_t width = 1664;  // Dv
  int visual_layers = 48;
  int visual_heads = 16;
  std::int64_t visual_ffn = 8192;
  std::int64_t output_dim = 4096;
  std::int32_t image_start_id = 151857;

  int grid() const noexcept { return image_size_px / patch_size_px; }
  static QwenVlConfig parse(const JsonView& c);
};

QwenVlConfig QwenVlConfig::parse(const JsonView& c) {
  QwenVlConfig out;
  constexpr std::int64_t kMax = 1 << 24;
  out.vocab_size = c.get_int("vocab_size", 151936, 1, kMax);
  out.hidden_size = c.get_int("hidden_size", 4096, 1, kMax);
  const std::int64_t both = c.get_int("intermediate_size", 22016, 2, kMax);
  if (both % 2 != 0)
    fail(ErrorCode::kInvalidFile, "{}.intermediate_size: expected an even number, got {}", c.path(), both);
  out.ffn_size = both / 2;
  out.n_layers = static_cast<int>(c.get_int("num_hidden_layers", 32, 1, 1024));
  out.n_heads = static_cast<int>(c.get_int("num_attention_heads", 32, 1, 65536));
  out.head_dim = static_cast<int>(c.get_int("kv_channels", 128, 4, 65536));
  if (out.head_dim % 2 != 0) c.at("kv_channels").fail_expected("an even number");
  if (static_cast<std::int64_t>(out.n_heads) * out.head_dim != out.hidden_size)
    fail(ErrorCode::kInvalidFile, "{}: num_attention_heads {} x kv_channels {} differs from hidden_size {}",
         c.path(), out.n_heads, out.head_dim, out.hidden_size);
  out.layer_norm_epsilon = read_norm_eps(c, "layer_norm_epsilon", 1e-6);
  out.seq_length = c.get_int("seq_length", 2048, 2, kMax);  // its logarithm divides
  out.max_position_embeddings = c.get_int("max_position_embeddings", 8192, 1, kMax);
  out.rotary_emb_base = read_rope_theta(c, "rotary_emb_base", 10000.0);
  if (read_positive(c, "rotary_pct", 1.0, 1.0) != 1.0)
    fail(ErrorCode::kUnsupported, "{}.rotary_pct: only 1.0 is supported", c.path());
  if (!c.get_bool("scale_attn_weights", true))
    fail(ErrorCode::kUnsupported, "{}.scale_attn_weights: only true is supported", c.path());
  if (c.get_bool("tie_word_embeddings", false))
    fail(ErrorCode::kUnsupported, "{}.tie_word_embeddings: only false is supported", c.path());
  out.use_dynamic_ntk = c.get_bool("use_dynamic_ntk", true);
  out.use_logn_attn = c.get_bool("use_logn_attn", true);
  out.bias = c.get_bool("no_bias", true) ? Bias::kNone : Bias::kRequired;

  const JsonView v = c.at("visual");
  out.image_size_px = static_cast<int>(v.get_int("image_size", 448, 1, 8192));
  out.patch_size_px = static_cast<int>(v.get_int("patch_size", 14, 1, out.image_size_px));
  out.width = v.get_int("width", 1664, 1, kMax);
  out.visual_layers = static_cast<int>(v.get_int("layers", 48, 1, 1024));
  out.visual_heads = static_cast<int>(v.get_int("heads", 16, 1, 1024));
  out.visual_ffn =
      static_cast<std::int64_t>(static_cast<double>(out.width) * read_positive(v, "mlp_ratio", 4.9231, 64.0));
  out.output_dim = v.get_int("output_dim", 4096, 1, kMax);
  out.image_start_id = static_cast<std::int32_t>(v.get_int("image_start_id", 151857, 0, kMax));
  if (out.width % out.visual_heads != 0)
    fail(ErrorCode::kInvalidFile, "{}: width {} is no multiple of heads {}", v.path(), out.width,
         out.visual_heads);
  if (out.output_dim != out.hidden_size || out.output_dim % kResamplerHeadDim != 0)
    fail(ErrorCode::kInvalidFile, "{}.output_dim: expected hidden_size {}, a multiple of {}, got {}",
         v.path(), out.hidden_size, kResamplerHeadDim, out.output_dim);
  if (out.visual_ffn < 1 || out.visual_ffn > kMax)
    fail(ErrorCode::kInvalidFile, "{}.mlp_ratio: out of range", v.path());
  return out;
}

// ---- the model
// ----------------------------------------------------------------------------------------------------

class QwenVl : public Model {
 public:
  explicit QwenVl(const ModelSource& source);
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
  struct VisualBlock {
    LayerNorm ln_1;
    std::unique_ptr<LinearWeight> in_proj;   // [3 Dv, Dv], per head q, k, v
    std::unique_ptr<LinearWeight> out_proj;  // [Dv, Dv]
    LayerNorm ln_2;
    std::unique_ptr<LinearWeight> c_fc;    // [Fv, Dv]
    std::unique_ptr<LinearWeight> c_proj;  // [Dv, Fv]
  };
  struct Resampler {
    Tensor query;                           // ln_q(query) + pos_embed is fixed: [256, D]
    Tensor key_positions;                   // pos_embed interpolated to the patch grid, [P, D]
    std::unique_ptr<LinearWeight> kv_proj;  // [D, Dv]
    LayerNorm ln_q, ln_kv;
    std::unique_ptr<LinearWeight> q_proj, k_proj, v_proj, out_proj;  // [D, D]
    Tensor pos_embed;                                                // [256, D]
  };
  struct Layer {
    RmsNorm ln_1;
    std::unique_ptr<LinearWeight> c_attn;       // [3 D, D]
    std::unique_ptr<LinearWeight> attn_c_proj;  // [D, D]
    RmsNorm ln_2;
    std::unique_ptr<LinearWeight> w2_w1;       // [2 F, D]: w2 is the gate
    std::unique_ptr<LinearWeight> mlp_c_proj;  // [D, F]
  };
  void bind_visual(const ModelSource& source);
  void bind_language(const ModelSource& source);
  TensorView run_tower(ExecContext& cx, std::span<const MediaItem> items) const;
  void run_block(ExecContext& cx, const VisualBlock& block, TensorView h,
                 std::span<const std::int32_t> cu) const;
  void resample(ExecContext& cx, const TensorView& patches, TensorView out) const;
  void inverse_frequencies(std::int64_t n_prompt, std::span<float> out) const;
  RopeAngles angles(ExecContext& cx, const Batch& batch) const;
  std::span<const float> logn_factors(ExecContext& cx, const Batch& batch) const;

  QwenVlConfig config_;
  ClipImageProcessor processor_;
  ModelInfo info_;
  PartSizes sizes_;
  std::unique_ptr<LinearWeight> conv1_;  // [Dv, 3 p p]
  Tensor positions_;                     // positional_embedding interpolated to the patch grid, [P, Dv]
  LayerNorm ln_pre_;
  std::vector<VisualBlock> blocks_;
  Resampler attn_pool_;
  LayerNorm ln_post_;
  std::unique_ptr<LinearWeight> proj_;  // stored [D in, D out], transposed when loaded
  std::unique_ptr<EmbeddingWeight> wte_;
  std::vector<Layer> layers_;
  RmsNorm ln_f_;
  std::unique_ptr<LinearWeight> lm_head_;
};

QwenVl::QwenVl(const ModelSource& source) : config_(QwenVlConfig::parse(source.config)) {
  const QwenVlConfig& c = config_;
  processor_ = ClipImageProcessor::clip(c.image_size_px);
  processor_.shortest_edge_px.reset();  // straight to the square, aspect ratio ignored
  processor_.size_px = {c.image_size_px, c.image_size_px};
  processor_.do_center_crop = false;
  bind_visual(source);
  bind_language(source);

  const auto id_of = [&](std::string_view content, std::int32_t published) {
    const auto found = source.token_id ? source.token_id(content) : std::nullopt;
    return found.value_or(published);
  };
  info_.family = "qwen_vl";
  info_.architecture = "QWenLMHeadModel";
  info_.vocab_size = c.vocab_size;
  info_.hidden_size = c.hidden_size;
  info_.n_layers = c.n_layers;
  info_.n_heads = c.n_heads;
  info_.n_kv_heads = c.n_heads;
  info_.head_dim = c.head_dim;
  info_.max_context_tokens = c.max_position_embeddings;
  if (c.use_dynamic_ntk) info_.max_shareable_tokens = c.seq_length;
  info_.image_placeholder = "<imgpad>";
  info_.image_token_id = id_of("<imgpad>", c.image_start_id + 2);
  info_.eos_token_ids = {id_of("<|endoftext|>", 151643), id_of("<|im_end|>", 151645),
                         id_of("<|im_start|>", 151644)};
  info_.never_sample = {info_.image_token_id};
  info_.default_chat_template = kDefaultTemplate;
  // A user may speak of boxes; a picture may only come from the request.
  info_.names_regions = true;
  info_.typeable_specials = {"<ref>", "</ref>", "<box>", "</box>", "<quad>", "</quad>"};
}

void QwenVl::bind_visual(const ModelSource& source) {
  const QwenVlConfig& c = config_;
  constexpr float kEps = 1e-6F;
  const std::int64_t dv = c.width;
  const std::int64_t d = c.output_dim;
  const int p = c.patch_size_px;
  Binder v = source.binder(sizes_, "vision").scope("transformer.visual");
  conv1_ = v.patch_embedding("conv1.weight", {dv, 3, p, p}, "");
  positions_ = v.to_operand(
      interpolate_bicubic_grid(v.host_tensor("positional_embedding", {kQueries, dv}), 16, c.grid()));
  ln_pre_ = LayerNorm::bind(v, "ln_pre", dv, kEps);
  for (int i = 0; i < c.visual_layers; ++i) {
    Binder b = v.scope(fmt::format("transformer.resblocks.{}", i));
    VisualBlock block;
    block.ln_1 = LayerNorm::bind(b, "ln_1", dv, kEps);
    block.in_proj = b.linear("attn.in_proj", 3 * dv, dv, Bias::kRequired);
    block.out_proj = b.linear("attn.out_proj", dv, dv, Bias::kRequired);
    block.ln_2 = LayerNorm::bind(b, "ln_2", dv, kEps);
    block.c_fc = b.linear("mlp.c_fc", c.visual_ffn, dv, Bias::kRequired);
    block.c_proj = b.linear("mlp.c_proj", dv, c.visual_ffn, Bias::kRequired);
    block.c_fc->set_reader(*block.c_proj);
    blocks_.push_back(std::move(block));
  }
  Binder r = source.binder(sizes_, "projector").scope("transformer.visual");
  Binder pool = r.scope("attn_pool");
  attn_pool_.kv_proj = pool.linear("kv_proj", d, dv, Bias::kNone);
  attn_pool_.query = pool.tensor("query", {kQueries, d});
  Tensor pos_embed = pool.host_tensor("pos_embed", {kQueries, d});
  attn_pool_.key_positions = pool.to_operand(interpolate_bicubic_grid(pos_embed, 16, c.grid()));
  attn_pool_.pos_embed = pool.to_operand(std::move(pos_embed));
  attn_pool_.ln_q = LayerNorm::bind(pool, "ln_q", d, kEps);
  attn_pool_.ln_kv = LayerNorm::bind(pool, "ln_kv", d, kEps);
  // torch.nn.MultiheadAttention packs q, k and v; they have different inputs here.
  attn_pool_.q_proj = pool.linear_rows("attn.in_proj_weight", "attn.in_proj_bias", 3 * d, d, 0, d);
  attn_pool_.k_proj = pool.linear_rows("attn.in_proj_weight", "attn.in_proj_bias", 3 * d, d, d, 2 * d);
  attn_pool_.v_proj = pool.linear_rows("attn.in_proj_weight", "attn.in_proj_bias", 3 * d, d, 2 * d, 3 * d);
  attn_pool_.out_proj = pool.linear("attn.out_proj", d, d, Bias::kRequired);
  ln_post_ = LayerNorm::bind(r, "ln_post", d, kEps);
  proj_ = r.linear_transposed("proj", d, d);
}

void QwenVl::bind_language(const ModelSource& source) {
  const QwenVlConfig& c = config_;
  const std::int64_t d = c.hidden_size;
  Binder root = source.binder(sizes_, "language");
  Binder t = root.scope("transformer");
  wte_ = t.embedding("wte.weight", c.vocab_size, d);
  for (int i = 0; i < c.n_layers; ++i) {
    Binder b = t.scope(fmt::format("h.{}", i));
    Layer layer;
    layer.ln_1 = RmsNorm::bind(b, "ln_1", d, c.layer_norm_epsilon);
    layer.c_attn =
        b.linear("attn.c_attn", 3 * d, d, b.has("attn.c_attn.bias") ? Bias::kRequired : Bias::kNone);
    layer.attn_c_proj = b.linear("attn.c_proj", d, d, c.bias);
    layer.ln_2 = RmsNorm::bind(b, "ln_2", d, c.layer_norm_epsilon);
    const Binder::StackPart gate_up[] = {{"mlp.w2", c.ffn_size, c.bias}, {"mlp.w1", c.ffn_size, c.bias}};
    layer.w2_w1 = b.linear_stack(gate_up, d);
    layer.mlp_c_proj = b.linear("mlp.c_proj", d, c.ffn_size, c.bias);
    layers_.push_back(std::move(layer));
  }
  ln_f_ = RmsNorm::bind(t, "ln_f", d, c.layer_norm_epsilon);
  lm_head_ = root.linear("lm_head", c.vocab_size, d, Bias::kNone, {.role = LinearRole::kHead});
}

MediaPlan QwenVl::plan_media(const MediaMeta& meta, const MediaOptions&) const {
  MediaPlan plan;
  plan.meta = meta;
  plan.resized_width_px = config_.image_size_px;
  plan.resized_height_px = config_.image_size_px;
  plan.grid_h = config_.grid();
  plan.grid_w = config_.grid();
  plan.n_patches = std::int64_t{config_.grid()} * config_.grid();
  plan.n_tokens = kQueries;
  plan.n_prompt_tokens = kQueries;
  return plan;
}

Tensor QwenVl::preprocess(std::span<const Image> frames, const MediaPlan&, ThreadPool* pool) const {
  return processor_(frames.front(), pool);  // [3, S, S]
}

PromptLayout QwenVl::expand_prompt(std::span<const std::int32_t> ids,
                                   std::span<const MediaPlan> plans) const {
  PromptLayout out = expand_in_place(ids, info_.image_token_id, plans);
  // The reference writes the path's bytes, as ids of that value, into the first places (at most 254 of them).
  for (const MediaRun& run : out.runs) {
    const std::string& name = plans[static_cast<std::size_t>(run.media_index)].meta.name;
    for (std::size_t i = 0; i < std::min<std::size_t>(name.size(), kQueries - 2); ++i)
      out.input_ids[static_cast<std::size_t>(run.first_prompt_row) + i] = static_cast<unsigned char>(name[i]);
  }
  return out;
}

void QwenVl::run_block(ExecContext& cx, const VisualBlock& block, TensorView h,
                       std::span<const std::int32_t> cu) const {
  const std::int64_t heads = config_.visual_heads;
  const std::int64_t dh = config_.width / heads;
  TensorView qkv = cx.linear(*block.in_proj, block.ln_1.of(h)).split_last(heads, 3 * dh);  // [n P, Hv, 3 Dh]
  TensorView a = cx.attention({.q = qkv.cols(0, dh),
                               .k = qkv.cols(dh, 2 * dh),
                               .v = qkv.cols(2 * dh, 3 * dh),
                               .cu_q = cu,
                               .cu_k = cu,
                               .scale = 1.0F / std::sqrt(static_cast<float>(dh)),
                               .causal = false});  // [n P, Dv]
  cx.linear_add(*block.out_proj, a, h);
  const Activations f = cx.linear(*block.c_fc, block.ln_2.of(h), Activation::kGelu);  // [n P, Fv]
  cx.linear_add(*block.c_proj, f, h);
}

TensorView QwenVl::run_tower(ExecContext& cx, std::span<const MediaItem> items) const {
  const std::int64_t p = static_cast<std::int64_t>(config_.grid()) * config_.grid();
  const auto n = static_cast<std::int64_t>(items.size());
  TensorView h = cx.empty({n * p, config_.width});
  const auto cu = cx.arena().make_span<std::int32_t>(items.size() + 1);
  cu[0] = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const ArenaScope scratch(cx.arena());
    TensorView rows = h.rows(i * p, (i + 1) * p);
    cx.linear_into(*conv1_,
                   cx.patchify(cx.upload(items[static_cast<std::size_t>(i)].pixels), config_.patch_size_px),
                   rows);  // [P, Dv]
    cx.add_inplace(rows, positions_);
    cu[static_cast<std::size_t>(i) + 1] = static_cast<std::int32_t>((i + 1) * p);
  }
  cx.layer_norm_inplace(h, ln_pre_.weight, ln_pre_.bias, ln_pre_.eps);
  for (int i = 0; i < config_.visual_layers; ++i)
    cx.block({"transformer.visual.transformer", "resblocks", i}, h,
             [&] { run_block(cx, blocks_[static_cast<std::size_t>(i)], h, cu); });
  return h;
}

// patches [P, Dv] of one picture -> out [256, D].
void QwenVl::resample(ExecContext& cx, const TensorView& patches, TensorView out) const {
  const ArenaScope scratch(cx.arena());
  const Resampler& r = attn_pool_;
  const std::int64_t heads = config_.output_dim / kResamplerHeadDim;
  const std::int32_t cu_q[] = {0, kQueries};
  const std::int32_t cu_k[] = {0, static_cast<std::int32_t>(patches.dim(0))};
  TensorView kv = r.ln_kv(cx, cx.linear(*r.kv_proj, patches));  // [P, D]
  TensorView q = cx.add(r.ln_q(cx, r.query), r.pos_embed);      // [256, D]
  TensorView k = cx.add(kv, r.key_positions);                   // [P, D]
  TensorView a = cx.attention({.q = cx.linear(*r.q_proj, q).split_last(heads, kResamplerHeadDim),
                               .k = cx.linear(*r.k_proj, k).split_last(heads, kResamplerHeadDim),
                               .v = cx.linear(*r.v_proj, kv).split_last(heads, kResamplerHeadDim),
                               .cu_q = cu_q,
                               .cu_k = cu_k,
                               .scale = 1.0F / std::sqrt(static_cast<float>(kResamplerHeadDim)),
                               .causal = false});  // [256, D]
  TensorView y = ln_post_(cx, cx.linear(*r.out_proj, a));
  cx.linear_into(*proj_, y, out);  // [256, D]
}

TensorView QwenVl::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
  const std::int64_t p = static_cast<std::int64_t>(config_.grid()) * config_.grid();
  TensorView out = cx.empty({static_cast<std::int64_t>(items.size()) * kQueries, config_.output_dim});
  const ArenaScope scratch(cx.arena());
  TensorView h = run_tower(cx, items);  // [n P, Dv]
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto k = static_cast<std::int64_t>(i);
    resample(cx, h.rows(k * p, (k + 1) * p), out.rows(k * kQueries, (k + 1) * kQueries));
  }
  cx.tap(out, "vision.output");
  return out;
}

// Dynamic NTK: a prompt longer than the trained length turns all positions by a larger base, which its answer
// keeps.
void QwenVl::inverse_frequencies(std::int64_t n_prompt, std::span<float> out) const {
  double alpha = 1.0;
  if (config_.use_dynamic_ntk) {
    const double context =
        std::log2(static_cast<double>(n_prompt) / static_cast<double>(config_.seq_length)) + 1;
    alpha = std::max(std::pow(2.0, std::ceil(context)) - 1, 1.0);
  }
  const double dim = config_.head_dim;
  const auto base = static_cast<float>(config_.rotary_emb_base * std::pow(alpha, dim / (dim - 2)));
  for (std::size_t d = 0; d < out.size(); ++d)
    out[d] = 1.0F / std::pow(base, static_cast<float>(2 * d) / static_cast<float>(config_.head_dim));
}

RopeAngles QwenVl::angles(ExecContext& cx, const Batch& batch) const {
  const std::int64_t half = config_.head_dim / 2;
  const auto n_tokens = static_cast<std::int64_t>(batch.token_ids.size());
  const RopeAngles out{cx.empty_host({n_tokens, half}), cx.empty_host({n_tokens, half})};
  const auto inv_freq = cx.arena().make_span<float>(static_cast<std::size_t>(half));
  cx.host([this, lengths = batch.lengths, positions = batch.positions, inv_freq, out] {
    const auto n = static_cast<std::int64_t>(inv_freq.size());
    std::int32_t n_prompt = -1;  // that inv_freq is for
    for (std::size_t t = 0; t < lengths.size(); ++t) {
      if (lengths[t].n_prompt != n_prompt) {
        n_prompt = lengths[t].n_prompt;
        inverse_frequencies(n_prompt, inv_freq);
      }
      const auto row = static_cast<std::int64_t>(t) * n;
      for (std::int64_t d = 0; d < n; ++d) {
        const float angle = static_cast<float>(positions[t]) * inv_freq[static_cast<std::size_t>(d)];
        out.cos.f32()[row + d] = std::cos(angle);
        out.sin.f32()[row + d] = std::sin(angle);
      }
    }
  });
  return {cx.upload(out.cos), cx.upload(out.sin)};
}

// Queries beyond the trained length are scaled by log_L(position + 1), which keeps the entropy of their
// attention.
std::span<const float> QwenVl::logn_factors(ExecContext& cx, const Batch& batch) const {
  const auto out = cx.arena().make_span<float>(batch.positions.size());
  cx.host([out, positions = batch.positions, length = config_.seq_length] {
    const double log_length = std::log(static_cast<double>(length));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::int64_t n = positions[i] + 1;
      out[i] = n > length ? static_cast<float>(std::log(static_cast<double>(n)) / log_length) : 1.0F;
    }
  });
  return out;
}

TensorView QwenVl::forward(ExecContext& cx, const Batch& batch) const {
  const std::int64_t d = config_.hidden_size;
  const std::int64_t heads = config_.n_heads;
  const std::int64_t dh = config_.head_dim;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dh));
  TensorView h = cx.embedding(*wte_, ids_for_embedding(cx, batch));  // [T, D]
  apply_media(cx, batch, h);
  const RopeAngles rope = angles(cx, batch);
  const std::span<const float> logn = logn_factors(cx, batch);
  const LogitRows logit_rows(cx, batch.logit_rows, h);
  for (int i = 0; i < config_.n_layers; ++i) {
    if (batch.skips(i)) continue;
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    cx.block({"transformer", "h", i}, h, [&] {
      TensorView qkv = cx.linear(*layer.c_attn, layer.ln_1.of(h));  // [T, 3 D], contiguous thirds
      TensorView q = qkv.cols(0, d).split_last(heads, dh);          // [T, H, Dh]
      TensorView k = qkv.cols(d, 2 * d).split_last(heads, dh);
      TensorView v = qkv.cols(2 * d, 3 * d).split_last(heads, dh);
      cx.rope(q, rope.cos, rope.sin);
      cx.rope(k, rope.cos, rope.sin);
      if (config_.use_logn_attn) cx.scale_rows(q, logn);
      cx.kv_append(*batch.kv_cache, i, k, v, batch.kv_slots);
      TensorView a = cx.paged_attention(*batch.kv_cache, i, batch.sequences, scale, q);  // [T, D]
      if (i + 1 == config_.n_layers) logit_rows.keep(cx, a, h);
      cx.linear_add(*layer.attn_c_proj, a, h);                                                   // [T, D]
      const Activations f = cx.gated_linear(Activation::kSilu, *layer.w2_w1, layer.ln_2.of(h));  // [T, F]
      cx.linear_add(*layer.mlp_c_proj, f, h);                                                    // [T, D]
    });
  }
  TensorView last = logit_rows.of(cx, h);       // [n, D]
  return cx.linear(*lm_head_, ln_f_.of(last));  // [n, V]
}

}  // namespace

void register_qwen_vl(ModelRegistry& registry) {
  registry.add({.name = "qwen_vl",
                .architectures = {"QWenLMHeadModel"},
                // Qwen's text-only models share the class; only the visual part tells them apart.
                .matches = [](const JsonView& c) { return c.has("visual"); },
                .load = [](const ModelSource& source) { return std::make_unique<QwenVl>(source); },
                .matches_when = "with a \"visual\" object (Qwen-VL), not as a text-only Qwen",
                .model_types = {"qwen"}});
}

}  // namespace triptych

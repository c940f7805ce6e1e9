#include "nn/llama_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "nn/activation.h"
#include "nn/config_numbers.h"
#include "nn/logit_rows.h"

namespace triptych {
namespace {

constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;  // no published size is near; keeps products small

bool same_bytes(const WeightEntry& a, const WeightEntry& b) {
  return a.view.dtype() == b.view.dtype() && a.view.shape() == b.view.shape() &&
         std::memcmp(a.view.cdata(), b.view.cdata(), a.view.size_bytes()) == 0;
}

// Which layers slide: "sliding_attention" of layer_types, or those from max_window_layers on.
std::vector<bool> parse_layer_types(const JsonView& c, std::int64_t first_sliding, bool has_window,
                                    int n_layers) {
  std::vector<bool> out(static_cast<std::size_t>(n_layers), false);
  const auto types = c.find("layer_types");
  if (!types) {
    for (std::int64_t i = first_sliding; has_window && i < n_layers; ++i)
      out[static_cast<std::size_t>(i)] = true;
    return out;
  }
  const std::vector<JsonView> items = types->items();
  if (items.size() != out.size())
    types->fail_expected(fmt::format("one type for each of the {} layers", n_layers));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::string type = items[i].as_string();
    if (type != "full_attention" && type != "sliding_attention")
      fail(ErrorCode::kUnsupported,
           "{}: \"{}\" is not supported; supported: full_attention, sliding_attention", items[i].path(),
           type);
    out[i] = type == "sliding_attention";
    if (out[i] && !has_window)
      fail(ErrorCode::kInvalidFile,
           "{}: \"sliding_attention\" needs use_sliding_window true and a sliding_window", items[i].path());
  }
  return out;
}

void parse_windows(const JsonView& c, const LlamaDefaults& d, LlamaConfig& out) {
  if (!d.sliding_window) return;
  constexpr std::int64_t kMaxWindow = std::numeric_limits<std::int32_t>::max();
  const bool by_layer = d.max_window_layers.has_value();
  const bool has_window = (!by_layer || c.get_bool("use_sliding_window", false)) &&
                          (!c.raw().contains("sliding_window") || c.has("sliding_window"));
  if (has_window)
    out.sliding_window =
        static_cast<std::int32_t>(c.get_int("sliding_window", *d.sliding_window, 1, kMaxWindow));
  if (by_layer) {
    out.slides = parse_layer_types(c, c.get_int("max_window_layers", *d.max_window_layers, 0, kMaxWindow),
                                   has_window, out.n_layers);
  } else {
    out.slides.assign(static_cast<std::size_t>(out.n_layers), has_window);
  }
  if (std::none_of(out.slides.begin(), out.slides.end(), [](bool slides) { return slides; }))
    out.slides.clear();
}

}  // namespace

LlamaConfig LlamaConfig::parse(const JsonView& c, const LlamaDefaults& d) {
  LlamaConfig out;
  out.vocab_size = c.get_int("vocab_size", d.vocab_size, 1, kMaxWidth);
  out.hidden_size = c.get_int("hidden_size", d.hidden_size, 1, kMaxWidth);
  out.intermediate_size = c.get_int("intermediate_size", d.intermediate_size, 1, kMaxWidth);
  out.n_layers = static_cast<int>(c.get_int("num_hidden_layers", d.n_layers, 1, 1024));
  out.n_heads = static_cast<int>(c.get_int("num_attention_heads", d.n_heads, 1, 65536));
  // Null means as many as there are heads, whatever the class's default.
  const bool is_null = c.raw().contains("num_key_value_heads") && !c.has("num_key_value_heads");
  out.n_kv_heads = static_cast<int>(
      c.get_int("num_key_value_heads", d.n_kv_heads > 0 && !is_null ? d.n_kv_heads : out.n_heads, 1, 65536));
  if (out.n_heads % out.n_kv_heads != 0)
    fail(ErrorCode::kInvalidFile, "{}: num_attention_heads {} is no multiple of num_key_value_heads {}",
         c.path(), out.n_heads, out.n_kv_heads);
  const bool width_is_shared = d.head_dim == 0 && !c.has("head_dim");
  if (width_is_shared && out.hidden_size % out.n_heads != 0)
    fail(ErrorCode::kInvalidFile, "{}: hidden_size {} is no multiple of num_attention_heads {}", c.path(),
         out.hidden_size, out.n_heads);
  out.head_dim = static_cast<int>(
      c.get_int("head_dim", d.head_dim > 0 ? d.head_dim : out.hidden_size / out.n_heads, 2, 65536));
  out.max_position_embeddings =
      c.get_int("max_position_embeddings", d.max_positions, 1, std::int64_t{1} << 31);
  out.rms_norm_eps = read_norm_eps(c, "rms_norm_eps", 1e-6);
  out.hidden_act = get_activation(c, "hidden_act", Activation::kSilu);
  out.qkv_bias = d.qkv_bias || c.get_bool("attention_bias", false);
  out.o_bias = !d.qkv_bias && c.get_bool("attention_bias", false);
  out.mlp_bias = !d.qkv_bias && c.get_bool("mlp_bias", false);
  out.qk_norm = d.qk_norm;
  out.tie_stated = c.has("tie_word_embeddings");
  out.tie_word_embeddings = c.get_bool("tie_word_embeddings", false);
  out.rope = RopeConfig::parse(c, out.head_dim, d.rope_theta, out.max_position_embeddings);
  // Dynamic scaling alone keeps the trained length in this field and reaches `factor` times as far.
  if (out.rope.scaling == RopeConfig::Scaling::kDynamic)
    out.max_position_embeddings = static_cast<std::int64_t>(
        static_cast<double>(out.rope.original_max_positions) * std::max(1.0, out.rope.factor));
  parse_windows(c, d, out);
  return out;
}

LlamaDecoder LlamaDecoder::bind(const LlamaConfig& config, Binder binder, std::string lm_head,
                                std::string taps) {
  const std::int64_t d = config.hidden_size;
  const std::int64_t f = config.intermediate_size;
  const std::int64_t q = static_cast<std::int64_t>(config.n_heads) * config.head_dim;
  const std::int64_t kv = static_cast<std::int64_t>(config.n_kv_heads) * config.head_dim;
  const auto bias = [](bool wanted) { return wanted ? Bias::kRequired : Bias::kNone; };

  LlamaDecoder out;
  out.config_ = config;
  out.taps_ = std::move(taps);
  out.rope_ = Rope(config.rope);
  out.embed_tokens_ = binder.embedding("embed_tokens.weight", config.vocab_size, d);
  for (int i = 0; i < config.n_layers; ++i) {
    Binder b = binder.scope(fmt::format("layers.{}", i));
    Layer layer;
    layer.input_layernorm = RmsNorm::bind(b, "input_layernorm", d, config.rms_norm_eps);
    const Binder::StackPart qkv[] = {{"self_attn.q_proj", q, bias(config.qkv_bias)},
                                     {"self_attn.k_proj", kv, bias(config.qkv_bias)},
                                     {"self_attn.v_proj", kv, bias(config.qkv_bias)}};
    layer.qkv_proj = b.linear_stack(qkv, d);
    if (config.qk_norm) {
      layer.q_norm = RmsNorm::bind(b, "self_attn.q_norm", config.head_dim, config.rms_norm_eps);
      layer.k_norm = RmsNorm::bind(b, "self_attn.k_norm", config.head_dim, config.rms_norm_eps);
    }
    layer.o_proj = b.linear("self_attn.o_proj", d, q, bias(config.o_bias));
    layer.post_attention_layernorm = RmsNorm::bind(b, "post_attention_layernorm", d, config.rms_norm_eps);
    const Binder::StackPart gate_up[] = {{"mlp.gate_proj", f, bias(config.mlp_bias)},
                                         {"mlp.up_proj", f, bias(config.mlp_bias)}};
    layer.gate_up_proj = b.linear_stack(gate_up, d);
    layer.down_proj = b.linear("mlp.down_proj", d, f, bias(config.mlp_bias));
    b.equalizable(
        {.writers = {{"input_layernorm.weight"}},
         .readers = {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
         .n_channels = d});
    b.equalizable({.writers = {{"self_attn.v_proj.weight"}, {"self_attn.v_proj.bias"}},
                   .readers = {"self_attn.o_proj.weight"},
                   .n_channels = kv,
                   .run = config.head_dim,
                   .repeat = config.n_heads / config.n_kv_heads});
    b.equalizable({.writers = {{"post_attention_layernorm.weight"}},
                   .readers = {"mlp.gate_proj.weight", "mlp.up_proj.weight"},
                   .n_channels = d});
    b.equalizable({.writers = {{"mlp.up_proj.weight"}, {"mlp.up_proj.bias"}},
                   .readers = {"mlp.down_proj.weight"},
                   .n_channels = f});
    out.layers_.push_back(std::move(layer));
  }
  out.norm_ = RmsNorm::bind(binder, "norm", d, config.rms_norm_eps);

  // The head (transformers 5.24 ties only when the file does not hold two different matrices).
  WeightProvider& weights = binder.weights();
  const std::string embedding = binder.full("embed_tokens.weight");
  const std::string head = lm_head + ".weight";
  std::string chosen = head;
  if (config.tie_word_embeddings) {
    if (!weights.has(head)) {
      chosen = embedding;
    } else if (weights.is_packed(head)) {
      // It was found to be different when it was converted.
    } else if (same_bytes(weights.get(head, {config.vocab_size, d}),
                          weights.get(embedding, {config.vocab_size, d}))) {
      chosen = embedding;
    } else {
      log_warning(
          "tie_word_embeddings is true, but {} differs from {}: the stored head is used, as the reference "
          "does",
          head, embedding);
    }
  } else if (!weights.has(head)) {
    fail(ErrorCode::kNotFound,
         "tensor {} is missing and tie_word_embeddings is {}; set it to true in config.json if the output "
         "layer is tied to {}",
         head, config.tie_stated ? "false" : "not set", embedding);
  }
  out.lm_head_ = binder.root().linear(chosen.substr(0, chosen.size() - std::strlen(".weight")),
                                      config.vocab_size, d, Bias::kNone, {.role = LinearRole::kHead});
  return out;
}

TensorView LlamaDecoder::self_attention(ExecContext& cx, int index, const LinearInput& x,
                                        const RunningStep& step) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::int64_t dh = config_.head_dim;
  const std::int64_t hq = config_.n_heads;
  const std::int64_t hkv = config_.n_kv_heads;
  TensorView qkv = cx.linear(*layer.qkv_proj, x);                                     // [T, (H + 2 Hkv) Dh]
  TensorView q = qkv.cols(0, hq * dh).split_last(hq, dh);                             // [T, H, Dh]
  TensorView k = qkv.cols(hq * dh, (hq + hkv) * dh).split_last(hkv, dh);              // [T, Hkv, Dh]
  TensorView v = qkv.cols((hq + hkv) * dh, (hq + 2 * hkv) * dh).split_last(hkv, dh);  // [T, Hkv, Dh]
  if (config_.qk_norm) {
    cx.rms_norm_inplace(q, layer.q_norm->weight, layer.q_norm->eps);
    cx.rms_norm_inplace(k, layer.k_norm->weight, layer.k_norm->eps);
  }
  cx.rope(q, step.angles.cos, step.angles.sin);
  cx.rope(k, step.angles.cos, step.angles.sin);
  cx.kv_append(*step.inputs.kv_cache, index, k, v, step.inputs.kv_slots);
  const float scale = 1.0F / std::sqrt(static_cast<float>(dh));
  return cx.paged_attention(*step.inputs.kv_cache, index, step.inputs.sequences,
                            {scale, config_.window_of(index)}, q);  // [T, H Dh]
}

void LlamaDecoder::block(ExecContext& cx, int index, TensorView& h, const RunningStep& step) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  cx.block({taps_, "layers", index}, h, [&] {
    const LinearInput x = cx.tap_input(layer.input_layernorm.of(h), "input_layernorm");
    TensorView a = self_attention(cx, index, x, step);  // [T, H Dh]
    if (index + 1 == config_.n_layers) step.logit_rows.keep(cx, a, h);
    cx.linear_add(*layer.o_proj, a, h, "self_attn");  // [T, D]
    const Activations f = cx.gated_linear(config_.hidden_act, *layer.gate_up_proj,
                                          layer.post_attention_layernorm.of(h));  // [T, F]
    cx.linear_add(*layer.down_proj, f, h, "mlp");                                 // [T, D]
  });
  for (const AddedRows& added : step.inputs.added_rows)
    if (added.after_layer == index) cx.add_rows(added.rows, added.at_rows, h);
}

TensorView LlamaDecoder::forward(ExecContext& cx, TensorView h, const Step& step, LayerRange layers) const {
  TRIPTYCH_CHECK(0 <= layers.first && layers.first < layers.end && layers.end <= config_.n_layers,
                 "[llama_decoder] layers {} to {} of {}", layers.first, layers.end, config_.n_layers);
  const bool is_last = layers.end == config_.n_layers;
  const bool adds_at_the_end =
      std::any_of(step.added_rows.begin(), step.added_rows.end(),
                  [&](const AddedRows& added) { return added.after_layer + 1 == config_.n_layers; });
  const RunningStep running{step, rope_.angles(cx, step.positions, step.lengths),
                            LogitRows(cx, step.logit_rows, h, is_last && !adds_at_the_end)};
  const auto& skipped = step.skipped_layers;
  for (int i = layers.first; i < layers.end; ++i)
    if (!std::binary_search(skipped.begin(), skipped.end(), i)) block(cx, i, h, running);
  if (!is_last) return h;  // [T, D]
  if (cx.tapping()) cx.tap(norm_(cx, h), "{}.norm", taps_);
  return running.logit_rows.of(cx, h);  // [n, D]
}

}  // namespace triptych

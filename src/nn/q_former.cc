#include "nn/q_former.h"

#include <cmath>

#include "base/error.h"
#include "nn/activation.h"
#include "nn/config_numbers.h"

namespace triptych {

QFormerConfig QFormerConfig::parse(const JsonView& c, bool with_text, int n_queries) {
  QFormerConfig out;
  out.with_text = with_text;
  out.n_queries = n_queries;
  out.hidden_size = c.get_int("hidden_size", out.hidden_size, 1, 65536);
  out.intermediate_size = c.get_int("intermediate_size", out.intermediate_size, 1, 1 << 20);
  out.encoder_hidden_size = c.get_int("encoder_hidden_size", out.encoder_hidden_size, 1, 65536);
  out.vocab_size = c.get_int("vocab_size", out.vocab_size, 1, 1 << 24);
  out.max_position_embeddings = c.get_int("max_position_embeddings", out.max_position_embeddings, 1, 1 << 20);
  out.n_layers = static_cast<int>(c.get_int("num_hidden_layers", out.n_layers, 1, 1024));
  out.n_heads = static_cast<int>(c.get_int("num_attention_heads", out.n_heads, 1, 1024));
  out.cross_attention_frequency =
      static_cast<int>(c.get_int("cross_attention_frequency", out.cross_attention_frequency, 1, 1024));
  out.layer_norm_eps = read_norm_eps(c, "layer_norm_eps", 1e-12);
  out.hidden_act = get_activation(c, "hidden_act", out.hidden_act);
  const std::string type = c.get_string("position_embedding_type", "absolute");
  if (type != "absolute")
    fail(ErrorCode::kUnsupported, "{}.position_embedding_type: \"{}\" is not supported; supported: absolute",
         c.path(), type);
  if (out.hidden_size % out.n_heads != 0)
    fail(ErrorCode::kInvalidFile, "{}: hidden_size {} is no multiple of num_attention_heads {}", c.path(),
         out.hidden_size, out.n_heads);
  return out;
}

QFormer::Attention QFormer::bind_attention(Binder b, std::int64_t width, std::int64_t kv_width, bool cross,
                                           float eps) {
  Attention out;
  if (cross) {
    out.query = b.linear("attention.query", width, width, Bias::kRequired);
    const Binder::StackPart kv[] = {{"attention.key", width, Bias::kRequired},
                                    {"attention.value", width, Bias::kRequired}};
    out.key_value = b.linear_stack(kv, kv_width);
  } else {
    const Binder::StackPart qkv[] = {{"attention.query", width, Bias::kRequired},
                                     {"attention.key", width, Bias::kRequired},
                                     {"attention.value", width, Bias::kRequired}};
    out.query = b.linear_stack(qkv, width);
  }
  out.dense = b.linear("output.dense", width, width, Bias::kRequired);
  out.norm = LayerNorm::bind(b, "output.LayerNorm", width, eps);
  return out;
}

QFormer::FeedForward QFormer::bind_feed_forward(Binder b, std::string_view in, std::string_view out_name,
                                                const QFormerConfig& c) {
  FeedForward out;
  out.intermediate =
      b.linear(std::string(in) + ".dense", c.intermediate_size, c.hidden_size, Bias::kRequired);
  out.output =
      b.linear(std::string(out_name) + ".dense", c.hidden_size, c.intermediate_size, Bias::kRequired);
  out.intermediate->set_reader(*out.output);
  out.norm = LayerNorm::bind(b, std::string(out_name) + ".LayerNorm", c.hidden_size, c.layer_norm_eps);
  return out;
}

QFormer QFormer::bind(const QFormerConfig& config, Binder binder) {
  const std::int64_t d = config.hidden_size;
  QFormer out;
  out.config_ = config;
  out.query_tokens_ = binder.tensor("query_tokens", {1, config.n_queries, d});
  Binder q = binder.scope("qformer");
  if (config.with_text) {
    out.word_embeddings_ = q.embedding("embeddings.word_embeddings.weight", config.vocab_size, d);
    out.position_embeddings_ =
        q.tensor("embeddings.position_embeddings.weight", {config.max_position_embeddings, d});
    out.layernorm_ = LayerNorm::bind(q, "embeddings.layernorm", d, config.layer_norm_eps);
  } else {
    out.layernorm_ = LayerNorm::bind(q, "layernorm", d, config.layer_norm_eps);
  }
  for (int i = 0; i < config.n_layers; ++i) {
    Binder b = q.scope(fmt::format("encoder.layer.{}", i));
    Layer layer;
    layer.attention = bind_attention(b.scope("attention"), d, d, false, config.layer_norm_eps);
    if (i % config.cross_attention_frequency == 0)
      layer.crossattention = bind_attention(b.scope("crossattention"), d, config.encoder_hidden_size, true,
                                            config.layer_norm_eps);
    layer.query = bind_feed_forward(b, "intermediate_query", "output_query", config);
    if (config.with_text) layer.text = bind_feed_forward(b, "intermediate", "output", config);
    out.layers_.push_back(std::move(layer));
  }
  return out;
}

TensorView QFormer::embed(ExecContext& cx, std::span<const std::int32_t> text_ids) const {
  const std::int64_t d = config_.hidden_size;
  const std::int64_t nq = config_.n_queries;
  const auto nt = static_cast<std::int64_t>(text_ids.size());
  TRIPTYCH_CHECK(config_.with_text || nt == 0, "this Q-Former reads no text");
  if (nt > config_.max_position_embeddings)
    fail(ErrorCode::kContextLength, "the instruction has {} tokens for the Q-Former, which holds {}", nt,
         config_.max_position_embeddings);
  TensorView h = cx.empty({nq + nt, d});
  cx.copy(query_tokens_.view().reshape({nq, d}), h.rows(0, nq));
  if (nt > 0) {
    TensorView words = cx.embedding(*word_embeddings_, text_ids);  // [nt, D]
    cx.tap(words, "qformer.embeddings.word_embeddings");
    cx.tap(position_embeddings_.view().rows(0, nt), "qformer.embeddings.position_embeddings");
    cx.add_inplace(words, position_embeddings_.view().rows(0, nt));
    cx.copy(words, h.rows(nq, nq + nt));
  }
  cx.layer_norm_inplace(h, layernorm_.weight, layernorm_.bias, layernorm_.eps);
  if (config_.with_text) cx.tap(h, "qformer.embeddings");
  return h;
}

void QFormer::self_attention(ExecContext& cx, const Attention& attention, TensorView h) const {
  const std::int64_t d = config_.hidden_size;
  const std::int64_t heads = config_.n_heads;
  const std::int64_t dh = d / heads;
  const std::int32_t cu[] = {0, static_cast<std::int32_t>(h.dim(0))};
  TensorView qkv = cx.linear(*attention.query, h);  // [n, 3D]
  TensorView a = cx.attention({.q = qkv.cols(0, d).split_last(heads, dh),
                               .k = qkv.cols(d, 2 * d).split_last(heads, dh),
                               .v = qkv.cols(2 * d, 3 * d).split_last(heads, dh),
                               .cu_q = cu,
                               .cu_k = cu,
                               .scale = 1.0F / std::sqrt(static_cast<float>(dh)),
                               .causal = false});
  cx.linear_add(*attention.dense, a, h);
  cx.layer_norm_inplace(h, attention.norm.weight, attention.norm.bias, attention.norm.eps);
}

void QFormer::cross_attention(ExecContext& cx, const Attention& attention, const TensorView& image,
                              TensorView queries) const {
  const std::int64_t d = config_.hidden_size;
  const std::int64_t heads = config_.n_heads;
  const std::int64_t dh = d / heads;
  const std::int32_t cu_q[] = {0, static_cast<std::int32_t>(queries.dim(0))};
  const std::int32_t cu_k[] = {0, static_cast<std::int32_t>(image.dim(0))};
  TensorView kv = cx.linear(*attention.key_value, image);  // [n rows, 2D]
  TensorView a = cx.attention({.q = cx.linear(*attention.query, queries).split_last(heads, dh),
                               .k = kv.cols(0, d).split_last(heads, dh),
                               .v = kv.cols(d, 2 * d).split_last(heads, dh),
                               .cu_q = cu_q,
                               .cu_k = cu_k,
                               .scale = 1.0F / std::sqrt(static_cast<float>(dh)),
                               .causal = false});
  cx.linear_add(*attention.dense, a, queries);
  cx.layer_norm_inplace(queries, attention.norm.weight, attention.norm.bias, attention.norm.eps);
}

void QFormer::feed_forward(ExecContext& cx, const FeedForward& ffn, TensorView h) const {
  const Activations f = cx.linear(*ffn.intermediate, h, config_.hidden_act);  // [n, F]
  cx.linear_add(*ffn.output, f, h);
  cx.layer_norm_inplace(h, ffn.norm.weight, ffn.norm.bias, ffn.norm.eps);
}

TensorView QFormer::forward(ExecContext& cx, const TensorView& image,
                            std::span<const std::int32_t> text_ids) const {
  const std::int64_t nq = config_.n_queries;
  TensorView h = embed(cx, text_ids);  // [nq + nt, D]
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    cx.block({"qformer", "encoder.layer", static_cast<int>(i)}, h, [&] {
      self_attention(cx, layer.attention, h);
      TensorView queries = h.rows(0, nq);
      if (layer.crossattention) cross_attention(cx, *layer.crossattention, image, queries);
      feed_forward(cx, layer.query, queries);
      if (layer.text && h.dim(0) > nq) feed_forward(cx, *layer.text, h.rows(nq, h.dim(0)));
    });
  }
  cx.tap(h, "qformer");
  return h.rows(0, nq);
}

}  // namespace triptych

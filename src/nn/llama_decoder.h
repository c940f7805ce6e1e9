// The decoder of LLaMA (Touvron et al. 2023) and what followed its layout: Vicuna, Mistral, Qwen2, Qwen3.
// They differ in numbers only (grouped heads, biases, norms of q and k, rotary scaling), which the families
// that embed them give. Reference: transformers 5.24, modeling_llama.py, modeling_mistral.py,
// modeling_qwen2.py, modeling_qwen3.py.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/exec_context.h"
#include "base/json.h"
#include "nn/logit_rows.h"
#include "nn/norm.h"
#include "nn/rope.h"
#include "weights/weights.h"

namespace triptych {

/// The numbers a text configuration leaves out, and what its class does whatever the file says. The values
/// here are LlamaConfig's.
struct LlamaDefaults {
  std::int64_t vocab_size = 32000;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 11008;
  std::int64_t n_layers = 32;
  std::int64_t n_heads = 32;
  std::int64_t n_kv_heads = 0;  // 0: as many as there are heads
  std::int64_t head_dim = 0;    // 0: hidden_size / n_heads
  std::int64_t max_positions = 2048;
  double rope_theta = 10000.0;
  bool qkv_bias = false;  // q, k and v have biases and nothing else has; false: attention_bias, mlp_bias
  bool qk_norm = false;   // every head of q and k is normed (Qwen3)
  // Tokens of a sliding window where the file states none; nothing: the class knows no windows.
  std::optional<std::int64_t> sliding_window = std::nullopt;
  // Windows are on where use_sliding_window is true, from this layer on or where layer_types says so (Qwen2);
  // nothing: in all layers unless sliding_window is null (Mistral).
  std::optional<std::int64_t> max_window_layers = std::nullopt;
};

struct LlamaConfig {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;        // D
  std::int64_t intermediate_size = 0;  // F
  int n_layers = 0;
  int n_heads = 0;     // H
  int n_kv_heads = 0;  // Hkv
  int head_dim = 0;    // Dh
  std::int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6F;
  Activation hidden_act = Activation::kSilu;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool tie_word_embeddings = false;
  bool tie_stated = false;  // whether the file says so at all
  RopeConfig rope;
  std::int32_t sliding_window = 0;  // tokens that a token of a sliding layer sees, itself included
  std::vector<bool> slides;         // of each layer; empty: none does

  /// Tokens of a layer's window; 0: all.
  std::int32_t window_of(int layer) const {
    return !slides.empty() && slides[static_cast<std::size_t>(layer)] ? sliding_window : 0;
  }
  /// Parses a text configuration; what it leaves out is `defaults`, and rms_norm_eps 1e-6.
  /// Every number is checked; errors name the field.
  static LlamaConfig parse(const JsonView& text_config, const LlamaDefaults& defaults);
};

class LlamaDecoder {
 public:
  LlamaDecoder() = default;
  /// Binds embed_tokens, layers.N.*, norm in `binder`'s scope, and the head: `lm_head` (a full name), or the
  /// embedding when the weights are tied. `taps` is the reference's module name of this decoder, e.g.
  /// "model.language_model".
  static LlamaDecoder bind(const LlamaConfig& config, Binder binder, std::string lm_head, std::string taps);

  const LlamaConfig& config() const noexcept { return config_; }
  /// ids [T] -> [T, D].
  TensorView embed(ExecContext& cx, std::span<const std::int32_t> ids) const {
    return cx.embedding(*embed_tokens_, ids);
  }

  /// Rows that are added to h behind a layer: features from inside a tower, at the places of its tokens
  /// (DeepStack, Meng et al. 2024).
  struct AddedRows {
    int after_layer = 0;
    TensorView rows;                        // [n, D]
    std::span<const std::int32_t> at_rows;  // [n] rows of h, all different
  };
  struct Step {
    std::span<const std::int32_t> positions;  // [n_axes * T]
    std::span<const RowLengths> lengths;      // [T]
    std::span<const KvSequence> sequences;
    std::span<const std::int32_t> kv_slots;
    KvCache* kv_cache = nullptr;
    std::span<const std::int32_t> logit_rows;
    std::span<const AddedRows> added_rows = {};
    std::span<const std::int32_t> skipped_layers = {};  // ascending; left out, see Batch::skipped_layers
  };
  struct LayerRange {
    int first = 0;
    int end = 0;  // one behind the last
  };
  /// h [T, D] is used up; returns logits [n logit rows, V].
  TensorView forward(ExecContext& cx, TensorView h, const Step& step) const {
    return logits(cx, forward(cx, h, step, {0, config_.n_layers}));
  }
  /// Some layers, at least one. h [T, D] is used up; returns h [T, D], behind the last layer of all only the
  /// logit rows of it [n, D].
  TensorView forward(ExecContext& cx, TensorView h, const Step& step, LayerRange layers) const;
  /// The final norm and the head: h [n, D] -> [n, V].
  TensorView logits(ExecContext& cx, const TensorView& h) const { return cx.linear(*lm_head_, norm_.of(h)); }

 private:
  struct Layer {
    RmsNorm input_layernorm;
    std::unique_ptr<LinearWeight> qkv_proj;  // [(H + 2 Hkv) Dh, D]
    std::optional<RmsNorm> q_norm, k_norm;   // over Dh
    std::unique_ptr<LinearWeight> o_proj;    // [D, H Dh]
    RmsNorm post_attention_layernorm;
    std::unique_ptr<LinearWeight> gate_up_proj;  // [2F, D]
    std::unique_ptr<LinearWeight> down_proj;     // [D, F]
  };
  // A step and what its blocks share.
  struct RunningStep {
    const Step& inputs;
    RopeAngles angles;
    LogitRows logit_rows;
  };
  void block(ExecContext& cx, int index, TensorView& h, const RunningStep& step) const;
  TensorView self_attention(ExecContext& cx, int index, const LinearInput& x, const RunningStep& step) const;

  LlamaConfig config_;
  std::string taps_;
  std::unique_ptr<EmbeddingWeight> embed_tokens_;  // [V, D]
  std::vector<Layer> layers_;
  RmsNorm norm_;
  std::unique_ptr<LinearWeight> lm_head_;  // [V, D]
  Rope rope_;
};

}  // namespace triptych

// The decoder of LLaMA (Touvron et al. 2023) and what followed its layout: Vicuna, Mistral, Qwen2 and the
// language model of Qwen2-VL. They differ in numbers only (grouped heads, biases, rotary scaling), so one
// file serves the families that embed them. Reference: transformers 5.24, modeling_llama.py,
// modeling_mistral.py, modeling_qwen2.py.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/exec_context.h"
#include "base/json.h"
#include "nn/norm.h"
#include "nn/rope.h"
#include "weights/weights.h"

namespace triptych {

struct LlamaConfig {
  std::string model_type;
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
  bool tie_word_embeddings = false;
  bool tie_stated = false;  // whether the file says so at all
  RopeConfig rope;

  /// Parses a text configuration of model_type llama, mistral or qwen2 (also the flat configuration of
  /// Qwen2-VL). What the file leaves out takes the default of the class: LlamaConfig (4096, 11008, 32 layers,
  /// 32 heads, vocabulary 32000, 2048 positions, eps 1e-6, theta 1e4), MistralConfig (14336, 8 kv heads,
  /// 131072 positions, window 4096), Qwen2Config (4096, 22016, vocabulary 151936, 32 kv heads, 32768
  /// positions, q, k and v with bias). Every number is checked; errors name the field.
  static LlamaConfig parse(const JsonView& text_config, std::string_view default_model_type);
  /// The same, taking the numbers of this model type whatever the file calls itself.
  static LlamaConfig parse_as(const JsonView& text_config, std::string model_type);
  /// text_config of a composed configuration. tie_word_embeddings is looked for there, then at the top;
  /// `force_tie` overrides.
  static LlamaConfig parse_nested(const JsonView& config, bool force_tie);
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

  struct Step {
    std::span<const std::int32_t> positions;  // [n_axes * T]
    std::span<const KvSequence> sequences;
    std::span<const std::int32_t> kv_slots;
    KvCache* kv_cache = nullptr;
    std::span<const std::int32_t> logit_rows;
  };
  /// h [T, D] is used up; returns logits [n logit rows, V].
  TensorView forward(ExecContext& cx, TensorView h, const Step& step) const;

 private:
  struct Layer {
    RmsNorm input_layernorm;
    std::unique_ptr<LinearWeight> qkv_proj;  // [(H + 2 Hkv) Dh, D]
    std::unique_ptr<LinearWeight> o_proj;    // [D, H Dh]
    RmsNorm post_attention_layernorm;
    std::unique_ptr<LinearWeight> gate_up_proj;  // [2F, D]
    std::unique_ptr<LinearWeight> down_proj;     // [D, F]
  };
  TensorView self_attention(ExecContext& cx, const Layer& layer, int index, const LinearInput& x,
                            const RopeAngles& rope, const Step& step) const;

  LlamaConfig config_;
  std::string taps_;
  std::unique_ptr<EmbeddingWeight> embed_tokens_;  // [V, D]
  std::vector<Layer> layers_;
  RmsNorm norm_;
  std::unique_ptr<LinearWeight> lm_head_;  // [V, D]
  Rope rope_;
};

}  // namespace triptych

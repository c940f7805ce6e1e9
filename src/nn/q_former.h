// The Q-Former of BLIP-2 and InstructBLIP (Li et al. 2023, section 3.1): a BERT-like encoder in which a few
// learned queries read a picture by cross attention; InstructBLIP's (Dai et al. 2023, section 3) reads the
// instruction as well. Reference: transformers 5.24, modeling_blip_2.py, modeling_instructblip.py (post-norm
// blocks).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/exec_context.h"
#include "base/json.h"
#include "nn/norm.h"
#include "weights/weights.h"

namespace triptych {

struct QFormerConfig {
  std::int64_t hidden_size = 768;           // D
  std::int64_t intermediate_size = 3072;    // F
  std::int64_t encoder_hidden_size = 1408;  // Dv, width of the tower
  std::int64_t vocab_size = 30522;
  std::int64_t max_position_embeddings = 512;
  int n_layers = 12;
  int n_heads = 12;
  int cross_attention_frequency = 2;
  float layer_norm_eps = 1e-12F;
  Activation hidden_act = Activation::kGelu;
  bool with_text = false;  // InstructBLIP: word embeddings and feed-forward layers for the instruction
  int n_queries = 32;

  /// Missing fields take the defaults of Blip2QFormerConfig (above).
  static QFormerConfig parse(const JsonView& qformer_config, bool with_text, int n_queries);
};

class QFormer {
 public:
  QFormer() = default;
  /// Binds query_tokens and qformer.* in `binder`'s scope.
  static QFormer bind(const QFormerConfig& config, Binder binder);
  const QFormerConfig& config() const noexcept { return config_; }
  /// One picture: image [n rows, Dv], text_ids of the instruction (empty without text) -> queries [n_queries,
  /// D].
  TensorView forward(ExecContext& cx, const TensorView& image, std::span<const std::int32_t> text_ids) const;

 private:
  struct Attention {                          // with the sum and norm behind it
    std::unique_ptr<LinearWeight> query;      // [D, D]; self attention: [3D, D], q, k and v
    std::unique_ptr<LinearWeight> key_value;  // cross attention: [2D, Dv]
    std::unique_ptr<LinearWeight> dense;      // [D, D]
    LayerNorm norm;
  };
  struct FeedForward {
    std::unique_ptr<LinearWeight> intermediate;  // [F, D]
    std::unique_ptr<LinearWeight> output;        // [D, F]
    LayerNorm norm;
  };
  struct Layer {
    Attention attention;
    std::optional<Attention> crossattention;
    FeedForward query;
    std::optional<FeedForward> text;
  };
  static Attention bind_attention(Binder b, std::int64_t width, std::int64_t kv_width, bool cross, float eps);
  static FeedForward bind_feed_forward(Binder b, std::string_view in, std::string_view out,
                                       const QFormerConfig& config);
  TensorView embed(ExecContext& cx, std::span<const std::int32_t> text_ids) const;
  void self_attention(ExecContext& cx, const Attention& attention, TensorView h) const;
  void cross_attention(ExecContext& cx, const Attention& attention, const TensorView& image,
                       TensorView queries) const;
  void feed_forward(ExecContext& cx, const FeedForward& ffn, TensorView h) const;

  QFormerConfig config_;
  Tensor query_tokens_;                               // [1, n_queries, D]
  std::unique_ptr<EmbeddingWeight> word_embeddings_;  // [V, D], with text
  Tensor position_embeddings_;                        // [max positions, D], with text
  LayerNorm layernorm_;
  std::vector<Layer> layers_;
};

}  // namespace triptych

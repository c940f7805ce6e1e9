// Arguments of the operations that need more than a few. Letters: T tokens of the ragged batch, D width, F
// feed-forward width, H query heads, Hkv key/value heads, Dh head width, B sequences.
#pragma once

#include <cstdint>
#include <span>

#include "backend/activation.h"
#include "backend/kv_dtype.h"
#include "tensor/activation_quant.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace triptych {

/// What a linear multiplies: rows, or the norm of rows, which a backend may compute as it reads them, or
/// int8 activations that the linear before has written.
struct LinearInput {
  enum class Norm { kNone, kLayerNorm, kRmsNorm };

  TensorView
      rows;  // [T, K] float32, before the norm; or int8 activations [T, K rounded up to 8], zeros from K on
  TensorView int8_scales;  // [T] float32: scale of each int8 row, NaN for a row that was not finite
  Norm norm = Norm::kNone;
  TensorView weight;  // [K], of the norm
  TensorView bias;    // [K], of a LayerNorm
  float eps = 0;

  // Plain rows are the usual.
  LinearInput(const TensorView& x) : rows(x) {}  // NOLINT(google-explicit-constructor)
  LinearInput(const Tensor& x) : rows(x) {}      // NOLINT(google-explicit-constructor)
  LinearInput(const TensorView& x, Norm kind, const TensorView& norm_weight, const TensorView& norm_bias,
              float norm_eps)
      : rows(x), norm(kind), weight(norm_weight), bias(norm_bias), eps(norm_eps) {}
  /// int8 activations with the static quantization parameters of the weight they are multiplied with
  /// (LinearWeight::activation_quant).
  static LinearInput int8(const TensorView& q, const TensorView& scales) {
    LinearInput out(q);
    out.int8_scales = scales;
    return out;
  }
  bool is_int8() const { return int8_scales.data() != nullptr; }
};

/// What a linear made for the one that reads it (LinearWeight::set_reader): float32 rows [T, K], or int8
/// activations where the reader's static quantization parameters allow them. Models pass it on and do not
/// look inside.
class Activations {
 public:
  explicit Activations(const LinearInput& x) : x_(x) {}
  operator LinearInput() const { return x_; }  // NOLINT(google-explicit-constructor)

 private:
  LinearInput x_;
};

/// What a linear does after the product: y = activation(x W^T + b) + residual. `residual` may be y itself.
struct LinearEpilogue {
  Activation activation = Activation::kNone;
  TensorView residual;  // [T, N] float32, or empty
  // x is exact in int8 with these parameters: int8 products round nothing of it, others need not look.
  ActivationQuant x_quant = {};
  // y is written as int8 activations with these parameters, as LinearInput::int8 takes them, and int8_scales
  // [T] with it.
  ActivationQuant y_quant = {};
  TensorView int8_scales = {};
};

/// Attention over keys and values that lie in plain tensors: towers, resamplers, cross attention. Query
/// segment i (rows cu_q[i]..cu_q[i+1]) sees key segment i (rows cu_k[i]..cu_k[i+1]). Memory beyond the
/// operands is O(1) in the lengths.
struct AttentionArgs {
  TensorView q;                        // [Tq, H, Dh] float32, last dimension dense
  TensorView k;                        // [Tk, Hkv, Dh]
  TensorView v;                        // [Tk, Hkv, Dh]
  std::span<const std::int32_t> cu_q;  // [B + 1], from 0 to Tq, not decreasing
  std::span<const std::int32_t> cu_k;  // [B + 1], from 0 to Tk
  float scale = 1.0F;                  // scores are scale * q.k
  bool causal = false;  // query i sees keys j with j - (n_k - n_q) <= i, i and j counted in the segment
};

/// Shape of a paged key/value cache.
struct KvGeometry {
  int n_layers = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int page_tokens = 64;  // tokens a page holds
  int n_pages = 0;
  KvDType dtype = KvDType::kF32;
};

/// One sequence of a step: which rows of the batch are its new tokens and where its keys and values lie.
/// What has cache index i, the i-th token that was written, lies in page pages[i / page_tokens], row
/// i % page_tokens; token positions (rotary angles) are another count.
struct KvSequence {
  std::int32_t first_row = 0;           // first row of the batch
  std::int32_t n_rows = 0;              // new tokens in this step
  std::int32_t n_context = 0;           // tokens in the cache once this step's are written (>= n_rows)
  std::span<const std::int32_t> pages;  // enough for n_context tokens
};

/// How queries attend to the keys of a cache: scores are scale * q.k, and token t of a sequence sees tokens
/// t - window + 1 to t.
struct CacheAttention {
  float scale = 1.0F;
  std::int32_t window = 0;  // 0: all tokens up to its own

  // Most have no window.
  CacheAttention(float score_scale, std::int32_t window_tokens = 0)  // NOLINT(google-explicit-constructor)
      : scale(score_scale), window(window_tokens) {}
};

/// Lengths that position scalings follow (dynamic rotary bases), of one row. They belong to the token: where
/// its key lies in the cache, and which rows share its step, change nothing.
struct RowLengths {
  std::int32_t n_tokens = 0;  // of the sequence, up to and including this row
  std::int32_t n_prompt = 0;  // of the sequence's prompt
};

}  // namespace triptych

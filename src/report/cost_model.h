// What a model's work costs at least: floating point operations (a multiply-add is two) and bytes that must
// come from memory, and how near a measured time is to the machine's limits (the roofline; Williams et al.
// 2009).
#pragma once

#include <cstdint>

#include "backend/cpu/probe.h"
#include "backend/exec_context.h"
#include "models/model.h"

namespace triptych {

struct Cost {
  double flops = 0;     // in float32
  double int8_ops = 0;  // products of 8-bit integers
  double bytes = 0;

  Cost& operator+=(const Cost& other) noexcept;
};

/// The language model alone: matrices, and attention over the cache. Norms and activations are left out.
class LanguageCost {
 public:
  /// `int8_attention`: of prompts, see Backend::attends_in_int8.
  LanguageCost(const Model& model, KvDType kv_cache_dtype, bool int8_attention = false);

  /// A prompt of n tokens from an empty cache, logits for its last token only.
  Cost prefill(std::int64_t n_tokens) const;
  /// One token of each sequence when n are in its cache, itself included.
  Cost decode(std::int64_t n_context, std::int64_t n_sequences = 1) const;
  std::int64_t kv_bytes_per_token() const noexcept { return kv_bytes_per_token_; }
  /// Parameters in the matrices of the layers, embedding and output layer left out.
  double layer_parameters() const noexcept { return layer_parameters_; }

 private:
  double layer_parameters_ = 0;
  double head_parameters_ = 0;
  double int8_layer_share_ = 0;
  double int8_head_share_ = 0;
  double n_layers_ = 1;
  double key_value_parameters_ = 0;  // of one layer's projections
  bool int8_attention_ = false;
  double attention_width_ = 0;  // layers x heads x head width
  double read_bytes_ = 0;       // of one pass over all matrices
  std::int64_t kv_bytes_per_token_ = 0;
};

/// Counts the products and attentions that really happen while it observes (towers, projectors).
class CostObserver : public ExecObserver {
 public:
  /// `int8_attention`: over plain tensors, see Backend::attends_in_int8.
  explicit CostObserver(bool int8_attention = false) : int8_attention_(int8_attention) {}
  bool wants_taps() const noexcept override { return false; }
  bool reads_values() const noexcept override { return false; }
  void on_tap(std::string_view, const TensorView&) override {}
  void on_linear(const LinearWeight& weight, const TensorView& x) override;
  void on_attention(const AttentionArgs& args) override;
  const Cost& cost() const noexcept { return cost_; }

 private:
  bool int8_attention_;
  Cost cost_;
};

/// The least time the machine could take, seconds: the longer of computing and reading.
double roofline_seconds(const Cost& cost, const MachineLimits& limits) noexcept;
/// Share of the roofline that a measured time reaches, in (0, 1].
double roofline_share(const Cost& cost, const MachineLimits& limits, double seconds) noexcept;

}  // namespace triptych

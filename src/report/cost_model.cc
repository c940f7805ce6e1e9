#include "report/cost_model.h"

#include <algorithm>

namespace triptych {
namespace {

const PartSizes::Size& language_part(const Model& model) {
  static const PartSizes::Size kNone;
  for (const auto& [name, size] : model.part_sizes().parts)
    if (name == "language") return size;
  return kNone;
}

}  // namespace

Cost& Cost::operator+=(const Cost& other) noexcept {
  flops += other.flops;
  int8_ops += other.int8_ops;
  bytes += other.bytes;
  return *this;
}

LanguageCost::LanguageCost(const Model& model, KvDType kv_cache_dtype, bool int8_attention)
    : int8_attention_(int8_attention) {
  const ModelInfo& info = model.info();
  const PartSizes::Size& part = language_part(model);
  // The table of embeddings and the output layer are both counted among the parameters, also when they are
  // one.
  head_parameters_ = static_cast<double>(info.vocab_size) * static_cast<double>(info.hidden_size);
  layer_parameters_ = std::max(0.0, static_cast<double>(part.n_parameters) - 2.0 * head_parameters_);
  const auto int8 = static_cast<double>(part.n_int8_parameters);
  if (layer_parameters_ > 0) int8_layer_share_ = std::min(1.0, int8 / layer_parameters_);
  if (int8 > 0 && (layer_parameters_ == 0 || int8 >= layer_parameters_ + 0.99 * head_parameters_))
    int8_head_share_ = 1;
  attention_width_ = static_cast<double>(info.n_layers) * info.n_heads * info.head_dim;
  n_layers_ = info.n_layers;
  key_value_parameters_ = 2.0 * static_cast<double>(info.hidden_size) * info.n_kv_heads * info.head_dim;
  read_bytes_ = static_cast<double>(part.read_bytes);
  kv_bytes_per_token_ =
      std::int64_t{2} * info.n_layers * info.n_kv_heads * kv_row_size_bytes(kv_cache_dtype, info.head_dim);
}

Cost LanguageCost::prefill(std::int64_t n_tokens) const {
  const auto n = static_cast<double>(n_tokens);
  // Token i attends to i + 1 tokens: a product with the keys and one with the values each.
  const double pairs = n * (n + 1.0) / 2.0;
  // The last layer needs the keys and values of all tokens, the rest of it of the last one only.
  const double last_layer = layer_parameters_ / n_layers_;
  const double products = 2.0 * ((layer_parameters_ - last_layer + key_value_parameters_) * n + last_layer -
                                 key_value_parameters_);
  const double attention = 4.0 * attention_width_ * (pairs - (pairs - n) / n_layers_);
  return {.flops = products * (1 - int8_layer_share_) + 2.0 * head_parameters_ * (1 - int8_head_share_) +
                   (int8_attention_ ? 0 : attention),
          .int8_ops = products * int8_layer_share_ + 2.0 * head_parameters_ * int8_head_share_ +
                      (int8_attention_ ? attention : 0),
          .bytes = read_bytes_ + n * static_cast<double>(kv_bytes_per_token_)};
}

Cost LanguageCost::decode(std::int64_t n_context, std::int64_t n_sequences) const {
  const auto n = static_cast<double>(n_context);
  const auto s = static_cast<double>(n_sequences);
  return {.flops = s * (2.0 * layer_parameters_ * (1 - int8_layer_share_) +
                        2.0 * head_parameters_ * (1 - int8_head_share_) + 4.0 * attention_width_ * n),
          .int8_ops =
              s * (2.0 * layer_parameters_ * int8_layer_share_ + 2.0 * head_parameters_ * int8_head_share_),
          .bytes = read_bytes_ + s * n * static_cast<double>(kv_bytes_per_token_)};
}

void CostObserver::on_linear(const LinearWeight& weight, const TensorView& x) {
  const double ops = 2.0 * static_cast<double>(x.dim(0)) * static_cast<double>(weight.n_out()) *
                     static_cast<double>(weight.n_in());
  const bool int8 = weight.multiplies_int8();
  cost_ += {
      .flops = int8 ? 0 : ops, .int8_ops = int8 ? ops : 0, .bytes = static_cast<double>(weight.read_bytes())};
}

void CostObserver::on_attention(const AttentionArgs& args) {
  double pairs = 0;
  for (std::size_t i = 1; i < args.cu_q.size(); ++i)
    pairs += static_cast<double>(args.cu_q[i] - args.cu_q[i - 1]) *
             static_cast<double>(args.cu_k[i] - args.cu_k[i - 1]);
  (int8_attention_ ? cost_.int8_ops : cost_.flops) +=
      4.0 * pairs * static_cast<double>(args.q.dim(1)) * static_cast<double>(args.q.dim(2));
}

double roofline_seconds(const Cost& cost, const MachineLimits& limits) noexcept {
  double compute = limits.fp32_flops_per_s > 0 ? cost.flops / limits.fp32_flops_per_s : 0;
  // Without an instruction for it, 8-bit products are no faster than float32's.
  const double int8 = limits.int8_ops_per_s > 0 ? limits.int8_ops_per_s : limits.fp32_flops_per_s;
  if (int8 > 0) compute += cost.int8_ops / int8;
  const double memory = limits.read_bytes_per_s > 0 ? cost.bytes / limits.read_bytes_per_s : 0;
  return std::max(compute, memory);
}

double roofline_share(const Cost& cost, const MachineLimits& limits, double seconds) noexcept {
  return seconds > 0 ? roofline_seconds(cost, limits) / seconds : 0;
}

}  // namespace triptych

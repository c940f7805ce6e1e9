#include "compress/equalize.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tensor/quant_codec.h"

namespace triptych::compress {
namespace {

// Rows of a matrix that stand for it in the search.
constexpr std::int64_t kMaxSampledRows = 256;

// Error of one reader's outputs for a row of inputs: rounding the weights, and the inputs to int8.
double reader_error(const EqualizationGroup& group, const Reader& reader, const std::vector<float>& scales) {
  const TensorView& w = *reader.matrix;
  const std::int64_t k = w.dim(1);
  const std::int64_t step = std::max<std::int64_t>(1, w.dim(0) / kMaxSampledRows);
  const std::int64_t n = (w.dim(0) + step - 1) / step;
  std::vector<float> s(static_cast<std::size_t>(k));
  std::vector<float> importance(s.size());
  float largest_input = 0;
  for (std::int64_t i = 0; i < k; ++i) {
    const auto at = static_cast<std::size_t>(i);
    s[at] = scales[static_cast<std::size_t>(group.channel_of(i))];
    importance[at] = static_cast<float>(reader.inputs->mean_square[at]) / (s[at] * s[at]);
    largest_input = std::max(largest_input, reader.inputs->max_abs[at] / s[at]);
  }
  Tensor scaled(DType::kF32, {n, k});
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t i = 0; i < k; ++i)
      scaled.f32()[row * k + i] = w.row(row * step).cf32()[i] * s[static_cast<std::size_t>(i)];
  const QuantizedMatrix q = quantize(scaled.view(), reader.format);
  // How a row's largest value changes with the scales is estimated from the channels' largest ones.
  float unscaled_largest = 0;
  for (const float x : reader.inputs->max_abs) unscaled_largest = std::max(unscaled_largest, x);
  const double shrink = unscaled_largest > 0 ? static_cast<double>(largest_input / unscaled_largest) : 1.0;
  const double step_square = reader.inputs->mean_row_max_square * shrink * shrink / (127.0 * 127.0);
  double error = 0;
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t i = 0; i < k; ++i) {
      const auto value = static_cast<double>(scaled.f32()[row * k + i]);
      const double d = value - static_cast<double>(q.value(row, i));
      error += d * d * static_cast<double>(importance[static_cast<std::size_t>(i)]);
      if (reader.int8_inputs) error += value * value * step_square / 12;
    }
  return error * static_cast<double>(step);
}

void normalize(std::vector<float>& s) {
  double sum = 0;
  for (const float x : s) sum += std::log(static_cast<double>(x));
  const double mean = std::exp(sum / static_cast<double>(s.size()));
  for (float& x : s) x = static_cast<float>(static_cast<double>(x) / mean);
}

}  // namespace

Equalization find_equalization(const EqualizationGroup& group, const std::vector<Reader>& readers) {
  const auto n = static_cast<std::size_t>(group.n_channels);
  std::vector<double> input(n), weight(n);
  for (const Reader& reader : readers) {
    const std::int64_t k = reader.matrix->dim(1);
    for (std::int64_t i = 0; i < k; ++i) {
      const auto c = static_cast<std::size_t>(group.channel_of(i));
      input[c] = std::max(input[c], std::sqrt(reader.inputs->mean_square[static_cast<std::size_t>(i)]));
      for (std::int64_t row = 0; row < reader.matrix->dim(0); ++row)
        weight[c] = std::max(weight[c], std::abs(static_cast<double>(reader.matrix->row(row).cf32()[i])));
    }
  }
  const auto error_of = [&](const std::vector<float>& scales) {
    double sum = 0;
    for (const Reader& reader : readers) sum += reader_error(group, reader, scales);
    return sum;
  };
  Equalization best{.scales = std::vector<float>(n, 1.0F)};
  best.error_before = best.error_after = error_of(best.scales);
  constexpr double kTiny = 1e-8;
  for (int a = 0; a <= 10; ++a)
    for (int b = 0; b <= 10; b += 5) {
      if (a == 0 && b == 0) continue;
      std::vector<float> scales(n);
      for (std::size_t c = 0; c < n; ++c)
        scales[c] = static_cast<float>(std::pow(std::max(input[c], kTiny), a / 10.0) /
                                       std::pow(std::max(weight[c], kTiny), b / 10.0));
      normalize(scales);
      // Channels that are never used must not take a scale that float16 cannot hold.
      for (float& s : scales) s = std::clamp(s, 1.0F / 1024, 1024.0F);
      const double error = error_of(scales);
      if (!(error < best.error_after)) continue;
      best.error_after = error;
      best.scales = std::move(scales);
      best.activation_power = a / 10.0;
      best.weight_power = b / 10.0;
    }
  return best;
}

void apply_equalization(const EqualizationGroup& group, const std::vector<float>& scales,
                        const std::function<Tensor(const std::string&)>& value_of,
                        const std::function<void(const std::string&, Tensor)>& set) {
  for (const EqualizationGroup::Writer& writer : group.writers) {
    Tensor t = value_of(writer.name);
    const TensorView v = t.view();
    const std::int64_t row = v.numel() / v.dim(0);
    TRIPTYCH_CHECK(writer.first_row + group.n_channels <= v.dim(0), "{}: {} channels from row {} of {}",
                   writer.name, group.n_channels, writer.first_row, to_string(v.shape()));
    for (std::int64_t c = 0; c < group.n_channels; ++c)
      for (std::int64_t i = 0; i < row; ++i)
        t.f32()[(writer.first_row + c) * row + i] /= scales[static_cast<std::size_t>(c)];
    set(writer.name, std::move(t));
  }
  for (const std::string& reader : group.readers) {
    Tensor t = value_of(reader);
    const std::int64_t k = t.view().dim(1);
    for (std::int64_t row = 0; row < t.view().dim(0); ++row)
      for (std::int64_t i = 0; i < k; ++i)
        t.f32()[row * k + i] *= scales[static_cast<std::size_t>(group.channel_of(i))];
    set(reader, std::move(t));
  }
}

}  // namespace triptych::compress

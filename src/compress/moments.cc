#include "compress/moments.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace triptych::compress {

void ChannelMoments::add(const TensorView& x, std::span<const float> row_weights) {
  const std::int64_t k = x.dim(1);
  const auto width = static_cast<std::size_t>(k);
  mean_square.resize(width);
  mean.resize(width);
  max_abs.resize(width);
  for (std::int64_t t = 0; t < x.dim(0); ++t) {
    const float* row = x.row(t).cf32();
    const double w =
        row_weights.empty() ? 1.0 : static_cast<double>(row_weights[static_cast<std::size_t>(t)]);
    float largest = 0;
    for (std::size_t j = 0; j < width; ++j) {
      const float a = std::abs(row[j]);
      mean_square[j] += w * static_cast<double>(a) * static_cast<double>(a);
      mean[j] += w * static_cast<double>(row[j]);
      max_abs[j] = std::max(max_abs[j], a);
      largest = std::max(largest, a);
    }
    mean_row_max_square += w * static_cast<double>(largest) * static_cast<double>(largest);
    weight += w;
  }
  n_rows += x.dim(0);
}

void ChannelMoments::finish() {
  if (!(weight > 0)) return;
  for (double& value : mean_square) value /= weight;
  for (double& value : mean) value /= weight;
  mean_row_max_square /= weight;
}

void ChannelMoments::divide_channels(std::span<const float> scales) {
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const auto s = static_cast<double>(scales[i]);
    mean_square[i] /= s * s;
    mean[i] /= s;
    max_abs[i] /= scales[i];
  }
}

void Gram::add(const TensorView& x, std::span<const float> row_weights, ThreadPool& pool) {
  constexpr std::int64_t kRows = 8;  // of x at a time, so that the sums are read and written seldom
  const auto k = static_cast<std::size_t>(k_);
  pool.parallel_guided(k, 8, [&](std::size_t begin, std::size_t end, int) {
    for (std::int64_t first = 0; first < x.dim(0); first += kRows) {
      const std::int64_t n = std::min(kRows, x.dim(0) - first);
      for (std::size_t i = begin; i < end; ++i) {
        float* sums = values_.data() + i * k;
        for (std::int64_t t = first; t < first + n; ++t) {
          const float* row = x.row(t).cf32();
          const float w = row_weights.empty() ? 1.0F : row_weights[static_cast<std::size_t>(t)];
          const float a = w * row[i];
          if (a == 0) continue;
          for (std::size_t j = i; j < k; ++j) sums[j] += a * row[j];
        }
      }
    }
  });
}

void Gram::divide_channels(std::span<const float> scales) {
  const auto k = static_cast<std::size_t>(k_);
  for (std::size_t i = 0; i < k; ++i)
    for (std::size_t j = i; j < k; ++j) values_[i * k + j] /= scales[i] * scales[j];
}

MomentRecorder::MomentRecorder(const PartSizes& sizes, ThreadPool& pool,
                               std::function<bool(const LinearId&)> wants_gram)
    : pool_(pool), wants_gram_(std::move(wants_gram)) {
  for (const PartSizes::Linear& linear : sizes.linears)
    known_.emplace(linear.weight, Known{linear.id, linear.part == "language"});
}

void MomentRecorder::on_linear(const LinearWeight& weight, const TensorView& x) {
  const auto found = known_.find(&weight);
  if (found == known_.end() || x.dim(0) == 0) return;
  const LinearId& id = found->second.id;
  std::span<const float> weights;
  if (found->second.is_language && static_cast<std::int64_t>(row_weights_.size()) == x.dim(0))
    weights = row_weights_;
  Seen& seen = seen_[id];
  if (seen.channels.n_rows == 0) seen.block = block_;
  seen.channels.add(x, weights);
  if (!std::isfinite(seen.channels.mean_row_max_square))
    fail(ErrorCode::kInvalidArgument, "calibration: an input of {} is infinite or no number", id.text());
  if (!wants_gram_(id)) return;
  if (!seen.gram) seen.gram = std::make_unique<Gram>(x.dim(1));
  seen.gram->add(x, weights, pool_);
}

void MomentRecorder::finish() {
  for (auto& [id, seen] : seen_) seen.channels.finish();
}

const ChannelMoments* MomentRecorder::channels(const LinearId& id) const {
  const auto found = seen_.find(id);
  return found == seen_.end() ? nullptr : &found->second.channels;
}

void MomentRecorder::on_block_begin(const BlockName& block, const TensorView&) { block_ = block.text(); }

void MomentRecorder::on_block_end(const BlockName&, const TensorView&) { block_.clear(); }

const std::string& MomentRecorder::block_of(const LinearId& id) const {
  static const std::string kNone;
  const auto found = seen_.find(id);
  return found == seen_.end() ? kNone : found->second.block;
}

void MomentRecorder::divide_channels(const LinearId& id, std::span<const float> scales) {
  const auto found = seen_.find(id);
  if (found == seen_.end()) return;
  found->second.channels.divide_channels(scales);
  if (found->second.gram) found->second.gram->divide_channels(scales);
}

Gram* MomentRecorder::gram(const LinearId& id) {
  const auto found = seen_.find(id);
  return found == seen_.end() ? nullptr : found->second.gram.get();
}

}  // namespace triptych::compress

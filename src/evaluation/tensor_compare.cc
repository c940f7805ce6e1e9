#include "evaluation/tensor_compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace triptych {
namespace {

// reference index -> our index, for [n, C, h, w] against [n h w, C].
struct ChannelsFirst {
  std::int64_t n_channels, n_places;
  std::int64_t operator()(std::int64_t i) const {
    const std::int64_t place = i % n_places;
    const std::int64_t channel = i / n_places % n_channels;
    const std::int64_t picture = i / n_places / n_channels;
    return (picture * n_places + place) * n_channels + channel;
  }
};

template <typename Index>
void scan(const float* ours, const float* reference, Difference& out, Index index) {
  std::int64_t n_bad = 0;
  for (std::int64_t i = 0; i < out.n_elements; ++i) {
    const double a = static_cast<double>(ours[index(i)]);
    const double b = static_cast<double>(reference[i]);
    if (!std::isfinite(a) || !std::isfinite(b)) {
      n_bad += a == b || (std::isnan(a) && std::isnan(b)) ? 0 : 1;
      continue;
    }
    out.largest = std::max(out.largest, std::fabs(b));
    const double error = std::fabs(a - b);
    if (error > out.max_abs || out.at < 0) {
      out.max_abs = error;
      out.at = i;
    }
  }
  if (n_bad > 0) out.problem = fmt::format("{} of {} values are not finite", n_bad, out.n_elements);
}

}  // namespace

void Difference::merge(const Difference& other) {
  if (!problem.empty()) return;
  if (!other.problem.empty() || other.relative() > relative() || at < 0) *this = other;
}

Difference compare_tensors(const TensorView& ours, const TensorView& reference) {
  Difference out;
  out.n_elements = reference.numel();
  const std::string shapes =
      fmt::format("shape {} against {}", to_string(ours.shape()), to_string(reference.shape()));
  if (ours.dtype() != DType::kF32 || reference.dtype() != DType::kF32) {
    out.problem = fmt::format("type {} against {}", to_string(ours.dtype()), to_string(reference.dtype()));
    return out;
  }
  TRIPTYCH_CHECK(ours.is_contiguous() && reference.is_contiguous());
  if (ours.numel() != reference.numel()) {
    out.problem = shapes;
    return out;
  }
  if (out.n_elements == 0) return out;
  const bool same_rows = ours.rank() == 0 || reference.rank() == 0 || ours.dim(-1) == reference.dim(-1);
  if (reference.rank() == 4 && ours.rank() == 2 && ours.dim(1) == reference.dim(1)) {
    scan(ours.cf32(), reference.cf32(), out,
         ChannelsFirst{reference.dim(1), reference.dim(2) * reference.dim(3)});
  } else if (same_rows) {
    scan(ours.cf32(), reference.cf32(), out, [](std::int64_t i) { return i; });
  } else {
    out.problem = shapes;
  }
  return out;
}

}  // namespace triptych

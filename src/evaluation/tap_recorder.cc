#include "evaluation/tap_recorder.h"

#include "base/error.h"

namespace triptych {

TensorView TapRecorder::Tap::view() { return {values.data(), DType::kF32, {n_rows, width}}; }

void TapRecorder::on_tap(std::string_view name, const TensorView& value) {
  TRIPTYCH_CHECK(value.dtype() == DType::kF32 && value.rank() >= 1, "tap {}", name);
  const Tensor dense = Tensor::copy_of(value);
  const std::int64_t width = value.rank() == 1 ? value.numel() : value.dim(-1);
  auto [found, is_new] = index_.try_emplace(std::string(name), taps_.size());
  if (is_new) taps_.push_back({.name = std::string(name), .n_rows = 0, .width = width, .values = {}});
  Tap& tap = taps_[found->second];
  TRIPTYCH_CHECK(tap.width == width, "tap {}: width {} after {}", name, width, tap.width);
  tap.n_rows += width > 0 ? value.numel() / width : 0;
  tap.values.insert(tap.values.end(), dense.f32(), dense.f32() + value.numel());
}

TapRecorder::Tap* TapRecorder::find(std::string_view name) {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &taps_[found->second];
}

}  // namespace triptych

// What an engine takes of memory, so that a limit is kept before it is passed: weights, the scratch memory of
// a step and of a pass through the tower, and what is left for blocks of keys and values and for pictures.
// Scratch memory is found by recording a step and a pass: nothing is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "models/model.h"

namespace triptych {

/// Sizes of an engine, as its options say.
struct EngineSizes {
  std::int64_t n_step_rows = 0;
  std::int64_t n_sequences = 0;
  std::int64_t n_pass_patches = 0;
  KvDType kv_dtype = KvDType::kF32;
};

class MemoryBudget {
 public:
  /// Without a limit; everything fits.
  MemoryBudget() = default;
  /// Throws Error(kOutOfMemory) with the numbers when nothing is left for keys and values, kUnsupported for a
  /// backend that cannot record.
  MemoryBudget(std::size_t limit_bytes, const Model& model, Backend& backend, const EngineSizes& sizes);

  bool is_limited() const noexcept { return limit_bytes_ > 0; }
  /// Blocks of keys and values that fit, when there are no pictures.
  std::int64_t n_blocks() const noexcept { return n_blocks_; }
  /// Blocks whose memory these pictures take as long as their request runs: pixels, then rows, and the
  /// scratch memory of a larger pass than usual. 0 without a limit.
  std::int64_t picture_blocks(std::span<const MediaItem> media) const;
  /// Throws Error(kOutOfMemory) with the numbers when a request of n_prompt tokens could never run.
  void check(std::int64_t n_prompt, std::span<const MediaItem> media) const;

  std::size_t weights_bytes() const noexcept { return weights_bytes_; }
  std::size_t step_bytes() const noexcept { return step_bytes_; }
  std::size_t pass_bytes() const noexcept {
    return static_cast<std::size_t>(patch_bytes_ * static_cast<double>(sizes_.n_pass_patches));
  }
  std::size_t block_bytes() const noexcept { return block_bytes_; }

 private:
  std::size_t limit_bytes_ = 0;
  EngineSizes sizes_;
  std::size_t weights_bytes_ = 0;
  std::size_t step_bytes_ = 0;
  double patch_bytes_ = 0;  // scratch memory of the tower
  std::size_t block_bytes_ = 1;
  std::int64_t n_blocks_ = 0;
  std::int64_t media_width_ = 0;  // of a picture's rows
};

}  // namespace triptych

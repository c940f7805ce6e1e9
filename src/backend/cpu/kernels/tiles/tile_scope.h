// A loop over tiles on this thread.
#pragma once

#include "backend/cpu/kernels/tiles/tile_config.h"

namespace triptych::kernels {

/// Configures tiles, and at its end releases them or loads what was configured before. Nothing where `loop`
/// is null. Made in the body of each parallel loop, so that no thread sleeps with tiles in use.
class TileScope {
 public:
  explicit TileScope(const TileLoop* loop) noexcept : loop_(loop) {
    if (loop_ != nullptr) loop_->begin(&before_);
  }
  ~TileScope() {
    if (loop_ != nullptr) loop_->end(&before_);
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  const TileLoop* loop_;
  TileConfig before_{};
};

}  // namespace triptych::kernels

// Tower and projector over the media of several requests at once, one ragged call, that can be left in the
// middle: it runs on a stack of its own (base/fiber.h), stops between blocks and between pieces of large
// operations, and keeps its rows in its arena until it goes on. Models know nothing of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "backend/exec_context.h"
#include "base/fiber.h"
#include "engine/scheduler.h"
#include "models/model.h"
#include "tensor/arena.h"

namespace triptych {

/// Rows that were computed, and those of them that stand for nothing that was asked.
struct RowCount {
  std::int64_t n_rows = 0;
  std::int64_t n_padded = 0;
};

/// Patches of `patch_values` values that the pixels of an item hold: [P, patch_values], or pictures [..., C,
/// H, W] in whole square patches.
std::int64_t patches_of(const Shape& pixels, std::int64_t patch_values);

class EncodePass final : private PassPauses {
 public:
  /// Borrows model, backend and arena, which is the pass's own while it lives. `observer` (may be null) sees
  /// the whole pass in one stretch.
  /// When it throws, the items are where they were.
  EncodePass(const Model& model, Backend& backend, Arena& arena, std::vector<MediaItem>&& items,
             ExecObserver* observer, ClockMs clock);

  /// Goes on for about `budget_ms` (infinity: to the end), or until `interrupt` is true; at least one piece.
  /// True: all is done. Throws what the model throws; the pass is over then.
  bool run(double budget_ms, const std::atomic<bool>& interrupt);
  /// When done: [sum of n_tokens, W], an operand of the backend, valid as long as the pass and its arena.
  TensorView rows() const noexcept { return rows_; }

  std::vector<MediaItem>& items() noexcept { return items_; }
  const std::vector<MediaItem>& items() const noexcept { return items_; }
  /// Time spent in run().
  double active_ms() const noexcept { return active_ms_; }
  /// When done: rows that the tower computed beyond those of the plans.
  std::int64_t n_padded_patches() const noexcept { return n_padded_patches_; }
  /// When done: patches that the tower multiplied, against those of the items' pixels.
  const RowCount& patch_rows() const noexcept { return patch_rows_; }
  /// Stretches so far.
  std::int64_t n_stretches() const noexcept { return n_stretches_; }

 private:
  double piece_flop() const noexcept override;
  void pause(double flop) override;
  void encode();

  const Model& model_;
  Backend& backend_;
  Arena& arena_;
  std::vector<MediaItem> items_;
  ExecObserver* observer_;
  ClockMs clock_;
  TensorView rows_;
  std::int64_t n_padded_patches_ = 0;
  RowCount patch_rows_;
  std::int64_t n_stretches_ = 0;
  double active_ms_ = 0;

  // Of the stretch that runs.
  double budget_ms_ = 0;
  double end_ms_ = 0;
  const std::atomic<bool>* interrupt_ = nullptr;
  double piece_start_ms_ = 0;
  // Measured, the worse the better remembered.
  double flop_per_ms_ = 0;
  double piece_ms_ = 0;

  std::optional<Fiber> fiber_;  // from the first stretch on; last: it runs on what stands above
};

}  // namespace triptych

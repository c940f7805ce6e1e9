// Behind the attention of the last layer only the rows matter whose logits are asked for: of a prompt, one.
// The rest of that layer is left out for the others, which is 1 / n_layers of a prompt's work, nearly.
#pragma once

#include <cstdint>
#include <span>

#include "backend/exec_context.h"

namespace triptych {

class LogitRows {
 public:
  /// `rows` of h [T, D]. Before the layers, so that its memory outlives their scopes. Nothing is left out
  /// while taps are recorded: they show whole layers. `may_narrow` false: nor otherwise.
  LogitRows(ExecContext& cx, std::span<const std::int32_t> rows, const TensorView& h, bool may_narrow = true)
      : rows_(rows),
        narrow_(may_narrow && !cx.tapping() && static_cast<std::int64_t>(rows.size()) < h.dim(0)) {
    if (narrow_) last_ = cx.empty({static_cast<std::int64_t>(rows.size()), h.dim(1)});
  }

  /// In the last layer, behind its attention: a and h become [n, ...].
  void keep(ExecContext& cx, TensorView& a, TensorView& h) const {
    if (!narrow_) return;
    a = cx.gather_rows(a, rows_);
    cx.copy(cx.gather_rows(h, rows_), last_);
    h = last_;
  }

  /// The rows of the last layer's output: [n, D].
  TensorView of(ExecContext& cx, const TensorView& h) const { return narrow_ ? h : cx.gather_rows(h, rows_); }

 private:
  std::span<const std::int32_t> rows_;
  bool narrow_;
  TensorView last_;
};

}  // namespace triptych

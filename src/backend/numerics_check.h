// Finds the first infinity or NaN among the activations of a run and says where it arose.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/exec_context.h"

namespace triptych {

/// Looks at every tap and at the input of every linear; passes both on to `next` (may be null). What it finds
/// is thrown as Error(kInvalidFile): "model.layers.3: 2 of 896 values are not finite, the first nan at [0,
/// 5]; everything up to model.layers.2 was finite".
class NumericsCheck : public ExecObserver {
 public:
  explicit NumericsCheck(ExecObserver* next = nullptr) : next_(next) {}

  void on_tap(std::string_view name, const TensorView& value) override;
  void on_linear(const LinearWeight& weight, const TensorView& x) override;
  void on_attention(const AttentionArgs& args) override;
  /// The same for a value that is no tap, e.g. the logits.
  void check(std::string_view name, const TensorView& value);
  /// A new run begins, of a part of the model that messages name: "vision", "language" or nothing.
  void restart(ExecObserver* next, std::string_view part = "");

 private:
  ExecObserver* next_;
  std::string part_;
  std::string last_finite_;  // name of the last tap
  int n_since_ = 0;          // linears since then
};

}  // namespace triptych

// Ranges of what the linears of towers, projectors and resamplers multiply, found on some pictures:
// activations can then be rounded to one grid a linear (InputGrid), and a linear can write what the next one
// multiplies.
#pragma once

#include <unordered_map>

#include "backend/exec_context.h"
#include "engine/load.h"
#include "media/image.h"
#include "nn/weights.h"
#include "tensor/input_grid.h"

namespace triptych {

/// Notes the smallest and the largest input of every linear that it sees run.
class InputRanges final : public ExecObserver {
 public:
  bool wants_taps() const noexcept override { return false; }
  void on_tap(std::string_view, const TensorView&) override {}
  /// Throws Error(kInvalidArgument) when an input is not finite.
  void on_linear(const LinearWeight& weight, const TensorView& x) override;

  /// The grid whose codes -128 and 127 are the smallest and the largest input, for all linears that were seen
  /// but those of the language model.
  InputGrids grids(const PartSizes& sizes) const;

 private:
  struct Range {
    float low, high;
  };
  std::unordered_map<const LinearWeight*, Range> ranges_;
};

/// Runs the tower over these pictures. Throws Error(kInvalidArgument) without one, or for a model whose
/// pictures meet no linear but the language model's.
InputGrids calibrate_inputs(LoadedModel& model, const std::vector<MediaInput>& pictures);

}  // namespace triptych

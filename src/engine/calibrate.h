// Ranges of what the linears of towers, projectors and resamplers multiply, found on some pictures:
// activations can then be rounded with static parameters for each linear (ActivationQuant), and a linear can
// write what the next one multiplies.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "backend/exec_context.h"
#include "engine/load.h"
#include "media/image.h"
#include "tensor/activation_quant.h"
#include "weights/packed_weights.h"

namespace triptych {

/// Notes how the inputs of every linear that it sees run are spread: first their ends, then, in a second run
/// over the same pictures, a histogram.
class InputRanges final : public ExecObserver {
 public:
  bool wants_taps() const noexcept override { return false; }
  void on_tap(std::string_view, const TensorView&) override {}
  /// Throws Error(kInvalidArgument) when an input is not finite.
  void on_linear(const LinearWeight& weight, const TensorView& x) override;
  /// The ends are known.
  void begin_histograms();

  /// The parameters with the least squared error, rounding inside and what is cut off together, for all
  /// linears that were seen but those of the language model. Without histograms nothing is cut off.
  ActivationQuantMap activation_quants(const PartSizes& sizes) const;

 private:
  struct Spread {
    float low = 0, high = 0;
    std::vector<std::uint64_t> counts;  // of equal pieces from low to high; empty in the first run
  };
  static void note_ends(Spread& spread, bool is_new, const TensorView& x);
  static void count(Spread& spread, const TensorView& x);

  bool counting_ = false;
  std::unordered_map<const LinearWeight*, Spread> spreads_;
};

/// Takes static quantization parameters that `options` does not want out of the index; whether any stay.
/// Throws Error(kInvalidArgument) when there is none and static activations are asked for.
bool take_activation_quants(PackedIndex& index, const LoadOptions& options);
/// The same of a checkpoint that holds none: they can only come with the options.
bool has_activation_quants(const LoadOptions& options);
/// Throws Error(kInvalidArgument) unless the tower's weights become int8 by channels.
void check_takes_activation_quants(const WeightFormats& formats);

/// Runs the tower over these pictures, twice. Throws Error(kInvalidArgument) without one, or for a model
/// whose pictures meet no linear but the language model's.
/// `progress` (may be empty) is called before each of the runs over one picture.
ActivationQuantMap calibrate_inputs(
    LoadedModel& model, const std::vector<MediaInput>& pictures,
    const std::function<void(std::int64_t n_done, std::int64_t n_runs)>& progress = {});

}  // namespace triptych

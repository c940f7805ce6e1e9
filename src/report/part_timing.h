// What one part of a model took in a run, and what it costs at least.
#pragma once

#include <string>

#include "report/cost_model.h"

namespace triptych {

/// One kind of operation within a stage, all layers together, of one pass (a prompt or one decoded token).
struct PartTiming {
  std::string stage;  // "tower", "projector", "prefill", "decode"
  std::string name;   // "self_attn.q_proj+k_proj+v_proj", "attention", "norm"
  double count = 0;   // calls a pass
  double ms = 0;
  /// Bytes are operands that are moved once: weights, inputs and outputs; cached keys and values.
  Cost cost;
};

}  // namespace triptych

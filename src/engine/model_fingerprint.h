// What decides the bits that a loaded model's tower makes of pixels, as 256 bits: for rows that outlive the
// process.
#pragma once

#include <span>

#include "base/fingerprint.h"
#include "base/json.h"
#include "engine/load.h"
#include "engine/request.h"

namespace triptych {

struct ModelIdentity {
  const Checkpoint* checkpoint = nullptr;  // null: the random weights of this configuration
  std::span<const Json* const> configurations =
      {};  // config.json and what says how pictures become pixels; null: no such file
  const LoadOptions* options = nullptr;
  std::optional<DType> weight_dtype = {};  // that matrices have; empty: as stored
  WeightFormats formats = {};
  bool static_vision_inputs = false;
  const Backend* backend = nullptr;
};

/// Of this build, the instruction set, the configuration, the formats of weights and activations, and the
/// weights. Weights are known by their files' sizes and times of modification, by name, type and shape of
/// each tensor and by bytes of both of its ends; not all of them are read, which would cost seconds. A
/// checkpoint that was copied without its times counts as another one.
Fingerprint model_fingerprint(const ModelIdentity& identity);

/// Of a model that somebody made in memory: equal to no other.
Fingerprint unique_fingerprint();

/// Of what the tower sees of a picture or video: its frames and what the plan makes of them, under the
/// model's fingerprint. With MediaInput::client_id that name stands for the frames, under the tenant's salt.
Fingerprint media_fingerprint(const Fingerprint& model, const MediaInput& input, const MediaPlan& plan,
                              std::string_view cache_salt);

}  // namespace triptych

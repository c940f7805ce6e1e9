// From the words of ModelOptions, which are those of the flags, to what loading is asked for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/public.h"
#include "engine/load.h"
#include "tensor/dtype.h"

namespace triptych::api {

/// Throws triptych::Error that names the option: kInvalidArgument for an unknown word or a number out of
/// range, kUnsupported for a quantization that cannot be computed with.
LoadOptions to_load_options(const ModelOptions& options);

/// How errors name the three places where a type can be given.
struct WeightTypeNames {
  std::string_view weights = "ModelOptions::weights";
  std::string_view vision_weights = "ModelOptions::vision_weights";
  std::string_view lm_head = "ModelOptions::lm_head";
};

/// Its part for the types of weights: sets weight_dtype and weight_formats.
void set_weight_types(LoadOptions& options, const std::string& weights, const std::string& vision_weights,
                      const std::string& lm_head, const WeightTypeNames& names = {});

/// "fp32", "fp16" or "bf16"; nothing for "auto". Throws triptych::Error(kInvalidArgument) for another word.
std::optional<DType> parse_dtype(const std::string& name);

}  // namespace triptych::api

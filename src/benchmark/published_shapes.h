// Sizes of published models, for measurements with random weights: what their config.json says (what it
// leaves out is a class default, as in the published files).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace triptych {

struct PublishedShape {
  std::string_view name;         // "llava-1.5-7b"
  std::string_view description;  // "CLIP ViT-L/14 at 336, Vicuna 7B"
  std::string_view config;       // JSON
  std::string_view patch = {};   // what this one has otherwise, a JSON merge patch (RFC 7396)
};

const std::vector<PublishedShape>& published_shapes();

/// The configuration of a published model. Throws Error(kInvalidArgument) that lists the known names.
/// `n_layers` > 0 replaces the number of layers of the language model.
Json published_config(std::string_view name, int n_layers = 0);

/// The number of layers of the language model in a configuration of any family, and a change of it. Nothing
/// when the configuration states none (a class default holds then).
std::optional<int> language_layers(const Json& config);
void set_language_layers(Json& config, int n_layers);

}  // namespace triptych

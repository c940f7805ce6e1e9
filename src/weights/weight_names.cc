#include "weights/weight_names.h"

#include <initializer_list>

namespace triptych {
namespace {

bool strip(std::string_view& name, std::string_view prefix) {
  if (name.substr(0, prefix.size()) != prefix) return false;
  name.remove_prefix(prefix.size());
  return true;
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  for (const std::string_view p : prefixes)
    if (name.substr(0, p.size()) == p) return true;
  return false;
}

// What follows "vision_tower.": the original repository nests it twice, the hub has a "vision_model." level.
// SigLIP's pooling head stands in published checkpoints, and no model reads it.
std::string vision_tower(std::string_view rest) {
  strip(rest, "vision_tower.");
  strip(rest, "vision_model.");
  if (starts_with_any(rest, {"head."})) return {};
  return "vision_tower." + std::string(rest);
}

}  // namespace

std::string canonical_weight_name(std::string_view full) {
  std::string_view name = full;
  std::string_view inner = name;
  if (strip(inner, "model.") &&
      starts_with_any(inner, {"language_model.", "visual.", "vision_tower.", "multi_modal_projector.",
                              "image_newline", "vision_embed_tokens.", "mm_projector.", "lm_head."}))
    name = inner;
  if (strip(name, "vision_tower.")) return vision_tower(name);
  if (strip(name, "mm_projector.0.")) return "multi_modal_projector.linear_1." + std::string(name);
  if (strip(name, "mm_projector.2.")) return "multi_modal_projector.linear_2." + std::string(name);
  if (strip(name, "language_model.lm_head.")) return "lm_head." + std::string(name);
  if (strip(name, "language_model.model.") || strip(name, "language_model."))
    return "lm." + std::string(name);
  if (starts_with_any(name, {"model.embed_tokens.", "model.layers.", "model.norm."}) && strip(name, "model."))
    return "lm." + std::string(name);
  return std::string(name);
}

}  // namespace triptych

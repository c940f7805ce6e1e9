// Tensor names have changed over the years; models bind canonical ones. Accepted: names as on the hub, names
// as written by newer tools (one level less), and the original LLaVA repository's.
#pragma once

#include <string>
#include <string_view>

namespace triptych {

/// Canonical name: the language model below "lm." with its head "lm_head.", towers as "vision_tower." (LLaVA;
/// without the inner "vision_model." level), "visual." (Qwen2-VL), "multi_modal_projector.", "image_newline",
/// "vision_embed_tokens.". Names that no rule fits come back unchanged.
std::string canonical_weight_name(std::string_view name);

}  // namespace triptych

// The layout of the original LLaVA repository (haotian-liu/LLaVA, and LLaVA-NeXT after it): one flat LLaMA
// configuration with mm_* keys, the vision tower by name, LlavaLlamaForCausalLM for 1.5 and 1.6 alike,
// LlavaMistralForCausalLM where the language model is Mistral.
// Reference: its llava/mm_utils.py (process_images), llava/model/llava_arch.py
// (prepare_inputs_labels_for_multimodal). What is cut away of the tiles' map follows transformers'
// arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/anyres.h"
#include "models/model.h"
#include "nn/llama_decoder.h"
#include "nn/llava_vision.h"

namespace triptych {

/// True for a configuration of this layout.
bool is_llava_original(const JsonView& config);
/// True when it wants pictures in tiles: image_aspect_ratio begins with "anyres".
bool is_tiled_original(const JsonView& config);
/// The class that such a configuration is of, for reports.
std::string_view llava_original_class(const JsonView& config);

/// Tokens in front of a picture and behind it (mm_use_im_start_end).
struct ImageBrackets {
  std::int32_t start = 0;
  std::int32_t end = 0;

  /// `ids` with both around each `placeholder`, where they do not stand already.
  std::vector<std::int32_t> around(std::span<const std::int32_t> ids, std::int32_t placeholder) const;
};

struct LlavaOriginal {
  LlamaConfig text;
  std::string text_model_type;  // "llama" or "mistral"
  LlavaVisionConfig vision;
  std::int32_t image_token_id = 0;        // behind the vocabulary, which has none
  bool do_pad = false;                    // pictures to squares in the mean colour
  std::optional<AnyRes> anyres;           // pictures in tiles
  std::optional<ImageBrackets> brackets;  // <im_start> and <im_end>

  /// Throws Error(kUnsupported) naming key and value for what is computed in another way: other towers,
  /// resamplers and projectors, other values of image_aspect_ratio ("highres", "crop_split") and of
  /// mm_patch_merge_type ("spatial", "flat" with tiles), pinpoints given as a text.
  static LlavaOriginal parse(const ModelSource& source);
};

}  // namespace triptych

// What Qwen2-VL, Qwen2.5-VL and Qwen3-VL share around their language model: the text configuration, special
// tokens, chat template and the layout of a prompt. Reference: transformers 5.24, configuration_qwen2_vl.py,
// configuration_qwen2_5_vl.py, processing_qwen2_vl.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "models/model.h"
#include "models/qwen2_image_processor.h"
#include "nn/llama_decoder.h"

namespace triptych {

/// ChatML; a picture is <|vision_start|><|image_pad|><|vision_end|> where it stands among the texts. The
/// variable add_vision_id numbers pictures and videos. A conversation without a system message begins with
/// `default_system` as one, unless that is empty.
std::string qwen2_vl_template(std::string_view default_system);

/// The language model's numbers: text_config, or the configuration itself (published files are flat). Class
/// defaults that differ from Qwen2's: rms_norm_eps 1e-5, rope_theta 1e6, mrope_section [16, 24, 24].
LlamaConfig parse_qwen2_vl_text(const JsonView& config, bool force_tie);

struct Qwen2VisionTokens {
  std::int32_t image = 151655;
  std::int32_t video = 151656;
  std::int32_t pad = -1;  // <|vision_pad|>, which newer configurations leave out; -1: unknown

  static Qwen2VisionTokens parse(const ModelSource& source);
};

/// Fills everything of ModelInfo but the family's name.
void describe_qwen2_vl(const LlamaConfig& text, const Qwen2VisionTokens& tokens, ModelInfo& info);

struct Qwen2PromptRules {
  Qwen2VisionTokens tokens;
  Qwen2ImageProcessor::Geometry tower;
  int tokens_per_second = 0;  // temporal positions of a second of video; 0: one a grid step, as in Qwen2-VL
  bool splits_videos =
      false;  // a <|video_pad|> stands for one grid step and is placed like a picture (Qwen3-VL)
  std::int64_t max_context_tokens = 0;
};

/// Replaces the i-th <|image_pad|> by the i-th picture's tokens and the i-th <|video_pad|> by the i-th
/// video's, or those of the i-th grid step of all videos. Throws Error(kInvalidArgument) with the counts when
/// they do not match, kContextLength for a prompt that is too long.
PromptLayout expand_qwen2_prompt(std::span<const std::int32_t> ids, std::span<const MediaPlan> plans,
                                 const Qwen2PromptRules& rules);

/// Of a video; 2 where it comes without a rate (what its makers' own tools sample). Throws
/// Error(kInvalidArgument) for a rate that is not positive and finite.
double frames_per_second(const MediaMeta& meta);

}  // namespace triptych

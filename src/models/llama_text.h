// Text configurations that name a decoder of LLaMA's layout by its model_type, as composed configurations of
// transformers have them (text_config).
#pragma once

#include <string_view>

#include "base/json.h"
#include "nn/llama_decoder.h"

namespace triptych {

/// What a configuration class of this model_type leaves out: "llama" LlamaConfig, "mistral" MistralConfig,
/// "qwen2" Qwen2Config, "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl" and "qwen2_5_vl_text" Qwen2VLTextConfig,
/// "qwen3_vl" and "qwen3_vl_text" Qwen3VLTextConfig.
/// Anything else throws Error(kUnsupported), naming `text_config`'s field.
LlamaDefaults llama_defaults(std::string_view model_type, const JsonView& text_config);

/// text_config of a composed configuration (of `default_type` where it has no model_type).
/// tie_word_embeddings is looked for there, then at the top; `force_tie` overrides.
LlamaConfig parse_llama_text(const JsonView& config, bool force_tie, std::string_view default_type = "llama");

}  // namespace triptych

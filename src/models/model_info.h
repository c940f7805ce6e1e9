// What the rest of the program must know of a model: data, so that nothing branches on a family's name.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "media/video_sampling.h"

namespace triptych {

/// What the engine, the server and the reports must know of a model.
struct ModelInfo {
  std::string family;        // registry name, e.g. "llava"
  std::string architecture;  // as config.json names it, e.g. "LlavaForConditionalGeneration"

  std::int64_t vocab_size = 0;   // rows of the output layer
  std::int64_t hidden_size = 0;  // width of the language model
  int n_layers = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  std::int64_t max_context_tokens = 0;
  int n_position_axes = 1;  // 3 for M-RoPE (temporal, height, width)

  std::vector<std::int32_t> eos_token_ids;  // of config.json; generation_config.json adds its own
  std::optional<std::int32_t> bos_token_id;
  std::vector<std::int32_t> never_sample;  // placeholders and other ids that only a prompt may hold

  // Prompt protocol, as data. The chat template prints `image_placeholder` where a picture goes; it becomes
  // image_token_id.
  std::string image_placeholder;
  std::int32_t image_token_id = -1;
  std::string video_placeholder;  // empty: no video
  std::int32_t video_token_id = -1;
  VideoSampling video_sampling;               // frames it wants of a video
  bool takes_pixel_limits = false;            // plan_media follows MediaOptions
  std::string default_chat_template;          // Jinja source for directories without a template
  int max_images = -1;                        // of one prompt; -1: no limit of the model's own
  bool supports_system_prompt = true;         // else a system message is refused, never dropped
  bool add_special_tokens = true;             // whether the tokenizer's own BOS is wanted
  bool add_special_tokens_with_media = true;  // the same for prompts with pictures
  std::string media_text_tokenizer;  // folder of a second tokenizer whose ids of the user's text go to
                                     // encode_media (InstructBLIP's Q-Former); empty: none
  std::vector<std::string>
      typeable_specials;                 // special tokens a user may type and an answer shows, e.g. "<ref>"
  std::vector<std::string> never_typed;  // tokens a user's text never becomes, special or not
  bool names_regions = false;            // find_regions may give something
  /// Keys and values of a sequence of at most so many tokens do not depend on how long it is, so that a
  /// longer one with the same beginning may keep them. Fewer than the context where the rotary base follows
  /// the length.
  std::int64_t max_shareable_tokens = std::numeric_limits<std::int64_t>::max();
};

}  // namespace triptych

// A small model of LLaVA's shape for tests of this folder.
#pragma once

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "benchmark/published_shapes.h"

namespace triptych {

/// Two layers of width 64 behind a tower of three layers of width 48; 16 rows a picture.
inline Json small_llava_config() {
  Json config = published_config("llava-1.5-7b", 2);
  config["image_token_index"] = 300;
  config["text_config"]["hidden_size"] = 64;
  config["text_config"]["intermediate_size"] = 176;
  config["text_config"]["num_attention_heads"] = 4;
  config["text_config"]["vocab_size"] = 320;
  config["text_config"]["max_position_embeddings"] = 256;
  config["vision_config"]["hidden_size"] = 48;
  config["vision_config"]["intermediate_size"] = 96;
  config["vision_config"]["num_attention_heads"] = 3;
  config["vision_config"]["num_hidden_layers"] = 3;
  config["vision_config"]["image_size"] = 56;
  return config;
}

}  // namespace triptych

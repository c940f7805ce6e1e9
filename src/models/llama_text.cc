#include "models/llama_text.h"

#include <string>

#include "base/error.h"

namespace triptych {

LlamaDefaults llama_defaults(std::string_view type, const JsonView& text_config) {
  LlamaDefaults out;
  if (type == "llama") return out;
  if (type == "mistral") {
    out.intermediate_size = 14336;
    out.n_kv_heads = 8;
    out.max_positions = 131072;
    out.sliding_window = 4096;
    return out;
  }
  if (type == "qwen3_vl" || type == "qwen3_vl_text") {
    out.vocab_size = 151936;
    out.intermediate_size = 22016;
    out.n_kv_heads = 32;
    out.head_dim = 128;
    out.qk_norm = true;
    out.max_positions = 128000;
    out.rope_theta = 500000.0;
    return out;
  }
  out.qkv_bias = true;
  out.max_positions = 32768;
  out.sliding_window = 4096;
  if (type == "qwen2") {
    out.max_window_layers = 28;
    out.vocab_size = 151936;
    out.intermediate_size = 22016;
    out.n_kv_heads = 32;
    return out;
  }
  if (type == "qwen2_vl" || type == "qwen2_vl_text" || type == "qwen2_5_vl" || type == "qwen2_5_vl_text") {
    out.max_window_layers = 80;
    out.vocab_size = 152064;
    out.hidden_size = 8192;
    out.intermediate_size = 29568;
    out.n_layers = 80;
    out.n_heads = 64;
    out.n_kv_heads = 8;
    return out;
  }
  fail(ErrorCode::kUnsupported,
       "{}.model_type: text model \"{}\" is not supported; supported: llama, mistral, qwen2",
       text_config.path(), type);
}

LlamaConfig parse_llama_text(const JsonView& config, bool force_tie, std::string_view default_type) {
  const JsonView text = config.at("text_config");
  LlamaConfig out =
      LlamaConfig::parse(text, llama_defaults(text.get_string("model_type", default_type), text));
  // True in either place, as the reference reads it.
  out.tie_stated = out.tie_stated || config.has("tie_word_embeddings");
  out.tie_word_embeddings =
      out.tie_word_embeddings || config.get_bool("tie_word_embeddings", false) || force_tie;
  return out;
}

}  // namespace triptych

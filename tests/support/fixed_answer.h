// Small checkpoints that give the same answer to every question: nothing but the last token counts, and each
// token of the answer is followed by the next. They let a test see a whole program speak of boxes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "tensor/tensor.h"

namespace triptych::test {

inline Tensor filled(const Shape& shape, float value) {
  Tensor out(DType::kF32, shape);
  std::fill_n(out.f32(), out.view().numel(), value);
  return out;
}

/// A Fuyu with the tokenizer of tests/data/fuyu_tags. `answer`: contents of tokens, each at most once; the
/// answer follows <0x04> and the last token is followed by |ENDOFTEXT|. At most `width` - 2 tokens.
inline void write_fuyu(const std::filesystem::path& folder, const std::filesystem::path& source,
                       const std::vector<std::string>& answer, std::int64_t width = 64) {
  constexpr std::int64_t kFeedForward = 8;
  std::filesystem::create_directories(folder);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy_file(source / "tests/data/fuyu_tags" / name, folder / name,
                               std::filesystem::copy_options::overwrite_existing);
  const Json tokenizer = parse_json(read_text_file(folder / "tokenizer.json", 1 << 24), "tokenizer.json");
  const Json& pieces = tokenizer.at("model").at("vocab");
  const auto vocab_size = static_cast<std::int64_t>(pieces.size());
  const auto id_of = [&](const std::string& content) {
    for (std::size_t i = 0; i < pieces.size(); ++i)
      if (pieces[i][0] == content) return static_cast<std::int64_t>(i);
    fail(ErrorCode::kNotFound, "no token {}", content);
  };
  write_text_file(folder / "config.json", Json{{"architectures", {"FuyuForCausalLM"}},
                                               {"model_type", "fuyu"},
                                               {"vocab_size", vocab_size},
                                               {"hidden_size", width},
                                               {"intermediate_size", kFeedForward},
                                               {"num_hidden_layers", 1},
                                               {"num_attention_heads", 1},
                                               {"qk_layernorm", false},
                                               {"max_position_embeddings", 4096},
                                               {"patch_size", 30}}
                                              .dump());
  write_text_file(folder / "preprocessor_config.json", Json{{"size", {{"height", 1080}, {"width", 1920}}},
                                                            {"patch_size", {{"height", 30}, {"width", 30}}},
                                                            {"image_mean", 0.5},
                                                            {"image_std", 0.5}}
                                                           .dump());
  // One dimension per token: where the embedding of a token is 1, the row of its follower in the head is 1.
  Tensor embed = filled({vocab_size, width}, 0.0F), head = filled({vocab_size, width}, 0.0F);
  std::vector<std::string> chain = {"<0x04>"};
  chain.insert(chain.end(), answer.begin(), answer.end());
  chain.push_back("|ENDOFTEXT|");
  for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
    embed.f32()[id_of(chain[i]) * width + static_cast<std::int64_t>(i)] = 1.0F;
    head.f32()[id_of(chain[i + 1]) * width + static_cast<std::int64_t>(i)] = 1.0F;
  }
  const std::string lm = "language_model.model.", layer = lm + "layers.0.";
  const std::vector<TensorSpec> zeros = {
      {"vision_embed_tokens.weight", DType::kF32, {width, 2700}},
      {"vision_embed_tokens.bias", DType::kF32, {width}},
      {layer + "input_layernorm.weight", DType::kF32, {width}},
      {layer + "input_layernorm.bias", DType::kF32, {width}},
      {layer + "post_attention_layernorm.weight", DType::kF32, {width}},
      {layer + "post_attention_layernorm.bias", DType::kF32, {width}},
      {layer + "self_attn.query_key_value.weight", DType::kF32, {3 * width, width}},
      {layer + "self_attn.query_key_value.bias", DType::kF32, {3 * width}},
      {layer + "self_attn.dense.weight", DType::kF32, {width, width}},
      {layer + "self_attn.dense.bias", DType::kF32, {width}},
      {layer + "mlp.dense_h_to_4h.weight", DType::kF32, {kFeedForward, width}},
      {layer + "mlp.dense_h_to_4h.bias", DType::kF32, {kFeedForward}},
      {layer + "mlp.dense_4h_to_h.weight", DType::kF32, {width, kFeedForward}},
      {layer + "mlp.dense_4h_to_h.bias", DType::kF32, {width}},
      {lm + "final_layernorm.bias", DType::kF32, {width}}};
  std::vector<TensorSpec> specs = zeros;
  specs.push_back({lm + "final_layernorm.weight", DType::kF32, {width}});
  specs.push_back({lm + "embed_tokens.weight", DType::kF32, embed.shape()});
  specs.push_back({"language_model.lm_head.weight", DType::kF32, head.shape()});
  SafetensorsWriter writer(folder / "model.safetensors", specs);
  for (const TensorSpec& spec : zeros) writer.append(filled(spec.shape, 0.0F).view());
  writer.append(filled({width}, 1.0F).view());
  writer.append(embed.view());
  writer.append(head.view());
  writer.finish();
}

/// Tensors of a decoder, as a checkpoint names them.
struct DecoderNames {
  std::string embedding, head, norm;
  std::vector<std::string> outputs;  // ends of the names of the matrices that write to the residual stream
};

/// Changes a model.safetensors of float16 or float32 (untied head, RMSNorm) in place, so that chain[i + 1]
/// follows chain[i]. Each id at most once.
inline void make_decoder_follow(const std::filesystem::path& file, const DecoderNames& names,
                                const std::vector<std::int32_t>& chain) {
  std::string bytes = read_text_file(file, 1U << 30);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  const Json header = parse_json(std::string_view(bytes).substr(8, header_bytes), file.string());
  const auto put = [&](const Json& tensor, std::size_t index, float value) {
    const bool is_half = tensor.at("dtype") == "F16";
    const std::uint16_t half = value == 1.0F ? 0x3C00 : 0;
    char* at = bytes.data() + 8 + header_bytes + tensor.at("data_offsets")[0].get<std::size_t>() +
               index * (is_half ? 2 : 4);
    is_half ? std::memcpy(at, &half, 2) : std::memcpy(at, &value, 4);
  };
  const auto fill = [&](const Json& tensor, float value) {
    std::size_t n = 1;
    for (const Json& size : tensor.at("shape")) n *= size.get<std::size_t>();
    for (std::size_t i = 0; i < n; ++i) put(tensor, i, value);
  };
  for (const auto& [name, tensor] : header.items())
    for (const std::string& output : names.outputs)
      if (name.ends_with(output) && name.find("visual") == std::string::npos) fill(tensor, 0.0F);
  fill(header.at(names.embedding), 0.0F);
  fill(header.at(names.head), 0.0F);
  fill(header.at(names.norm), 1.0F);
  const auto width = header.at(names.embedding).at("shape")[1].get<std::size_t>();
  for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
    put(header.at(names.embedding), static_cast<std::size_t>(chain[i]) * width + i, 1.0F);
    put(header.at(names.head), static_cast<std::size_t>(chain[i + 1]) * width + i, 1.0F);
  }
  write_text_file(file, bytes);
}

}  // namespace triptych::test

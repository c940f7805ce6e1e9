#include "api/load_options.h"

#include "base/error.h"
#include "tensor/quant_format.h"

namespace triptych::api {
namespace {

constexpr const char* kComputableFormats =
    "int8, int4 or nf4 with :g32, :g64, :g128 or :channel; int4 also with :sym, :absmax, :half or :asym, "
    ":bf16 "
    "(scales) and :two-level";

bool is_computable(const QuantFormat& format) {
  return format.code == QuantCode::kInt8 || format.code == QuantCode::kNf4 ||
         (format.code == QuantCode::kInt4 && format.scale_dtype != DType::kF32);
}

// What the backend can multiply, out of all that QuantFormat can name.
std::optional<QuantFormat> parse_quantization(std::string_view name, const std::string& word) {
  if (!word.starts_with("int") && !word.starts_with("nf") && !word.starts_with("fp8")) return std::nullopt;
  QuantFormat format;
  try {
    format = QuantFormat::parse(word);
  } catch (const triptych::Error& error) {
    throw error.with_context(name);
  }
  for (const std::int64_t n : {0, 32, 64, 128})
    if (format.group_size == n && is_computable(format)) return format;
  fail(triptych::ErrorCode::kUnsupported, "{}: \"{}\" cannot be computed with; expected {}", name, word,
       kComputableFormats);
}

bool is_dtype_word(const std::string& word) {
  return word == "auto" || word == "fp32" || word == "fp16" || word == "bf16";
}

// Whether `word` is `yes`; nothing for "auto". Throws for what is neither of them nor `no`.
std::optional<bool> choice(const char* option, const std::string& word, std::string_view yes,
                           std::string_view no) {
  if (word == "auto") return std::nullopt;
  if (word != yes && word != no)
    fail(triptych::ErrorCode::kInvalidArgument, "ModelOptions::{}: expected auto, {} or {}, got \"{}\"",
         option, no, yes, word);
  return word == yes;
}

}  // namespace

LoadOptions to_load_options(const ModelOptions& options) {
  constexpr int kMaxThreads = 4096;
  if (options.n_threads < 0 || options.n_threads > kMaxThreads)
    fail(triptych::ErrorCode::kInvalidArgument, "ModelOptions::n_threads: expected 0 to {}, got {}",
         kMaxThreads, options.n_threads);
  LoadOptions out;
  out.n_threads = options.n_threads;
  out.pin_threads = options.pin_threads;
  set_weight_types(out, options.weights, options.vision_weights, options.lm_head);
  out.exact_groups = options.exact_groups;
  out.batch_invariant = options.batch_invariant;
  out.bf16_activations = choice("activations", options.activations, "bf16", "fp32").value_or(false);
  out.int8_vision_attention = choice("vision_attention", options.vision_attention, "int8", "fp32");
  out.static_vision_inputs = choice("vision_activations", options.vision_activations, "static", "dynamic");
  out.check_numerics = options.check_numerics;
  out.vision_tower = options.vision_tower;
  out.tie_word_embeddings = options.tie_word_embeddings;
  if (out.weight_dtype || out.weight_formats.any()) out.progress = options.progress;
  return out;
}

std::optional<DType> parse_dtype(const std::string& name) {
  if (name == "auto") return std::nullopt;
  if (name == "fp32") return DType::kF32;
  if (name == "fp16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  fail(triptych::ErrorCode::kInvalidArgument, "expected auto, fp32, fp16 or bf16, got \"{}\"", name);
}

void set_weight_types(LoadOptions& options, const std::string& weights, const std::string& vision_weights,
                      const std::string& lm_head, const WeightTypeNames& names) {
  WeightFormats& formats = options.weight_formats;
  formats.language = parse_quantization(names.weights, weights);
  if (!formats.language) {
    if (!is_dtype_word(weights))
      fail(triptych::ErrorCode::kInvalidArgument,
           "{}: expected auto, fp32, fp16, bf16, int8 or int4[:gN|:channel][:sym|:asym], got \"{}\"",
           names.weights, weights);
    options.weight_dtype = parse_dtype(weights);
  }
  const auto part = [&](std::string_view name, const std::string& word) -> std::optional<QuantFormat> {
    if (word.empty()) return formats.language ? std::optional(QuantFormat::parse("int8")) : std::nullopt;
    if (word == "auto") return std::nullopt;
    if (auto format = parse_quantization(name, word)) return format;
    fail(triptych::ErrorCode::kInvalidArgument, "{}: expected auto, int8 or int4..., got \"{}\"", name, word);
  };
  formats.vision = part(names.vision_weights, vision_weights);
  formats.lm_head = part(names.lm_head, lm_head);
}

}  // namespace triptych::api

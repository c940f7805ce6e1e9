// A model that was loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "triptych/export.h"
#include "triptych/sampling.h"

namespace triptych::api {

/// The words are those of the flags of `triptych run`.
struct ModelOptions {
  int n_threads = 0;         // of computations; 0: all processors that the process may use
  bool pin_threads = false;  // bind each to one processor
  /// "auto" (as stored), "fp32", "fp16" or "bf16", or a type to quantize to while loading: "int8",
  /// "int4[:g32|:g64|:g128|:channel][:sym|:asym][:bf16][:two-level]", "nf4[:g...]".
  std::string weights = "auto";
  /// The same for tower and projector, and for the output layer, with quantized types or "auto"; empty: int8
  /// when `weights` is quantized, else as `weights`.
  std::string vision_weights = {};
  std::string lm_head = {};
  /// Products of prompts and pictures with bf16 weights: activations as "fp32" ("auto"), or rounded to
  /// "bf16", faster with AVX512-BF16.
  std::string activations = "auto";
  /// Attention of the tower in "fp32" or "int8"; "auto": int8 beside quantized vision weights.
  std::string vision_attention = "auto";
  /// int8 activations of the tower with a scale a row ("dynamic"), or with the parameters that a calibration
  /// stored ("static"); "auto": static where they are stored.
  std::string vision_activations = "auto";
  bool exact_groups = false;    // int4: multiply prompts with the groups' own scales, slower
  bool check_numerics = false;  // steps throw Error at the first infinity or NaN and name its layer; slower
  /// Use the token embedding as output layer though the checkpoint does not say so.
  bool tie_word_embeddings = false;
  /// An answer has the same bits alone, beside any others, in any cut of its prompt, and with prefixes and
  /// pictures kept from earlier requests; "activations" has no effect then.
  bool batch_invariant = false;
  /// Checkpoint directory of a CLIP tower, for original LLaVA-1.5 checkpoints, which hold none.
  std::string vision_tower = {};
  /// Called by open() while weights are converted or quantized, with bytes of the checkpoint; may be empty.
  std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)> progress = {};
};

/// Weights, tokenizer, chat template and backend. Immutable; copies share it, and any thread may use it.
class TRIPTYCH_API Model {
 public:
  /// Opens a checkpoint directory as published (config.json, weights, tokenizer) or as `triptych convert`
  /// wrote it. Weights stay mapped and are used in place where possible. Throws Error: kNotFound, kIo,
  /// kInvalidFile, kUnsupported (an architecture of another kind, or options that do not fit),
  /// kInvalidArgument (an option's word, named), kOutOfMemory.
  static Model open(const std::string& directory, const ModelOptions& options = {});

  Model(const Model& other) noexcept;
  Model& operator=(const Model& other) noexcept;
  ~Model();

  /// As config.json names it, e.g. "LlavaForConditionalGeneration".
  const std::string& architecture() const noexcept;
  /// Tokens of prompt and answer together that the model was trained for.
  std::int64_t max_context_tokens() const noexcept;
  /// Rows of the output layer; token ids are below.
  std::int64_t vocab_size() const noexcept;
  /// Pictures that a prompt may hold; -1: no limit of the model's own.
  int max_images() const noexcept;
  bool takes_videos() const noexcept;
  /// Throws Error(kUnsupported) that names models with videos when this one takes none.
  void check_takes_videos() const;
  /// Whether MediaOptions change anything.
  bool takes_pixel_limits() const noexcept;
  /// Whether answers may name boxes (Result::regions).
  bool names_regions() const noexcept;
  /// What generation_config.json says: sampling only when it says do_sample, greedy otherwise.
  const SamplingParams& default_sampling() const noexcept;
  /// Throws Error(kInvalidArgument) naming a field of `sampling` that is out of range.
  void check_sampling(const SamplingParams& sampling) const;
  /// A token as the vocabulary writes it; empty for an id outside [0, vocab_size) or without a name.
  std::string token(std::int32_t id) const;

 private:
  struct Impl;
  friend struct Access;
  explicit Model(std::shared_ptr<Impl> impl) noexcept;
  std::shared_ptr<Impl> impl_;
};

}  // namespace triptych::api

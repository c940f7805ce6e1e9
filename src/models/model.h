// What a model family is to the rest of the program. A family's file implements Model and registers itself;
// nothing outside that file branches on its name: what other layers must know is data in ModelInfo.
//
// The life of a request: decode_image -> plan_media (arithmetic) -> preprocess (pixels) -> expand_prompt
// (arithmetic)
// -> encode_media (tower) -> forward (language model), the last once a step.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/exec_context.h"
#include "base/fingerprint.h"
#include "base/json.h"
#include "media/image.h"
#include "media/video_sampling.h"
#include "nn/weights.h"
#include "tensor/tensor.h"

namespace triptych {

class ThreadPool;

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
  std::string default_chat_template;          // Jinja source for directories without a template
  int max_images = -1;                        // of one prompt; -1: no limit of the model's own
  bool supports_system_prompt = true;         // else a system message is refused, never dropped
  bool add_special_tokens = true;             // whether the tokenizer's own BOS is wanted
  bool add_special_tokens_with_media = true;  // the same for prompts with pictures
  std::string media_text_tokenizer;  // folder of a second tokenizer whose ids of the user's text go to
                                     // encode_media (InstructBLIP's Q-Former); empty: none
  std::vector<std::string> typeable_specials;  // special tokens a user may type, e.g. "<ref>" of Qwen-VL
  /// Keys and values of a sequence of at most so many tokens do not depend on how long it is, so that a
  /// longer one with the same beginning may keep them. Fewer than the context where the rotary base follows
  /// the length.
  std::int64_t max_shareable_tokens = std::numeric_limits<std::int64_t>::max();
};

/// Sizes of one picture or video as decoded; enough for all arithmetic.
struct MediaMeta {
  int width_px = 0;
  int height_px = 0;
  int n_frames = 1;         // > 1: video
  double frames_per_s = 0;  // of the frames given, video only
  bool is_video = false;
  std::string name = {};  // file name as the user gave it, may be empty; Qwen-VL writes it into the prompt
};

/// Limits a user may override for families with dynamic resolution (0: the model's own).
struct MediaOptions {
  std::int64_t min_pixels = 0;
  std::int64_t max_pixels = 0;
};

/// What becomes of a picture. Pure arithmetic on MediaMeta.
struct MediaPlan {
  MediaMeta meta;
  int resized_width_px = 0;  // what the picture (any-resolution: the tiled canvas) is resized to
  int resized_height_px = 0;
  int grid_t = 1, grid_h = 0, grid_w = 0;  // patch grid as the family counts it
  std::int64_t n_tokens = 0;               // rows encode_media gives
  std::int64_t n_prompt_tokens = 0;        // places it takes in the prompt, separators included
};

/// A picture ready for the tower.
struct MediaItem {
  MediaPlan plan;
  Tensor pixels;  // float32; the shape the reference's processor gives for one picture, without a batch
                  // dimension
  std::vector<std::int32_t> text_ids;  // ids of the user's text, only for families with media_text_tokenizer
  Fingerprint
      fingerprint;  // of what the tower sees beside text_ids; equal items give equal rows; empty: unknown
};

/// Consecutive media rows and where in the prompt they go.
struct MediaRun {
  int media_index = 0;
  std::int64_t first_media_row = 0;
  std::int64_t first_prompt_row = 0;
  std::int64_t n_rows = 0;
};

/// A prompt as the language model sees it.
struct PromptLayout {
  std::vector<std::int32_t> input_ids;  // [T], placeholders expanded
  std::vector<std::int32_t> positions;  // [n_position_axes * T], axis-major
  std::int32_t next_position = 0;       // of the first generated token, on every axis
  std::vector<MediaRun> runs;
};

/// Rows that replace token embeddings in a step.
struct EmbeddingOverride {
  TensorView rows;                        // [n, D] float32
  std::span<const std::int32_t> at_rows;  // [n] rows of the batch
};

/// One step: T tokens of B sequences, one after another.
struct Batch {
  std::span<const std::int32_t> token_ids;  // [T]
  std::span<const std::int32_t> positions;  // [n_position_axes * T], axis-major
  std::span<const KvSequence> sequences;    // [B], rows in order, covering the batch
  std::span<const std::int32_t> kv_slots;   // [T]
  KvCache* kv_cache = nullptr;
  std::span<const EmbeddingOverride> media;
  std::span<const std::int32_t> logit_rows;  // rows whose logits are wanted
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;

  /// Geometry of one picture or video. Throws Error(kInvalidArgument) for sizes the family cannot take,
  /// naming the limit.
  virtual MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const = 0;
  /// Pixels of the planned item from its frames (one for a picture). `pool` may be null.
  virtual Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const = 0;
  /// Replaces placeholders in `ids` (image_token_id or video_token_id, once an item, in order) and gives
  /// positions. Throws Error(kInvalidArgument) with both counts when placeholders and items do not match.
  virtual PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                                     std::span<const MediaPlan> plans) const = 0;

  /// Tower and projector for several items at once -> [sum of n_tokens, hidden_size].
  virtual TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const = 0;
  /// Language model -> logits [n logit rows, vocab_size]. Keys and values of the step are added to
  /// batch.kv_cache.
  virtual TensorView forward(ExecContext& cx, const Batch& batch) const = 0;

  /// Sizes of the weights by part ("vision", "projector", "language"), for reports.
  virtual const PartSizes& part_sizes() const = 0;
};

/// What a factory gets: the configuration files of the directory and its weights.
struct ModelSource {
  JsonView config;  // config.json
  /// preprocessor_config.json, or image_processor of processor_config.json
  std::optional<JsonView> preprocessor = std::nullopt;
  std::optional<JsonView> video_preprocessor = std::nullopt;
  std::optional<JsonView> processor = std::nullopt;  // processor_config.json
  bool tie_word_embeddings = false;                  // tie the output layer though nothing declares it
  /// Id of a token by its content, in the directory's tokenizer; null without one.
  std::function<std::optional<std::int32_t>(std::string_view)> token_id = nullptr;
  WeightProvider* weights = nullptr;
  Backend* backend = nullptr;
};

class ModelRegistry {
 public:
  struct Family {
    std::string name;
    std::vector<std::string> architectures;  // class names in config.json
    /// True when this family is meant; for model types that several families share. Null: the architecture
    /// decides.
    std::function<bool(const JsonView& config)> matches;
    std::function<std::unique_ptr<Model>(const ModelSource&)> load;
    std::string matches_when = {};  // what `matches` asks for, for the message when it does not hold
    bool takes_videos = false;
  };

  /// All families of this build.
  static const ModelRegistry& global();
  void add(Family family) { families_.push_back(std::move(family)); }
  const std::vector<Family>& families() const noexcept { return families_; }
  /// The family of a configuration. Throws Error(kUnsupported) that names the architecture, the nearest and
  /// all supported, or what a supported architecture lacks.
  const Family& find(const JsonView& config) const;

 private:
  std::vector<Family> families_;
};

}  // namespace triptych

// What a model family is to the rest of the program. A family's file implements Model and registers itself;
// nothing outside that file branches on its name: what other layers must know is data in ModelInfo.
//
// The life of a request: decode_image -> plan_media (arithmetic) -> preprocess (pixels) -> expand_prompt
// (arithmetic)
// -> encode_media (tower) -> forward (language model), the last once a step.
#pragma once

#include <algorithm>
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
#include "media/region.h"
#include "media/video_sampling.h"
#include "models/image_tokens.h"
#include "models/model_info.h"
#include "tensor/tensor.h"
#include "weights/weights.h"

namespace triptych {

class ThreadPool;

/// Sizes of one picture or video as decoded; enough for all arithmetic.
struct MediaMeta {
  int width_px = 0;
  int height_px = 0;
  int n_frames = 1;                        // > 1: video
  double frames_per_s = 0;                 // of the frames given, video only
  std::vector<double> frame_times_s = {};  // of each frame; empty: they follow at frames_per_s
  bool is_video = false;
  std::string name = {};  // file name as the user gave it, may be empty; Qwen-VL writes it into the prompt
};

/// What a user wants of pictures and videos otherwise than the model says.
struct MediaOptions {
  // Limits of families with dynamic resolution (0: the model's own).
  std::int64_t min_pixels = 0;
  std::int64_t max_pixels = 0;
  ImageTokenOptions image_tokens = {};
};

/// What becomes of a picture. Pure arithmetic on MediaMeta.
struct MediaPlan {
  MediaMeta meta;
  int resized_width_px = 0;  // what the picture (any-resolution: the tiled canvas) is resized to
  int resized_height_px = 0;
  int grid_t = 1, grid_h = 0, grid_w = 0;  // patch grid as the family counts it
  std::int64_t n_patches = 0;              // rows that go through the tower, those of class tokens included
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
  ImageTokenOptions image_tokens = {};  // how many of its rows stay in the prompt; no affair of the tower's
  /// The pixels were not made, as the rows seemed to be at hand: what to make them of when they are not. Else
  /// null.
  std::shared_ptr<const std::vector<Image>> frames = nullptr;
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
  TensorView rows;                        // [n, W] float32, as encode_media gave them
  std::span<const std::int32_t> at_rows;  // [n] rows of the batch
};

/// One step: T tokens of B sequences, one after another.
struct Batch {
  std::span<const std::int32_t> token_ids;  // [T]
  std::span<const std::int32_t> positions;  // [n_position_axes * T], axis-major
  std::span<const RowLengths> lengths;      // [T]
  std::span<const KvSequence> sequences;    // [B], rows in order, covering the batch
  std::span<const std::int32_t> kv_slots;   // [T]
  KvCache* kv_cache = nullptr;
  std::span<const EmbeddingOverride> media;
  std::span<const std::int32_t> logit_rows;  // rows whose logits are wanted
  /// Layers of the language model that are left out, ascending: h goes past them, and their keys and values
  /// are not written. Then logits of all rows are wanted (drafts, engine/speculation.h).
  std::span<const std::int32_t> skipped_layers = {};

  bool skips(int layer) const {
    return std::binary_search(skipped_layers.begin(), skipped_layers.end(), layer);
  }
};

/// Bytes [begin, end) of a text that stand for tokens of their own, e.g. a box.
struct TypedTag {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<std::int32_t> ids;
};

/// What the first of some tokens of an answer are.
struct AnswerTag {
  bool undecided = false;  // the tokens to come decide
  std::size_t n_ids = 0;   // so many make a tag with this text; 0: the first is ordinary
  std::string text;
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

  /// Tower and projector for several items at once -> [sum of n_tokens, W]. The first hidden_size columns
  /// replace token embeddings; a family may have more, which only its own `forward` reads.
  virtual TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const = 0;
  /// Language model -> logits [n logit rows, vocab_size]. Keys and values of the step are added to
  /// batch.kv_cache.
  virtual TensorView forward(ExecContext& cx, const Batch& batch) const = 0;

  /// What stands in a prompt where the template printed video_placeholder for this video, before the text is
  /// tokenized. It may hold several placeholders, each for a part of the video.
  virtual std::string video_text(const MediaPlan& /*plan*/) const { return info().video_placeholder; }

  /// Tags of a message's text that are no ordinary text, in order. Throws Error(kInvalidArgument) for a tag
  /// that the model has no tokens for.
  virtual std::vector<TypedTag> find_typed_tags(std::string_view /*text*/,
                                                std::span<const MediaPlan> /*plans*/) const {
    return {};
  }
  /// The reverse, for answers: whether `ids` (one at least) begin with a tag.
  virtual AnswerTag read_answer_tag(std::span<const std::int32_t> /*ids*/,
                                    std::span<const MediaPlan> /*plans*/) const {
    return {};
  }
  /// Boxes and points that an answer names, in its order. `text` holds the special tokens. Never throws for
  /// what an answer says: what has not the family's form is text.
  virtual std::vector<Region> find_regions(std::string_view /*text*/, std::span<const std::int32_t> /*ids*/,
                                           std::span<const MediaPlan> /*plans*/) const {
    return {};
  }

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
  BindOptions binding = {};

  /// Binds the model's part `part`, counted in `sizes`.
  Binder binder(PartSizes& sizes, std::string part) const {
    return {*weights, *backend, sizes, std::move(part), binding};
  }
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
    /// model_type of configurations without "architectures", besides the family's name.
    std::vector<std::string> model_types = {};
    /// For directories without preprocessor_config.json (or image_processor in processor_config.json): what
    /// the family makes pictures with then, for a message; nothing where published files always have one, so
    /// that one is missing. Null: no published directory has one, and nothing is missing.
    std::function<std::optional<std::string>(const JsonView& config)> without_preprocessor = nullptr;
  };
  /// For families whose published files always have a preprocessor.
  static std::optional<std::string> needs_preprocessor(const JsonView&) { return std::nullopt; }

  /// All families of this build.
  static const ModelRegistry& global();
  void add(Family family) { families_.push_back(std::move(family)); }
  const std::vector<Family>& families() const noexcept { return families_; }
  /// The family of a configuration, by "architectures" or, without, by "model_type". Throws
  /// Error(kUnsupported) that names the architecture, the nearest and all supported, or what a supported
  /// architecture lacks.
  const Family& find(const JsonView& config) const;

 private:
  const Family& find_by_model_type(const JsonView& config) const;

  std::vector<Family> families_;
};

}  // namespace triptych

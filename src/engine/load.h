// From a checkpoint directory to something that answers: configuration, weights, tokenizer, chat template,
// backend.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "engine/request.h"
#include "engine/sampling.h"
#include "grammar/constraint.h"
#include "io/checkpoint.h"
#include "models/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace triptych {

struct WeightReplacements;

struct LoadOptions {
  /// Makes the backend that computes; empty: the CPU's, by the options below.
  std::function<std::unique_ptr<Backend>()> make_backend = {};
  int n_threads = 0;  // 0: all usable processors
  bool pin_threads = false;
  LinkPolicy links = LinkPolicy::kAllowHubCache;
  std::optional<DType> weight_dtype =
      {};  // kF32, kF16 or kBF16: convert matrices while loading; else as stored
  bool tie_word_embeddings =
      false;  // tie the output layer although the checkpoint neither holds nor declares it
  WeightFormats weight_formats = {};  // quantize while loading; after weight_dtype
  bool batch_invariant = false;       // these three: see CpuPolicy
  bool exact_groups = false;
  bool bf16_activations = false;
  std::optional<bool> int8_vision_attention = {};  // empty: when the tower's weights are quantized
  /// Inputs of the tower's int8 linears are quantized with static parameters: those that the converted
  /// directory holds (empty: when it does), or to `activation_quants` (engine/calibrate.h).
  std::optional<bool> static_vision_inputs = {};
  ActivationQuantMap activation_quants = {};
  /// Stand in for tensors of the checkpoint, by published names (weights/weight_providers.h); may be null.
  std::shared_ptr<const WeightReplacements> replaced_weights = {};
  bool check_numerics = false;  // engines look for infinities and NaN (backend/numerics_check.h)
  /// A CLIP checkpoint whose vision_model.* becomes the tower: the original LLaVA-1.5 checkpoints hold none.
  std::filesystem::path vision_tower = {};
  /// Called while matrices are read, with bytes of the checkpoint.
  std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)> progress = {};
  /// Takes what is prepared instead of memory; see BindOptions. The model cannot be run then.
  WeightSink* sink = nullptr;
};

/// A draft of a model by itself: the model without some of its layers (engine/self_draft.h).
struct SelfDraft {
  std::vector<std::int32_t> skipped_layers;  // ascending; empty: there is none
  double acceptance = 0;  // share of tokens that it found right when it was chosen; 0: unknown
};

class LoadedModel {
 public:
  /// Opens a checkpoint directory. Weights stay mapped and are used in place where the backend can. Throws
  /// Error.
  static std::unique_ptr<LoadedModel> open(const std::filesystem::path& directory,
                                           const LoadOptions& options = {});
  /// A model of published shape with random weights and no tokenizer, for measurements. `config` as in
  /// config.json.
  static std::unique_ptr<LoadedModel> with_random_weights(const Json& config, DType weight_dtype,
                                                          const LoadOptions& options = {});

  /// A model that its caller made, whose weights live in `backend`; without checkpoint and tokenizer.
  static std::unique_ptr<LoadedModel> from_parts(std::unique_ptr<Backend> backend,
                                                 std::unique_ptr<Model> model, bool check_numerics = false);

  const Model& model() const { return *model_; }
  const ModelInfo& info() const { return model_->info(); }
  Backend& backend() { return *backend_; }
  ThreadPool& media_pool() { return *media_pool_; }
  bool checks_numerics() const noexcept { return check_numerics_; }
  bool has_tokenizer() const noexcept { return tokenizer_ != nullptr; }
  const Tokenizer& tokenizer() const;
  const ChatTemplate& chat_template() const;
  /// For constrained answers; made when it is first asked for. Thread-safe. Throws Error(kUnsupported) when
  /// there is no tokenizer, or none whose tokens have bytes of their own.
  TokenMasker& token_masker() const;
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  /// What matrices are quantized to: by LoadOptions, or as they are stored.
  const WeightFormats& weight_formats() const noexcept { return weight_formats_; }
  /// What keys and values are kept as unless something else is asked for: int8 beside quantized weights of
  /// the language model, whose rounding theirs is far below, else float16.
  KvDType auto_kv_dtype() const noexcept { return weight_formats_.language ? KvDType::kInt8 : KvDType::kF16; }
  /// Whether inputs of the tower's linears are quantized with static parameters of a calibration.
  bool has_static_vision_inputs() const noexcept { return static_vision_inputs_; }
  /// Whether `triptych convert` made the directory.
  bool is_packed() const noexcept { return is_packed_; }
  /// Defaults of generation_config.json: sampling only when it says do_sample; greedy otherwise.
  const SamplingParams& generation_defaults() const { return generation_defaults_; }
  const std::vector<std::int32_t>& stop_token_ids() const { return stop_token_ids_; }
  /// Layers that drafts of this model leave out, as config.json says.
  const SelfDraft& self_draft() const noexcept { return self_draft_; }
  /// How answers become text: without special tokens, save those that a user may type, too.
  DecodeOptions answer_decoding() const {
    return {.skip_special_tokens = true, .kept_special_tokens = shown_specials_};
  }
  /// Rows of the vocabulary that mean something: ids from here on are padding.
  std::int64_t n_usable_ids() const;

  /// Of the weights, and of all that decides what is made of pictures: equal in two processes when both make
  /// the same.
  const Fingerprint& fingerprint() const noexcept { return fingerprint_; }

  /// Whether the rows of an item, whose pixels were not made yet, are at hand.
  using HasRows = std::function<bool(const MediaItem&)>;
  /// Renders, tokenizes, plans and preprocesses. Thread-safe. The pixels of items whose rows are at hand are
  /// left for later (MediaItem::frames). Throws Error(kInvalidArgument) for what the model cannot take.
  PreparedRequest prepare(const ChatRequest& request, const HasRows& has_rows = {}) const;
  /// The same from a finished prompt, in which placeholders stand for the media in order. Text is trusted.
  PreparedRequest prepare_prompt(std::string_view prompt, const std::vector<MediaInput>& media,
                                 const MediaOptions& options = {}) const;
  /// The same from token ids, in which image_token_id or video_token_id stands once for each medium.
  PreparedRequest prepare_ids(std::vector<std::int32_t> ids, const std::vector<MediaInput>& media,
                              const MediaOptions& options = {}) const;

 private:
  LoadedModel() = default;
  /// Chooses the provider, and what `source` says about binding.
  std::unique_ptr<WeightProvider> make_weights(const LoadOptions& options, ModelSource& source);
  void load_generation_config();
  struct MediaContext {
    MediaOptions options;
    std::string_view user_text;
    std::string_view cache_salt = {};
    const HasRows* has_rows = nullptr;  // null: they never are
  };
  PreparedRequest prepare_spans(const std::vector<RenderedSpan>& spans, const std::vector<MediaInput>& media,
                                const MediaContext& context) const;
  std::vector<MediaPlan> plan_all(const std::vector<MediaInput>& media, const MediaOptions& options) const;
  /// Expands the token ids and preprocesses the media.
  void complete(PreparedRequest& out, const std::vector<MediaInput>& media, std::span<const MediaPlan> plans,
                const MediaContext& context) const;
  MediaItem prepare_item(const MediaInput& input, const MediaPlan& plan, const MediaContext& context) const;
  std::vector<std::int32_t> tokenize(const std::vector<RenderedSpan>& spans,
                                     std::span<const MediaPlan> plans) const;

  std::unique_ptr<Checkpoint> checkpoint_;
  std::shared_ptr<const Json> preprocessor_, video_preprocessor_, processor_;  // null: no such file
  std::shared_ptr<const Json> own_config_;
  std::unique_ptr<WeightProvider> weights_;
  WeightFormats weight_formats_;
  bool is_packed_ = false;
  bool static_vision_inputs_ = false;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ThreadPool> media_pool_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Tokenizer> media_text_tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  SamplingParams generation_defaults_;
  std::vector<std::int32_t> stop_token_ids_;
  std::vector<std::int32_t> shown_specials_;
  mutable std::mutex token_masker_mutex_;
  mutable std::unique_ptr<TokenMasker> token_masker_;
  bool check_numerics_ = false;
  SelfDraft self_draft_;
  Fingerprint fingerprint_;
};

/// Throws Error(kUnsupported) that names the families with videos when this one has none.
void check_takes_videos(const ModelInfo& info);

}  // namespace triptych

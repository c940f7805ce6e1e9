// Flags that several verbs share. Named as in vLLM, llama.cpp and OpenAI's API.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/public.h"
#include "base/progress.h"
#include "cli/output_file.h"

namespace CLI {
class App;
}

// The inner types, for the verbs that look into the engine; `run` does not.
namespace triptych {
enum class DType : std::uint8_t;
enum class KvDType;
struct EngineOptions;
struct LoadOptions;
struct MediaOptions;
struct SamplingParams;
class LoadedModel;
}  // namespace triptych

namespace triptych::cli {

/// MODEL, --threads, --pin, --huge-pages, --dtype, -v, -q.
struct ModelFlags {
  std::string model;
  int n_threads = 0;
  bool pin = false;
  std::string huge_pages = "advise";
  std::string dtype = "auto";
  int verbosity = 0;
  bool quiet = false;
  std::string vision_weights, lm_head;  // empty: as `dtype`, and int8 beside int4
  bool exact_groups = false;
  bool batch_invariant = false;
  std::string vision_attention = "auto";
  std::string vision_activations = "auto";
  std::string activations = "auto";
  bool check_numerics = false;
  std::string vision_tower;
  bool tie_word_embeddings = false;

  void add_to(CLI::App& app, bool model_required = true);
  /// Only --threads, --pin, --huge-pages, -v and -q.
  void add_machine_flags(CLI::App& app);
  /// Sets the log level and the kind of memory, too. Errors name the flags.
  api::ModelOptions model_options() const;
  LoadOptions load_options() const;
  /// What loading reads, for check_output.
  std::vector<NamedPath> inputs() const;
  /// With a progress bar when weights are quantized or converted.
  std::unique_ptr<LoadedModel> open() const;
  /// The same through the public interface.
  api::Model open_model() const;
};

/// The progress bar of loading, for LoadOptions::progress; silent with --quiet.
class LoadProgress {
 public:
  explicit LoadProgress(const ModelFlags& flags) : quiet_(flags.quiet) {}
  void operator()(std::int64_t done_bytes, std::int64_t total_bytes);
  void erase() { bar_.reset(); }

 private:
  bool quiet_;
  std::optional<ProgressBar> bar_;
};

/// --enforce-eager: sets `replay_steps` to false.
void add_enforce_eager(CLI::App& app, bool& replay_steps);

/// --kv-cache-dtype; `when_auto` is what "auto" means; empty: LoadedModel::auto_kv_dtype().
void add_kv_cache_dtype(CLI::App& app, std::string& to, std::optional<KvDType> when_auto = {});

/// --ctx-size, --kv-cache-dtype.
struct ContextFlags {
  std::int64_t ctx_size_tokens = 0;
  std::string kv_cache_dtype = "auto";

  /// `when_auto`: the type that "auto" stands for; empty: LoadedModel::auto_kv_dtype().
  void add_to(CLI::App& app, std::optional<KvDType> when_auto = {});
  EngineOptions engine_options(std::optional<KvDType> when_auto = {}) const;
  /// Throws Error(kInvalidArgument) when --ctx-size is more than the model was trained for.
  void check(std::int64_t max_context_tokens) const;
};

/// --temperature and all other ways to choose the next token. What is not given keeps the model's default.
struct SamplingFlags {
  std::optional<float> temperature, top_p, min_p, typical_p;
  std::optional<int> top_k;
  std::optional<float> repetition_penalty, frequency_penalty, presence_penalty;
  std::vector<std::string> logit_bias;
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> max_tokens;
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_token_ids;
  bool ignore_eos = false;
  std::optional<int> n_logprobs;
  std::optional<int> n, best_of;

  /// Sequences of a prompt.
  int n_sequences() const noexcept { return std::max(n.value_or(1), best_of.value_or(0)); }
  void add_to(CLI::App& app);
  /// What can be known without the model. Throws Error(kInvalidArgument) naming what is out of range.
  void check() const;
  /// Throws Error(kInvalidArgument) for a --logit-bias that is not ID=BIAS.
  SamplingParams over(const SamplingParams& defaults) const;
  api::SamplingParams over(const api::SamplingParams& defaults) const;
};

/// --min-pixels, --max-pixels.
struct MediaFlags {
  api::MediaOptions options;
  MediaOptions inner_options() const;
  void add_to(CLI::App& app);
  /// --image-tokens-keep and --image-tokens-selection, for commands that answer.
  void add_image_tokens_to(CLI::App& app);
  /// What can be known without the model. Throws Error(kInvalidArgument).
  void check_values() const;
  /// Throws Error(kUnsupported) naming a flag that was given and would change nothing for this model.
  void check(const std::string& architecture, bool takes_pixel_limits) const;
};

/// How the weights of a loaded model are kept, in words of --weights, --vision-weights and --lm-head: what a
/// converted directory holds; of another what was asked for.
struct WeightWords {
  std::string weights, vision_weights, lm_head;
};
WeightWords weight_words(const ModelFlags& flags, const LoadedModel& model);

/// "fp32", "fp16" or "bf16"; nothing for "auto". Throws Error(kInvalidArgument) for another word.
std::optional<DType> parse_dtype(const std::string& name);
/// The words of parse_dtype.
std::string dtype_word(DType dtype);

}  // namespace triptych::cli

#include "cli/flags.h"

#include <functional>

#include <CLI/CLI.hpp>

#include "api/load_options.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory_pool.h"
#include "cli/help_tree.h"
#include "engine/engine.h"
#include "engine/packed_directory.h"

namespace triptych::cli {
namespace {

const std::vector<std::string> kKvDTypeWords = {"auto", "fp32", "fp16",     "bf16",
                                                "int8", "fp8",  "fp8_e4m3", "int4"};

// Offered by completions; parts may follow.
const char* const kWeightTypes = "TYPE:{auto,fp32,fp16,bf16,int8,int4,nf4}";

}  // namespace

std::optional<DType> parse_dtype(const std::string& name) { return api::parse_dtype(name); }

std::string dtype_word(DType dtype) {
  return dtype == DType::kF32    ? "fp32"
         : dtype == DType::kF16  ? "fp16"
         : dtype == DType::kBF16 ? "bf16"
                                 : "other";
}

WeightWords weight_words(const ModelFlags& flags, const LoadedModel& model) {
  if (!model.is_packed()) return {flags.dtype, flags.vision_weights, flags.lm_head};
  const auto stored = PackedConfig::parse(model.checkpoint().config_view().at("quantization_config"));
  const std::string plain = stored.dtype ? dtype_word(*stored.dtype) : "auto";
  const auto word = [&](const std::optional<QuantFormat>& format) {
    return format ? format->to_string() : plain;
  };
  return {word(stored.formats.language), word(stored.formats.vision), word(stored.formats.lm_head)};
}

void ModelFlags::add_machine_flags(CLI::App& app) {
  app.add_option("--threads,-t", n_threads, "Threads to compute with")
      ->check(CLI::Range(1, 4096).description(""))
      ->type_name("N")
      ->default_str("all processors this process may use")
      ->group(help_group::kMachine);
  app.add_flag("--pin", pin, "Bind each thread to one processor")->group(help_group::kMachine);
  app.add_option("--huge-pages", huge_pages,
                 "Memory in pages of 2 MiB: none, where the system grants them (advise), or only such as the "
                 "administrator reserved (vm.nr_hugepages)")
      ->check(CLI::IsMember(std::vector<std::string>{"none", "advise", "reserved"}))
      ->type_name("KIND")
      ->default_str(huge_pages)
      ->group(help_group::kMachine);
  app.add_flag("-v,--verbose", verbosity, "Say more on stderr; -vv says all")->group(help_group::kOutput);
  app.add_flag("-q,--quiet", quiet, "No progress bar while loading")->group(help_group::kOutput);
}

void ModelFlags::add_to(CLI::App& app, bool model_required) {
  auto* option = app.add_option("MODEL", model, "Checkpoint directory: config.json, weights, tokenizer")
                     ->type_name("DIR");
  if (model_required) option->required();
  const auto add_word = [&](const char* name, std::string& to, const char* description, const char* type) {
    return app.add_option(name, to, description)
        ->type_name(type)
        ->default_str(to)
        ->group(help_group::kWeights);
  };
  const auto add_choice = [&](const char* name, std::string& to, const char* description, const char* type,
                              const std::vector<std::string>& words) {
    add_word(name, to, description, type)->check(CLI::IsMember(words));
  };
  add_word("--weights,--dtype", dtype,
           "Keep weights as auto (as stored), fp32, fp16 or bf16, or quantize them while loading: "
           "int4[:g32|:g64|:g128|:channel][:sym|:asym][:bf16][:two-level], int8, or nf4 and int8 in groups "
           "(slower)",
           kWeightTypes);
  add_word("--vision-weights", vision_weights, "The same for tower and projector",
           "TYPE:{auto,int8,int4,nf4}")
      ->default_str("as --weights; beside int4 int8");
  add_word("--lm-head", lm_head, "The same for the output layer", "TYPE:{auto,int8,int4,nf4}")
      ->default_str("as --weights; beside int4 int8");
  add_choice("--vision-attention", vision_attention,
             "Attention of the tower in fp32 or int8 (auto: int8 beside quantized vision weights)", "TYPE",
             {"auto", "fp32", "int8"});
  add_choice("--vision-activations", vision_activations,
             "8-bit activations of the tower with a scale a row (dynamic), or rounded to ranges that "
             "`convert --calibrate` stored (static); auto: static where they are stored",
             "KIND", {"auto", "dynamic", "static"});
  add_choice("--activations", activations,
             "Products of prompts and pictures with bf16 weights: activations as fp32 (auto), or rounded to "
             "bf16, twice as fast with AVX512-BF16",
             "TYPE", {"auto", "fp32", "bf16"});
  app.add_flag("--exact-groups", exact_groups,
               "int4: multiply prompts with the groups' own scales, slower; else panels become 8-bit first")
      ->group(help_group::kWeights);
  app.add_flag(
         "--batch-invariant", batch_invariant,
         "The same bits of an answer alone, beside others, and with what earlier requests left in caches; "
         "slower prompts")
      ->group(help_group::kMachine);
  app.add_flag("--check-numerics", check_numerics,
               "Stop at the first infinity or NaN among the activations and name its layer; slower")
      ->group(help_group::kMachine);
  add_word("--vision-tower", vision_tower,
           "Checkpoint of the vision tower, for original LLaVA-1.5 checkpoints, which hold none", "DIR");
  app.add_flag("--tie-word-embeddings", tie_word_embeddings,
               "Use the token embedding as output layer though the checkpoint does not say so")
      ->group(help_group::kWeights);
  add_machine_flags(app);
}

api::ModelOptions ModelFlags::model_options() const {
  if (verbosity > 0) set_log_level(verbosity > 1 ? LogLevel::kDebug : LogLevel::kInfo);
  MemoryPool::process().set_huge_pages(huge_pages == "none"       ? HugePages::kNone
                                       : huge_pages == "reserved" ? HugePages::kReserved
                                                                  : HugePages::kAdvise);
  LoadOptions checked;
  api::set_weight_types(
      checked, dtype, vision_weights, lm_head,
      {.weights = "--weights", .vision_weights = "--vision-weights", .lm_head = "--lm-head"});
  return {.n_threads = n_threads,
          .pin_threads = pin,
          .weights = dtype,
          .vision_weights = vision_weights,
          .lm_head = lm_head,
          .activations = activations,
          .vision_attention = vision_attention,
          .vision_activations = vision_activations,
          .exact_groups = exact_groups,
          .check_numerics = check_numerics,
          .tie_word_embeddings = tie_word_embeddings,
          .batch_invariant = batch_invariant,
          .vision_tower = vision_tower};
}

LoadOptions ModelFlags::load_options() const { return api::to_load_options(model_options()); }

std::vector<NamedPath> ModelFlags::inputs() const {
  return {{"MODEL", model}, {"--vision-tower", vision_tower}};
}

void LoadProgress::operator()(std::int64_t done_bytes, std::int64_t total_bytes) {
  constexpr std::int64_t kMegabyte = 1000 * 1000;
  if (quiet_) return;
  if (!bar_) bar_.emplace("weights, MB", total_bytes / kMegabyte);
  bar_->update(done_bytes / kMegabyte);
}

api::Model ModelFlags::open_model() const {
  api::ModelOptions options = model_options();
  LoadProgress bar(*this);
  options.progress = std::ref(bar);
  return api::Model::open(model, options);
}

std::unique_ptr<LoadedModel> ModelFlags::open() const {
  api::ModelOptions options = model_options();
  LoadProgress bar(*this);
  options.progress = std::ref(bar);
  return LoadedModel::open(model, api::to_load_options(options));
}

void add_kv_cache_dtype(CLI::App& app, std::string& to, std::optional<KvDType> when_auto) {
  app.add_option("--kv-cache-dtype", to,
                 fmt::format("Keep keys and values as auto ({}), fp32, fp16, bf16, int8, fp8 or int4",
                             when_auto ? to_string(*when_auto) : "int8 beside quantized weights, else fp16"))
      ->check(CLI::IsMember(kKvDTypeWords))
      ->type_name("TYPE")
      ->default_str(to)
      ->group(help_group::kContext);
}

void add_enforce_eager(CLI::App& app, bool& replay_steps) {
  app.add_flag_callback(
         "--enforce-eager", [&replay_steps] { replay_steps = false; },
         "Run every step through the model's code, none from a record; the answers are the same")
      ->group(help_group::kMachine);
}

void ContextFlags::add_to(CLI::App& app, std::optional<KvDType> when_auto) {
  app.add_option("--ctx-size,--max-model-len,-c", ctx_size_tokens, "Tokens of prompt and answer together")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32).description(""))
      ->type_name("N")
      ->default_str("what the model was trained for")
      ->group(help_group::kContext);
  add_kv_cache_dtype(app, kv_cache_dtype, when_auto);
}

EngineOptions ContextFlags::engine_options(std::optional<KvDType> when_auto) const {
  EngineOptions out;
  out.max_context_tokens = ctx_size_tokens;
  const std::optional<KvDType> asked = parse_kv_dtype(kv_cache_dtype);
  out.kv_cache_dtype = asked ? asked : when_auto;
  return out;
}

void ContextFlags::check(std::int64_t max_context_tokens) const {
  if (ctx_size_tokens > max_context_tokens)
    fail(ErrorCode::kInvalidArgument, "--ctx-size {}: the model was trained for {} tokens", ctx_size_tokens,
         max_context_tokens);
}

MediaOptions MediaFlags::inner_options() const {
  return {.min_pixels = options.min_pixels,
          .max_pixels = options.max_pixels,
          .image_tokens = {.keep = options.image_tokens_keep,
                           .selection = parse_image_token_selection(options.image_tokens_selection)}};
}

void MediaFlags::add_to(CLI::App& app) {
  const auto range = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description("");
  const auto add = [&](const char* name, std::int64_t& to, const char* description) {
    app.add_option(name, to, description)
        ->check(range)
        ->type_name("N")
        ->default_str("the model's")
        ->group(help_group::kMedia);
  };
  add("--min-pixels", options.min_pixels,
      "Enlarge smaller pictures to this many pixels (models of dynamic resolution)");
  add("--max-pixels", options.max_pixels,
      "Shrink larger pictures to this many pixels (models of dynamic resolution)");
}

void MediaFlags::add_image_tokens_to(CLI::App& app) {
  app.add_option(
         "--image-tokens-keep", options.image_tokens_keep,
         "Keep this share of the tokens of each picture, from more than 0 to 1; less memory and time, less "
         "accuracy")
      ->check(CLI::Range(1e-6, 1.0).description(""))
      ->type_name("SHARE")
      ->default_str("1")
      ->group(help_group::kMedia);
  app.add_option(
         "--image-tokens-selection", options.image_tokens_selection,
         "By what they are chosen: diversity (before the language model), key-norm-low, key-norm-high or "
         "attention (once they are in the cache)")
      ->check(CLI::IsMember({"diversity", "key-norm-low", "key-norm-high", "attention"}).description(""))
      ->type_name("WORD")
      ->default_str("diversity")
      ->group(help_group::kMedia);
}

void MediaFlags::check_values() const {
  if (options.min_pixels > 0 && options.max_pixels > 0 && options.min_pixels > options.max_pixels)
    fail(ErrorCode::kInvalidArgument, "--min-pixels {} is more than --max-pixels {}", options.min_pixels,
         options.max_pixels);
}

void MediaFlags::check(const std::string& architecture, bool takes_pixel_limits) const {
  if (takes_pixel_limits) return;
  const char* flag = options.max_pixels > 0 ? "--max-pixels" : "--min-pixels";
  if (options.max_pixels > 0 || options.min_pixels > 0)
    fail(ErrorCode::kUnsupported, "{}: {} has no limits on pixels, models of dynamic resolution do", flag,
         architecture);
}

}  // namespace triptych::cli

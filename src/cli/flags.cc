#include "cli/flags.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include <CLI/CLI.hpp>

#include "api/load_options.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory_pool.h"
#include "engine/engine.h"
#include "engine/packed_directory.h"

namespace triptych::cli {
namespace {

// "128=-1.5" -> (128, -1.5).
std::pair<std::int32_t, float> parse_bias(const std::string& text) {
  const std::size_t at = text.find('=');
  std::int32_t id = 0;
  double bias = 0;
  const char* end = text.data() + text.size();
  if (at != std::string::npos) {
    const auto left = std::from_chars(text.data(), text.data() + at, id);
    const auto right = std::from_chars(text.data() + at + 1, end, bias);
    if (left.ec == std::errc() && left.ptr == text.data() + at && right.ec == std::errc() && right.ptr == end)
      return {id, static_cast<float>(bias)};
  }
  fail(ErrorCode::kInvalidArgument, "--logit-bias: expected ID=BIAS such as 128=-100, got \"{}\"", text);
}

template <typename T>
void take(const std::optional<T>& given, T& value) {
  if (given) value = *given;
}

const std::vector<std::string> kKvDTypeWords = {"auto", "fp32", "fp16",     "bf16",
                                                "int8", "fp8",  "fp8_e4m3", "int4"};

// The parser itself takes -1 for the largest number, and wraps beyond it.
CLI::Validator is_unsigned_64() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        std::uint64_t value = 0;
        const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
        return whole ? "" : "expected a whole number from 0 to 18446744073709551615, got " + text;
      },
      "");
}

// Where what is allowed is said elsewhere: the parser's own message does not say what was expected.
template <typename T>
CLI::Validator is_a(const char* what) {
  return CLI::Validator(
      [what](const std::string& text) -> std::string {
        T value{};
        const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
        return whole ? "" : fmt::format("expected {}, got \"{}\"", what, text);
      },
      "");
}
CLI::Validator is_number() { return is_a<double>("a number"); }

// The engine's parameters or those of the public interface.
template <typename Params>
Params merged(const SamplingFlags& flags, Params out) {
  take(flags.temperature, out.temperature);
  take(flags.top_k, out.top_k);
  take(flags.top_p, out.top_p);
  take(flags.min_p, out.min_p);
  take(flags.typical_p, out.typical_p);
  take(flags.repetition_penalty, out.repetition_penalty);
  take(flags.frequency_penalty, out.frequency_penalty);
  take(flags.presence_penalty, out.presence_penalty);
  take(flags.max_tokens, out.max_tokens);
  take(flags.n_logprobs, out.n_logprobs);
  if (flags.seed) out.seed = flags.seed;
  for (const std::string& bias : flags.logit_bias) out.logit_bias.push_back(parse_bias(bias));
  out.stop.insert(out.stop.end(), flags.stop.begin(), flags.stop.end());
  out.stop_token_ids.insert(out.stop_token_ids.end(), flags.stop_token_ids.begin(),
                            flags.stop_token_ids.end());
  out.ignore_eos = out.ignore_eos || flags.ignore_eos;
  return out;
}

// Offered by completions; parts may follow.
const char* const kWeightTypes = "TYPE:{auto,fp32,fp16,bf16,int8,int4,nf4}";

}  // namespace

CLI::Validator is_within(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) -> std::string {
        double value = 0;
        const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
        return whole && value >= low && value <= high
                   ? ""
                   : fmt::format("expected a number from {} to {}, got {}", low, high, text);
      },
      "");
}

CLI::Validator is_not_empty() {
  return CLI::Validator(
      [](const std::string& text) -> std::string { return text.empty() ? "expected a value, got \"\"" : ""; },
      "");
}

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
  app.add_option("--threads,-t", n_threads,
                 "Threads to compute with (default: all processors this process may use)")
      ->check(CLI::Range(1, 4096).description(""))
      ->type_name("N");
  app.add_flag("--pin", pin, "Bind each thread to one processor");
  app.add_option("--huge-pages", huge_pages,
                 "Memory in pages of 2 MiB: none, where the system grants them (advise), or only such as the "
                 "administrator reserved (vm.nr_hugepages)")
      ->check(CLI::IsMember(std::vector<std::string>{"none", "advise", "reserved"}))
      ->type_name("KIND");
  app.add_flag("-v,--verbose", verbosity, "Say more on stderr; -vv says all");
  app.add_flag("-q,--quiet", quiet, "No progress bar while loading");
}

void ModelFlags::add_to(CLI::App& app, bool model_required) {
  auto* option = app.add_option("MODEL", model, "Checkpoint directory: config.json, weights, tokenizer")
                     ->type_name("DIR");
  if (model_required) option->required();
  app.add_option(
         "--weights,--dtype", dtype,
         "Keep weights as auto (as stored), fp32, fp16 or bf16, or quantize them while loading: "
         "int4[:g32|:g64|:g128|:channel][:sym|:asym][:bf16][:two-level], int8, or nf4 and int8 in groups "
         "(slower)")
      ->type_name(kWeightTypes);
  app.add_option("--vision-weights", vision_weights, "The same for tower and projector (beside int4: int8)")
      ->type_name("TYPE:{auto,int8,int4,nf4}");
  app.add_option("--lm-head", lm_head, "The same for the output layer (beside int4: int8)")
      ->type_name("TYPE:{auto,int8,int4,nf4}");
  app.add_option("--vision-attention", vision_attention,
                 "Attention of the tower in fp32 or int8 (auto: int8 beside quantized vision weights)")
      ->check(CLI::IsMember(std::vector<std::string>{"auto", "fp32", "int8"}))
      ->type_name("TYPE");
  app.add_option("--vision-activations", vision_activations,
                 "8-bit activations of the tower with a scale a row (dynamic), or rounded to ranges that "
                 "`convert --calibrate` stored (static); auto: static where they are stored")
      ->check(CLI::IsMember(std::vector<std::string>{"auto", "dynamic", "static"}))
      ->type_name("KIND");
  app.add_option("--activations", activations,
                 "Products of prompts and pictures with bf16 weights: activations as fp32 (auto), or rounded "
                 "to bf16, twice "
                 "as fast with AVX512-BF16")
      ->check(CLI::IsMember(std::vector<std::string>{"auto", "fp32", "bf16"}))
      ->type_name("TYPE");
  app.add_flag("--exact-groups", exact_groups,
               "int4: multiply prompts with the groups' own scales, slower; else panels become 8-bit first");
  app.add_flag("--check-numerics", check_numerics,
               "Stop at the first infinity or NaN among the activations and name its layer; slower");
  app.add_option("--vision-tower", vision_tower,
                 "Checkpoint of the vision tower, for original LLaVA-1.5 checkpoints, which hold none")
      ->type_name("DIR");
  app.add_flag("--tie-word-embeddings", tie_word_embeddings,
               "Use the token embedding as output layer though the checkpoint does not say so");
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
      ->type_name("TYPE");
}

void add_enforce_eager(CLI::App& app, bool& replay_steps) {
  app.add_flag_callback(
      "--enforce-eager", [&replay_steps] { replay_steps = false; },
      "Run every step through the model's code, none from a record; the answers are the same");
}

void ContextFlags::add_to(CLI::App& app, std::optional<KvDType> when_auto) {
  app.add_option("--ctx-size,--max-model-len,-c", ctx_size_tokens,
                 "Tokens of prompt and answer together (default: what the model was trained for)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32).description(""))
      ->type_name("N");
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

void SamplingFlags::add_to(CLI::App& app) {
  const auto group = [](CLI::Option* option, const char* type) {
    option->group("Sampling")->type_name(type);
  };
  const auto number = [&](CLI::Option* option, const char* type) { group(option->check(is_number()), type); };
  group(app.add_option("--max-tokens,--max-new-tokens,-n", max_tokens, "Longest answer, tokens")
            ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description("")),
        "N");
  number(app.add_option("--temperature", temperature, "0: always the likeliest token"), "X");
  group(app.add_option("--top-k", top_k, "Choose among the K likeliest tokens; 0: all")
            ->check(is_a<std::int32_t>("a whole number of 32 bits")),
        "K");
  number(app.add_option("--top-p", top_p, "Choose among the likeliest tokens that reach this probability"),
         "P");
  number(app.add_option("--min-p", min_p, "Drop tokens below this share of the likeliest one's probability"),
         "P");
  number(app.add_option("--typical-p,--typical", typical_p, "Locally typical sampling; 1: off"), "P");
  number(app.add_option("--repetition-penalty,--repeat-penalty", repetition_penalty,
                        "Divide the logits of tokens seen before; 1: off"),
         "X");
  number(app.add_option("--frequency-penalty", frequency_penalty, "Subtracted per occurrence in the answer"),
         "X");
  number(app.add_option("--presence-penalty", presence_penalty, "Subtracted once a token is in the answer"),
         "X");
  group(app.add_option("--logit-bias", logit_bias, "Added to a token's logit; may be repeated")
            ->expected(1)
            ->take_all(),
        "ID=BIAS");
  group(app.add_option("--seed", seed, "The same seed gives the same answer, with any number of threads")
            ->check(is_unsigned_64()),
        "N");
  group(app.add_option("--stop", stop, "End the answer before this text; may be repeated")
            ->expected(1)
            ->take_all(),
        "TEXT");
  group(app.add_option("--stop-token-ids", stop_token_ids, "Further tokens that end the answer")
            ->delimiter(',')
            ->check(is_a<std::int32_t>("ids of tokens such as 2,13")),
        "ID,...");
  group(app.add_option("--logprobs", n_logprobs, "Report each token's log probability and the N likeliest")
            ->check(CLI::Range(0, 100).description("")),
        "N");
  app.add_flag("--ignore-eos", ignore_eos, "Go on after the model's own stop token")->group("Sampling");
}

SamplingParams SamplingFlags::over(const SamplingParams& defaults) const { return merged(*this, defaults); }
api::SamplingParams SamplingFlags::over(const api::SamplingParams& defaults) const {
  return merged(*this, defaults);
}

MediaOptions MediaFlags::inner_options() const {
  return {.min_pixels = options.min_pixels, .max_pixels = options.max_pixels};
}

void MediaFlags::add_to(CLI::App& app) {
  const auto range = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description("");
  app.add_option("--min-pixels", options.min_pixels,
                 "Enlarge smaller pictures to this many pixels (models of dynamic resolution)")
      ->check(range)
      ->type_name("N");
  app.add_option("--max-pixels", options.max_pixels,
                 "Shrink larger pictures to this many pixels (models of dynamic resolution)")
      ->check(range)
      ->type_name("N");
}

void MediaFlags::check(const std::string& architecture, bool takes_pixel_limits) const {
  if (takes_pixel_limits) return;
  const char* flag = options.max_pixels > 0 ? "--max-pixels" : "--min-pixels";
  if (options.max_pixels > 0 || options.min_pixels > 0)
    fail(ErrorCode::kUnsupported, "{}: {} has no limits on pixels, models of dynamic resolution do", flag,
         architecture);
}

}  // namespace triptych::cli

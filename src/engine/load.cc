#include "engine/load.h"

#include <fmt/ranges.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/log.h"
#include "base/profile.h"
#include "engine/calibrate.h"
#include "engine/model_fingerprint.h"
#include "engine/packed_directory.h"
#include "engine/self_draft.h"
#include "io/mapped_file.h"
#include "text/token_bytes.h"
#include "weights/weight_providers.h"

namespace triptych {
namespace {

std::shared_ptr<const Json> shared(std::optional<Json> json) {
  return json ? std::make_shared<const Json>(std::move(*json)) : nullptr;
}

std::optional<JsonView> view_of(const std::shared_ptr<const Json>& json, std::string_view name) {
  if (json == nullptr) return std::nullopt;
  return JsonView(*json, std::string(name));
}

std::vector<std::int32_t> parse_ids(const JsonView& value) {
  std::vector<std::int32_t> out;
  const auto one = [&](const JsonView& v) { out.push_back(static_cast<std::int32_t>(v.as_int(0, 1 << 30))); };
  if (value.is_array()) {
    for (const JsonView& item : value.items()) one(item);
  } else {
    one(value);
  }
  return out;
}

void add_unique(std::vector<std::int32_t>& to, std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids)
    if (std::find(to.begin(), to.end(), id) == to.end()) to.push_back(id);
}

// Entries keep their files mapped, so the tower's checkpoint itself need not stay.
void add_vision_tower(WeightTable& weights, const std::filesystem::path& directory, LinkPolicy links) {
  CheckpointOptions options;
  options.links = links;
  Checkpoint tower = [&] {
    try {
      return Checkpoint::open(directory, options);
    } catch (const Error& error) {
      throw error.with_context("vision tower");
    }
  }();
  WeightTable& table = tower.weights();
  table.erase_if([](const WeightEntry& entry) { return !entry.name.starts_with("vision_model."); });
  if (table.empty())
    fail(ErrorCode::kNotFound, "{}: no tensor vision_model.*: expected the checkpoint of a vision tower",
         directory.string());
  table.rename_all([](const std::string& name) { return "vision_tower." + name; });
  for (const std::string_view prefix : {"vision_tower.", "model.vision_tower."})
    for (const WeightEntry& entry : weights)
      if (entry.name.starts_with(prefix))
        fail(ErrorCode::kInvalidArgument, "{}: the checkpoint has a vision tower of its own ({} in {})",
             directory.string(), entry.name, entry.file);
  weights.merge(std::move(table));
}

std::unique_ptr<Backend> make_backend(const LoadOptions& options, const WeightFormats& formats) {
  if (options.make_backend) return options.make_backend();
  return make_cpu_backend(
      {.n_threads = options.n_threads,
       .pin = options.pin_threads,
       .isa = std::nullopt,
       .policy = {.batch_invariant = options.batch_invariant,
                  .exact_groups = options.exact_groups,
                  .bf16_activations = options.bf16_activations,
                  .int8_attention = options.int8_vision_attention.value_or(formats.vision.has_value())}});
}

BindOptions binding_of(const LoadOptions& options) {
  BindOptions out{.activation_quants = &options.activation_quants, .sink = options.sink};
  if (options.weight_formats.any()) out.quantize_to = options.weight_formats;
  return out;
}

void check_exact_groups(const LoadOptions& options, const WeightFormats& formats) {
  if (!options.exact_groups) return;
  for (const auto* part : {&formats.language, &formats.vision, &formats.lm_head})
    if (*part && (*part)->code == QuantCode::kInt4) return;
  fail(ErrorCode::kInvalidArgument, "--exact-groups goes with int4 weights");
}

// Another mean or size makes another picture, without any other sign of it.
void check_without_preprocessor(const ModelRegistry::Family& family, const JsonView& config,
                                const std::filesystem::path& directory) {
  if (!family.without_preprocessor) return;
  const std::optional<std::string> defaults = family.without_preprocessor(config);
  if (!defaults)
    fail(ErrorCode::kNotFound,
         "{}: preprocessor_config.json is missing (or processor_config.json with \"image_processor\"), which "
         "says how pictures become numbers for {}; copy it from the published checkpoint",
         directory.string(), family.name);
  log_warning("{}: no preprocessor_config.json: pictures are made with {}", directory.string(), *defaults);
}

// With a hint where the tensors are not those that the family expects because of another program.
std::unique_ptr<Model> load_model(const ModelRegistry::Family& family, const ModelSource& source) {
  try {
    auto out = family.load(source);
    check_all_used(*source.weights);
    return out;
  } catch (const Error& error) {
    const auto method = foreign_quantization(source.config);
    if (!method) throw;
    fail(ErrorCode::kUnsupported,
         "config.json: quantization_config: weights quantized by \"{}\" are not supported; expected the "
         "original checkpoint, which --weights quantizes ({})",
         *method, error.what());
  }
}

}  // namespace

const Tokenizer& LoadedModel::tokenizer() const {
  TRIPTYCH_CHECK(tokenizer_ != nullptr, "this model has no tokenizer");
  return *tokenizer_;
}

const ChatTemplate& LoadedModel::chat_template() const {
  TRIPTYCH_CHECK(chat_template_.has_value(), "this model has no chat template");
  return *chat_template_;
}

std::unique_ptr<LoadedModel> LoadedModel::open(const std::filesystem::path& directory,
                                               const LoadOptions& options) {
  const ProfileZone zone("load");
  std::unique_ptr<LoadedModel> out(new LoadedModel);
  out->check_numerics_ = options.check_numerics;
  CheckpointOptions checkpoint_options;
  checkpoint_options.links = options.links;
  // The architecture is looked at first: a wrong directory should say so, not complain about its weights.
  checkpoint_options.load_weights = false;
  const auto& registry = ModelRegistry::global();
  registry.find(Checkpoint::open(directory, checkpoint_options).config_view());
  checkpoint_options.load_weights = true;
  out->checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(directory, checkpoint_options));
  Checkpoint& checkpoint = *out->checkpoint_;
  const ModelRegistry::Family& family = registry.find(checkpoint.config_view());
  // Weights that are not made anew are read where they are mapped, at every step.
  const bool as_stored = !options.weight_formats.any() && !options.weight_dtype;
  if (as_stored || is_packed_directory(checkpoint.config()))
    for (const std::string& name : checkpoint.weight_files())
      if (cache_in_huge_pages(*checkpoint.file(name))) log_debug("{}: cached in huge pages", name);
  if (!options.vision_tower.empty())
    add_vision_tower(checkpoint.weights(), options.vision_tower, options.links);

  out->preprocessor_ = shared(checkpoint.json_file("preprocessor_config.json"));
  out->video_preprocessor_ = shared(checkpoint.json_file("video_preprocessor_config.json"));
  out->processor_ = shared(checkpoint.json_file("processor_config.json"));
  ModelSource source{
      .config = checkpoint.config_view(),
      .preprocessor = view_of(out->preprocessor_, "preprocessor_config.json"),
      .video_preprocessor = view_of(out->video_preprocessor_, "video_preprocessor_config.json"),
      .processor = view_of(out->processor_, "processor_config.json")};
  // What newer tools keep in processor_config.json goes before files of their own, as in the reference
  // (transformers 5.24, image_processing_base.py, get_image_processor_dict).
  if (source.processor) {
    if (const auto nested = source.processor->find("image_processor")) source.preprocessor = nested;
    if (const auto nested = source.processor->find("video_processor")) source.video_preprocessor = nested;
  }
  if (!source.preprocessor) check_without_preprocessor(family, source.config, directory);
  source.tie_word_embeddings = options.tie_word_embeddings;

  out->weights_ = out->make_weights(options, source);
  out->backend_ = make_backend(options, out->weight_formats_);
  out->media_pool_ = std::make_unique<ThreadPool>(options.n_threads);
  const Json* configurations[] = {&checkpoint.config(), out->preprocessor_.get(),
                                  out->video_preprocessor_.get(), out->processor_.get()};
  out->fingerprint_ = model_fingerprint({.checkpoint = &checkpoint,
                                         .configurations = configurations,
                                         .options = &options,
                                         .weight_dtype = options.weight_dtype,
                                         .formats = out->weight_formats_,
                                         .static_vision_inputs = out->static_vision_inputs_,
                                         .backend = out->backend_.get()});
  source.weights = out->weights_.get();
  source.backend = out->backend_.get();
  out->tokenizer_ = Tokenizer::from_directory(directory);
  source.token_id = [tokenizer = out->tokenizer_.get()](std::string_view content) {
    return tokenizer->token_to_id(content);
  };
  out->model_ = load_model(family, source);
  TRIPTYCH_CHECK(!out->info().architecture.empty(), "{} does not say its architecture", family.name);
  out->self_draft_ = read_self_draft(source.config, out->info().n_layers);
  // What was read once, norms and biases between the matrices, leaves its pages behind.
  if (options.weight_formats.any())
    for (const WeightEntry& entry : checkpoint.weights()) release(entry);

  const ModelInfo& info = out->info();
  if (!info.media_text_tokenizer.empty())
    out->media_text_tokenizer_ = Tokenizer::from_directory(directory / info.media_text_tokenizer);
  for (const std::string& content : info.typeable_specials)
    if (const auto id = out->tokenizer_->token_to_id(content)) out->shown_specials_.push_back(*id);
  out->chat_template_ = ChatTemplate::from_directory(directory);
  if (!out->chat_template_)
    out->chat_template_ = ChatTemplate::parse(info.default_chat_template, info.family + " default template");
  out->load_generation_config();
  log_info("{}: {} on {}", directory.string(), info.architecture, out->backend_->describe());
  return out;
}

std::unique_ptr<WeightProvider> LoadedModel::make_weights(const LoadOptions& options, ModelSource& source) {
  Checkpoint& checkpoint = *checkpoint_;
  is_packed_ = is_packed_directory(checkpoint.config());
  weight_formats_ = options.weight_formats;
  std::unique_ptr<WeightProvider> weights;
  if (is_packed_) {
    const PackedConfig packed = PackedConfig::parse(checkpoint.config_view().at("quantization_config"));
    check_same_formats(packed, options);
    weight_formats_ = packed.formats;
    source.tie_word_embeddings = source.tie_word_embeddings || packed.tie_word_embeddings;
    PackedIndex index = read_packed_index(checkpoint, packed);
    static_vision_inputs_ = take_activation_quants(index, options);
    weights = std::make_unique<PackedWeights>(checkpoint.weights(), index);
  } else {
    auto table = std::make_unique<TableWeights>(checkpoint.weights());
    if (options.progress)
      table->on_first_use([report = options.progress, done = std::int64_t{0},
                           total = static_cast<std::int64_t>(checkpoint.weights().total_bytes())](
                              const WeightEntry& entry) mutable {
        report(done, total);  // before the work
        done += static_cast<std::int64_t>(entry.view.size_bytes());
      });
    weights = std::move(table);
    if (options.replaced_weights)
      weights = std::make_unique<ReplacedWeights>(std::move(weights), options.replaced_weights);
    if (options.weight_dtype)
      weights = std::make_unique<ConvertedWeights>(std::move(weights), *options.weight_dtype);
    source.binding = binding_of(options);
    static_vision_inputs_ = has_activation_quants(options);
  }
  check_exact_groups(options, weight_formats_);
  return weights;
}

namespace {

// As the configuration says it, in the language model's part or for the whole. OPT ties unless it says
// otherwise.
bool is_tied(const JsonView& config) {
  constexpr const char* kField = "tie_word_embeddings";
  if (const auto text = config.find("text_config")) {
    const bool is_opt = text->get_string("model_type", "") == "opt";
    if (is_opt) return text->get_bool(kField, true);
    if (text->get_bool(kField, false)) return true;
  }
  return config.get_bool(kField, false);
}

}  // namespace

std::unique_ptr<LoadedModel> LoadedModel::with_random_weights(const Json& config, DType weight_dtype,
                                                              const LoadOptions& options) {
  check_exact_groups(options, options.weight_formats);
  std::unique_ptr<LoadedModel> out(new LoadedModel);
  out->check_numerics_ = options.check_numerics;
  out->own_config_ = std::make_shared<const Json>(config);
  ModelSource source{.config = JsonView(*out->own_config_, "config.json"),
                     .preprocessor = std::nullopt,
                     .video_preprocessor = std::nullopt,
                     .processor = std::nullopt};
  out->backend_ = make_backend(options, options.weight_formats);
  out->media_pool_ = std::make_unique<ThreadPool>(options.n_threads);
  out->weights_ = std::make_unique<RandomWeights>(weight_dtype, 1, !is_tied(source.config));
  source.binding = binding_of(options);
  out->static_vision_inputs_ = has_activation_quants(options);
  const Json* configurations[] = {&config};
  out->fingerprint_ = model_fingerprint({.configurations = configurations,
                                         .options = &options,
                                         .weight_dtype = weight_dtype,
                                         .formats = options.weight_formats,
                                         .static_vision_inputs = out->static_vision_inputs_,
                                         .backend = out->backend_.get()});
  source.weights = out->weights_.get();
  source.backend = out->backend_.get();
  out->model_ = ModelRegistry::global().find(source.config).load(source);
  return out;
}

std::unique_ptr<LoadedModel> LoadedModel::from_parts(std::unique_ptr<Backend> backend,
                                                     std::unique_ptr<Model> model, bool check_numerics) {
  std::unique_ptr<LoadedModel> out(new LoadedModel);
  out->check_numerics_ = check_numerics;
  out->backend_ = std::move(backend);
  out->media_pool_ = std::make_unique<ThreadPool>(1);
  out->model_ = std::move(model);
  out->fingerprint_ = unique_fingerprint();
  return out;
}

std::int64_t LoadedModel::n_usable_ids() const {
  const std::int64_t rows = info().vocab_size;
  return tokenizer_ ? std::min<std::int64_t>(rows, tokenizer_->vocab_size()) : rows;
}

TokenMasker& LoadedModel::token_masker() const {
  if (!tokenizer_) fail(ErrorCode::kUnsupported, "a constrained answer needs a model with a tokenizer");
  const std::lock_guard lock(token_masker_mutex_);
  if (token_masker_) return *token_masker_;
  TokenBytes bytes = token_bytes(*tokenizer_);
  bytes.tokens.resize(static_cast<std::size_t>(n_usable_ids()));
  // What ends an answer, or is a picture's place, is no text.
  for (const auto* ids : {&stop_token_ids_, &info().never_sample})
    for (const std::int32_t id : *ids)
      if (id >= 0 && static_cast<std::size_t>(id) < bytes.tokens.size())
        bytes.tokens[static_cast<std::size_t>(id)].clear();
  token_masker_ = std::make_unique<TokenMasker>(bytes.tokens, bytes.drops_first_blank);
  return *token_masker_;
}

void LoadedModel::load_generation_config() {
  add_unique(stop_token_ids_, info().eos_token_ids);
  const JsonView config = checkpoint_->config_view();
  for (const std::string_view part : {"", "text_config"}) {
    const auto c = part.empty() ? std::optional(config) : config.find(part);
    if (!c || !c->is_object()) continue;
    if (const auto eos = c->find("eos_token_id")) add_unique(stop_token_ids_, parse_ids(*eos));
  }
  const auto file = checkpoint_->json_file("generation_config.json");
  if (file) {
    const JsonView g(*file, "generation_config.json");
    if (const auto eos = g.find("eos_token_id")) add_unique(stop_token_ids_, parse_ids(*eos));
    SamplingParams& d = generation_defaults_;
    d.repetition_penalty = static_cast<float>(g.get_double("repetition_penalty", 1.0));
    if (g.get_bool("do_sample", false)) {
      d.temperature = static_cast<float>(g.get_double("temperature", 1.0));
      d.top_k = static_cast<int>(g.get_int("top_k", 50, -1, 1 << 30));
      d.top_p = static_cast<float>(g.get_double("top_p", 1.0));
      d.min_p = static_cast<float>(g.get_double("min_p", 0.0));
      d.typical_p = static_cast<float>(g.get_double("typical_p", 1.0));
    }
    std::vector<std::string_view> unsupported;
    d.processors = LogitsProcessorParams::parse(g, unsupported);
    if (!unsupported.empty())
      log_warning("generation_config.json: {} {} not supported and left out", fmt::join(unsupported, ", "),
                  unsupported.size() == 1 ? "is" : "are");
    d.max_tokens = g.get_int("max_new_tokens", 0, 0, std::int64_t{1} << 40);
    try {
      d.validate(info().vocab_size);
    } catch (const Error& error) {
      throw Error(ErrorCode::kInvalidFile, fmt::format("generation_config.json: {}", error.what()));
    }
  }
  if (stop_token_ids_.empty())
    if (const auto eos = tokenizer_->eos_id()) stop_token_ids_.push_back(*eos);
}

}  // namespace triptych

#include "engine/load.h"

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/log.h"
#include "base/profile.h"
#include "engine/packed_directory.h"
#include "io/mapped_file.h"
#include "text/utf8.h"

namespace triptych {
namespace {

std::optional<JsonView> view_of(const std::optional<Json>& json, std::string_view name) {
  if (!json) return std::nullopt;
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

// A piece of the vocabulary that is no added token would be found only by chance.
bool is_added_token(const Tokenizer& tokenizer, const std::string& content, std::int32_t id) {
  for (const AddedToken& token : tokenizer.added_tokens())
    if (token.content == content) return token.id == id;
  return false;
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

// Frames and what the plan makes of them; with one model that decides the pixels.
Fingerprint fingerprint_of(const MediaInput& input, const MediaPlan& plan) {
  std::vector<std::uint64_t> words = {static_cast<std::uint64_t>(plan.meta.width_px),
                                      static_cast<std::uint64_t>(plan.meta.height_px),
                                      static_cast<std::uint64_t>(plan.resized_width_px),
                                      static_cast<std::uint64_t>(plan.resized_height_px),
                                      static_cast<std::uint64_t>(plan.grid_t),
                                      static_cast<std::uint64_t>(plan.grid_h),
                                      static_cast<std::uint64_t>(plan.grid_w),
                                      static_cast<std::uint64_t>(plan.n_tokens),
                                      plan.meta.is_video ? 1U : 0U};
  for (const Image& frame : input.frames) {
    const Fingerprint pixels = fingerprint(std::as_bytes(std::span(frame.rgb)));
    words.insert(words.end(), {pixels.low, pixels.high});
  }
  return fingerprint(std::as_bytes(std::span(words)));
}

// The vocabulary has no placeholder: those of the template become cuts.
void add_placeholders(std::string_view text, std::string_view placeholder, std::int32_t id,
                      std::span<const ByteRange> typed, std::vector<TypedTag>& cuts) {
  for (std::size_t at = text.find(placeholder); at != std::string_view::npos;) {
    const std::size_t end = at + placeholder.size();
    const bool is_typed = std::any_of(typed.begin(), typed.end(),
                                      [&](const ByteRange& r) { return at < r.end && end > r.begin; });
    if (!is_typed) cuts.push_back({at, end, {id}});
    at = text.find(placeholder, is_typed ? at + 1 : end);
  }
  std::sort(cuts.begin(), cuts.end(), [](const TypedTag& a, const TypedTag& b) { return a.begin < b.begin; });
}

// The tokens of the cuts, and between them each piece of text tokenized by itself.
std::vector<std::int32_t> encode_around(const Tokenizer& tokenizer, std::string_view text,
                                        std::span<const TypedTag> cuts, const EncodeOptions& options) {
  if (cuts.empty()) return tokenizer.encode(text, options);
  std::vector<std::int32_t> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::size_t end = i < cuts.size() ? cuts[i].begin : text.size();
    std::vector<ByteRange> inside;
    for (const ByteRange& r : options.plain_text)
      if (r.end > begin && r.begin < end)
        inside.push_back({std::max(r.begin, begin) - begin, std::min(r.end, end) - begin});
    EncodeOptions piece = options;
    piece.plain_text = inside;
    piece.add_special_tokens = options.add_special_tokens && i == 0;
    if (begin < end || i == 0) {
      const auto ids = tokenizer.encode(text.substr(begin, end - begin), piece);
      out.insert(out.end(), ids.begin(), ids.end());
    }
    if (i == cuts.size()) break;
    out.insert(out.end(), cuts[i].ids.begin(), cuts[i].ids.end());
    begin = cuts[i].end;
  }
  return out;
}

std::unique_ptr<Backend> make_backend(const LoadOptions& options, const WeightFormats& formats) {
  return make_cpu_backend(
      {.n_threads = options.n_threads,
       .pin = options.pin_threads,
       .isa = std::nullopt,
       .exact_groups = options.exact_groups,
       .bf16_activations = options.bf16_activations,
       .int8_attention = options.int8_vision_attention.value_or(formats.vision.has_value())});
}

void check_exact_groups(const LoadOptions& options, const WeightFormats& formats) {
  if (!options.exact_groups) return;
  for (const auto* part : {&formats.language, &formats.vision, &formats.lm_head})
    if (*part && (*part)->code == QuantCode::kInt4) return;
  fail(ErrorCode::kInvalidArgument, "--exact-groups goes with int4 weights");
}

constexpr const char* kHowToCalibrate =
    "--vision-activations static: there are no ranges of activations: triptych convert MODEL OUT --calibrate "
    "FOLDER finds them";

// Whether the index has grids that are wanted; others are taken out.
bool take_input_grids(PackedIndex& index, const LoadOptions& options) {
  bool any = false;
  for (StoredLinear& linear : index.linears) {
    any = any || linear.input_grid.step > 0;
    if (options.static_vision_inputs == false) linear.input_grid = {};
  }
  if (options.static_vision_inputs == true && !any) fail(ErrorCode::kInvalidArgument, "{}", kHowToCalibrate);
  return any && options.static_vision_inputs != false;
}

// Of a checkpoint that holds none.
void check_input_grids(const LoadOptions& options) {
  if (options.static_vision_inputs == true && options.input_grids.empty())
    fail(ErrorCode::kInvalidArgument, "{}", kHowToCalibrate);
  if (options.input_grids.empty()) return;
  const auto& vision = options.weight_formats.vision;
  if (!vision || vision->code != QuantCode::kInt8 || vision->group_size != QuantFormat::kWholeRow)
    fail(ErrorCode::kInvalidArgument, "static activations need --vision-weights int8, not {}",
         vision ? vision->to_string() : "auto");
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

void check_takes_videos(const ModelInfo& info) {
  if (!info.video_placeholder.empty()) return;
  std::string families;
  for (const ModelRegistry::Family& family : ModelRegistry::global().families())
    if (family.takes_videos) families += (families.empty() ? "" : ", ") + family.architectures.front();
  fail(ErrorCode::kUnsupported, "{} does not take videos; these do: {}", info.architecture, families);
}

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

  out->preprocessor_ = checkpoint.json_file("preprocessor_config.json");
  out->video_preprocessor_ = checkpoint.json_file("video_preprocessor_config.json");
  out->processor_ = checkpoint.json_file("processor_config.json");
  ModelSource source{
      .config = checkpoint.config_view(),
      .preprocessor = view_of(out->preprocessor_, "preprocessor_config.json"),
      .video_preprocessor = view_of(out->video_preprocessor_, "video_preprocessor_config.json"),
      .processor = view_of(out->processor_, "processor_config.json")};
  // Newer tools keep all of it in processor_config.json.
  if (source.processor && !source.preprocessor)
    source.preprocessor = source.processor->find("image_processor");
  if (source.processor && !source.video_preprocessor)
    source.video_preprocessor = source.processor->find("video_processor");
  source.tie_word_embeddings = options.tie_word_embeddings;

  out->weights_ = out->make_weights(options, source);
  out->backend_ = make_backend(options, out->weight_formats_);
  out->media_pool_ = std::make_unique<ThreadPool>(options.n_threads);
  source.weights = out->weights_.get();
  source.backend = out->backend_.get();
  out->tokenizer_ = Tokenizer::from_directory(directory);
  source.token_id = [tokenizer = out->tokenizer_.get()](std::string_view content) {
    return tokenizer->token_to_id(content);
  };
  out->model_ = load_model(family, source);
  TRIPTYCH_CHECK(!out->info().architecture.empty(), "{} does not say its architecture", family.name);
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
    static_vision_inputs_ = take_input_grids(index, options);
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
    if (options.weight_dtype)
      weights = std::make_unique<ConvertedWeights>(std::move(weights), *options.weight_dtype);
    if (weight_formats_.any() || options.sink != nullptr)
      weights = std::make_unique<QuantizedWeights>(std::move(weights), weight_formats_, options.sink,
                                                   options.input_grids);
    check_input_grids(options);
    static_vision_inputs_ = !options.input_grids.empty();
  }
  check_exact_groups(options, weight_formats_);
  return weights;
}

std::unique_ptr<LoadedModel> LoadedModel::with_random_weights(const Json& config, DType weight_dtype,
                                                              const LoadOptions& options) {
  check_exact_groups(options, options.weight_formats);
  std::unique_ptr<LoadedModel> out(new LoadedModel);
  out->check_numerics_ = options.check_numerics;
  out->own_config_ = config;
  ModelSource source{.config = JsonView(out->own_config_, "config.json"),
                     .preprocessor = std::nullopt,
                     .video_preprocessor = std::nullopt,
                     .processor = std::nullopt};
  out->backend_ = make_backend(options, options.weight_formats);
  out->media_pool_ = std::make_unique<ThreadPool>(options.n_threads);
  out->weights_ = std::make_unique<RandomWeights>(weight_dtype, 1);
  if (options.weight_formats.any())
    out->weights_ = std::make_unique<QuantizedWeights>(std::move(out->weights_), options.weight_formats,
                                                       nullptr, options.input_grids);
  check_input_grids(options);
  out->static_vision_inputs_ = !options.input_grids.empty();
  source.weights = out->weights_.get();
  source.backend = out->backend_.get();
  out->model_ = ModelRegistry::global().find(source.config).load(source);
  return out;
}

std::int64_t LoadedModel::n_usable_ids() const {
  const std::int64_t rows = info().vocab_size;
  return tokenizer_ ? std::min<std::int64_t>(rows, tokenizer_->vocab_size()) : rows;
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
      d.top_k = static_cast<int>(g.get_int("top_k", 50, 0, 1 << 30));
      d.top_p = static_cast<float>(g.get_double("top_p", 1.0));
      d.min_p = static_cast<float>(g.get_double("min_p", 0.0));
      d.typical_p = static_cast<float>(g.get_double("typical_p", 1.0));
    }
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

std::vector<std::int32_t> LoadedModel::tokenize(const std::vector<RenderedSpan>& spans,
                                                std::span<const MediaPlan> plans) const {
  const ProfileZone zone("tokenizer");
  const ModelInfo& info = this->info();
  std::string text;
  std::vector<ByteRange> typed;
  std::vector<TypedTag> cuts;  // what becomes tokens of its own
  for (const RenderedSpan& span : spans) {
    if (span.is_user_text) typed.push_back({text.size(), text.size() + span.text.size()});
    for (TypedTag& tag : model_->find_typed_tags(span.text, plans))
      cuts.push_back({tag.begin + text.size(), tag.end + text.size(), std::move(tag.ids)});
    text += span.text;
  }
  std::vector<std::string> never = info.never_typed;
  for (const std::string* placeholder : {&info.image_placeholder, &info.video_placeholder})
    if (!placeholder->empty()) never.push_back(*placeholder);
  EncodeOptions options{
      .add_special_tokens = plans.empty() ? info.add_special_tokens : info.add_special_tokens_with_media,
      .plain_text = typed,
      .never_in_plain_text = never,
      .allowed_in_plain_text = info.typeable_specials};
  // A template that writes the first token itself must not get it twice (transformers' ProcessorMixin does
  // the same).
  if (const auto bos = tokenizer_->bos_id()) {
    const std::string content = tokenizer_->id_to_token(*bos);
    if (!content.empty() && text.rfind(content, 0) == 0 &&
        (typed.empty() || typed.front().begin >= content.size()))
      options.add_special_tokens = false;
  }
  if (!info.image_placeholder.empty() &&
      !is_added_token(*tokenizer_, info.image_placeholder, info.image_token_id))
    add_placeholders(text, info.image_placeholder, info.image_token_id, typed, cuts);
  return encode_around(*tokenizer_, text, cuts, options);
}

PreparedRequest LoadedModel::prepare_spans(const std::vector<RenderedSpan>& spans,
                                           const std::vector<MediaInput>& media, const MediaOptions& options,
                                           std::string_view user_text) const {
  const ModelInfo& info = this->info();
  if (info.max_images >= 0 && static_cast<std::int64_t>(media.size()) > info.max_images)
    fail(ErrorCode::kInvalidArgument, "{} takes {} image{} in a prompt, got {}", info.architecture,
         info.max_images, info.max_images == 1 ? "" : "s", media.size());
  PreparedRequest out;
  out.prompt = to_text(spans);
  std::vector<MediaPlan> plans;
  for (const MediaInput& input : media) {
    if (input.frames.empty()) fail(ErrorCode::kInvalidArgument, "a video needs at least one frame");
    if (input.is_video) check_takes_videos(info);
    plans.push_back(model_->plan_media({.width_px = input.frames.front().width_px,
                                        .height_px = input.frames.front().height_px,
                                        .n_frames = static_cast<int>(input.frames.size()),
                                        .frames_per_s = input.frames_per_s,
                                        .is_video = input.is_video,
                                        .name = input.name},
                                       options));
  }
  out.token_ids = tokenize(spans, plans);
  out.layout = model_->expand_prompt(out.token_ids, plans);
  if (static_cast<std::int64_t>(out.layout.input_ids.size()) > info.max_context_tokens)  // before any pixels
    fail(ErrorCode::kContextLength, "the prompt has {} tokens and the context holds {}",
         out.layout.input_ids.size(), info.max_context_tokens);
  const ProfileZone zone("preprocess");
  for (std::size_t i = 0; i < media.size(); ++i) {
    MediaItem item;
    item.plan = plans[i];
    item.pixels = model_->preprocess(media[i].frames, plans[i], media_pool_.get());
    item.fingerprint = fingerprint_of(media[i], plans[i]);
    if (media_text_tokenizer_) item.text_ids = media_text_tokenizer_->encode(user_text);
    out.media.push_back(std::move(item));
  }
  return out;
}

PreparedRequest LoadedModel::prepare(const ChatRequest& request) const {
  std::int64_t n_parts = 0;
  std::string user_text;
  for (const ChatMessage& message : request.messages) {
    if (message.role == "system" && !info().supports_system_prompt)
      fail(ErrorCode::kInvalidArgument, "{} has no system prompt", info().architecture);
    for (const ContentPart& part : message.parts) {
      if (part.kind != ContentPart::Kind::kText) ++n_parts;
      if (!utf8::is_valid(part.text))
        fail(ErrorCode::kInvalidArgument, "the {} message is not valid UTF-8", message.role);
      if (part.kind == ContentPart::Kind::kText && message.role == "user") user_text += part.text;
    }
  }
  if (n_parts != static_cast<std::int64_t>(request.media.size()))
    fail(ErrorCode::kInvalidArgument, "the messages hold {} images or videos, but {} were given", n_parts,
         request.media.size());
  ChatInput input;
  input.messages = request.messages;
  input.add_generation_prompt = request.add_generation_prompt && !request.continue_final_message;
  input.continue_final_message = request.continue_final_message;
  input.image_placeholder = info().image_placeholder;
  input.video_placeholder = info().video_placeholder;
  input.tools = request.tools;
  input.variables = request.template_variables;
  const auto special = [&](const char* name, std::optional<std::int32_t> id) {
    if (id) input.special_tokens[name] = tokenizer_->id_to_token(*id);
  };
  special("bos_token", tokenizer_->bos_id());
  special("eos_token", tokenizer_->eos_id());
  special("pad_token", tokenizer_->pad_id());
  special("unk_token", tokenizer_->unk_id());
  const std::vector<RenderedSpan> spans = chat_template().render(input);
  const auto is_video = [](const MediaInput& input_media) { return input_media.is_video; };
  if (std::any_of(request.media.begin(), request.media.end(), is_video)) {
    check_takes_videos(info());
    const auto prints_videos = [&](const RenderedSpan& span) {
      return !span.is_user_text && span.text.find(info().video_placeholder) != std::string::npos;
    };
    if (std::none_of(spans.begin(), spans.end(), prints_videos))
      fail(ErrorCode::kUnsupported, "the chat template of this model prints nothing for a video");
  }
  return prepare_spans(spans, request.media, request.media_options, user_text);
}

PreparedRequest LoadedModel::prepare_prompt(std::string_view prompt, const std::vector<MediaInput>& media,
                                            const MediaOptions& options) const {
  return prepare_spans({{.text = std::string(prompt), .is_user_text = false}}, media, options, prompt);
}

}  // namespace triptych

#include "server/request_fields.h"

#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace triptych::server {
namespace {

constexpr int kMaxStops = 64;
constexpr int kMaxAnswers = 128;
constexpr double kMaxFloat = std::numeric_limits<float>::max();

const std::set<std::string_view> kCommonFields = {"model",
                                                  "stream",
                                                  "stream_options",
                                                  "n",
                                                  "temperature",
                                                  "top_p",
                                                  "top_k",
                                                  "min_p",
                                                  "typical_p",
                                                  "repetition_penalty",
                                                  "frequency_penalty",
                                                  "presence_penalty",
                                                  "logit_bias",
                                                  "seed",
                                                  "stop",
                                                  "stop_token_ids",
                                                  "ignore_eos",
                                                  "priority",
                                                  "cache_salt",
                                                  "min_pixels",
                                                  "max_pixels",
                                                  "image_tokens_keep",
                                                  "image_tokens_selection",
                                                  "user",
                                                  "guided_json",
                                                  "guided_regex",
                                                  "guided_choice",
                                                  "guided_grammar",
                                                  "structured_outputs",
                                                  "response_format"};

void read_float(const JsonView& body, std::string_view key, double min, double max, float& out) {
  if (const auto value = body.find(key)) out = static_cast<float>(value->as_double(min, max));
}

void read_image_tokens(const JsonView& body, ImageTokenOptions& out) {
  constexpr double kLeast = 1e-6;  // a share of 0 would leave nothing of a picture
  if (const auto keep = body.find("image_tokens_keep")) out.keep = keep->as_double(kLeast, 1);
  const auto selection = body.find("image_tokens_selection");
  if (!selection) return;
  try {
    out.selection = parse_image_token_selection(selection->as_string());
  } catch (const Error& error) {
    throw ApiError(400, "invalid_value", error.what(), "image_tokens_selection");
  }
}

void read_logit_bias(const JsonView& body, SamplingParams& out) {
  const auto bias = body.find("logit_bias");
  if (!bias) return;
  for (const auto& [key, value] : bias->members()) {
    std::int32_t id = 0;
    const char* end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, id);
    if (parsed.ec != std::errc() || parsed.ptr != end || id < 0)
      throw ApiError(400, "invalid_value", fmt::format("logit_bias: \"{}\" is no token id", key),
                     "logit_bias");
    out.logit_bias.emplace_back(id, static_cast<float>(value.as_double(-100, 100)));
  }
}

void read_stops(const JsonView& body, SamplingParams& out) {
  if (const auto stop = body.find("stop")) {
    if (stop->is_string()) {
      out.stop.push_back(stop->as_string());
    } else {
      for (const JsonView& one : stop->items()) out.stop.push_back(one.as_string());
    }
    if (out.stop.size() > kMaxStops)
      throw ApiError(400, "invalid_value", fmt::format("stop: at most {} texts", kMaxStops), "stop");
    std::erase(out.stop, std::string());
  }
  if (const auto ids = body.find("stop_token_ids"))
    for (const JsonView& id : ids->items())
      out.stop_token_ids.push_back(
          static_cast<std::int32_t>(id.as_int(0, std::numeric_limits<std::int32_t>::max())));
}

// A schema is an object, true, or text that holds one.
std::string schema_text(const OrderedJson& schema) {
  return schema.is_string() ? schema.get<std::string>() : schema.dump();
}

ConstraintSpec choice_of(const JsonView& list) {
  ConstraintSpec out;
  for (const JsonView& one : list.items()) out.choice.push_back(one.as_string());
  if (out.choice.empty())
    throw ApiError(400, "invalid_value", "a choice needs at least one text", "guided_choice");
  return out;
}

void read_response_format(const RequestBody& body, SamplingParams& out) {
  const auto format = body.view().find("response_format");
  if (!format) return;
  const std::string type = format->at("type").as_string();
  ConstraintSpec spec;
  if (type == "json_object") {
    spec.json_schema = R"({"type":"object"})";
  } else if (type == "json_schema") {
    const JsonView inner = format->at("json_schema");
    static_cast<void>(inner.at("schema"));
    spec.json_schema = schema_text(body.ordered("response_format")["json_schema"]["schema"]);
  } else if (type != "text") {
    throw ApiError(
        400, "invalid_value",
        fmt::format("response_format.type: expected text, json_object or json_schema, got \"{}\"", type),
        "response_format.type");
  }
  if (!spec.empty()) set_constraint(out, "response_format", std::move(spec));
}

void read_constraints(const RequestBody& body, SamplingParams& out) {
  const JsonView view = body.view();
  read_response_format(body, out);
  if (view.has("guided_json"))
    set_constraint(out, "guided_json", {.json_schema = schema_text(body.ordered("guided_json"))});
  if (const auto regex = view.find("guided_regex"))
    set_constraint(out, "guided_regex", {.regex = regex->as_string()});
  if (const auto choice = view.find("guided_choice"))
    set_constraint(out, "guided_choice", choice_of(*choice));
  if (const auto grammar = view.find("guided_grammar"))
    set_constraint(out, "guided_grammar", {.grammar = grammar->as_string()});
  const auto structured = view.find("structured_outputs");
  if (!structured) return;
  if (structured->has("json"))
    set_constraint(out, "structured_outputs.json",
                   {.json_schema = schema_text(body.ordered("structured_outputs")["json"])});
  if (const auto regex = structured->find("regex"))
    set_constraint(out, "structured_outputs.regex", {.regex = regex->as_string()});
  if (const auto choice = structured->find("choice"))
    set_constraint(out, "structured_outputs.choice", choice_of(*choice));
  if (const auto grammar = structured->find("grammar"))
    set_constraint(out, "structured_outputs.grammar", {.grammar = grammar->as_string()});
  if (structured->get_bool("json_object", false))
    set_constraint(out, "structured_outputs.json_object", {.json_schema = R"({"type":"object"})"});
}

}  // namespace

RequestBody::RequestBody(std::string_view text) : text_(text) {
  with_paths([&] {
    json_ = std::make_unique<const Json>(parse_json(text, kBodyName));
    if (!json_->is_object()) view().fail_expected("an object");
    return 0;
  });
}
RequestBody::~RequestBody() = default;

JsonView RequestBody::view() const { return {*json_, std::string(kBodyName)}; }

const OrderedJson& RequestBody::ordered(const std::string& key) const {
  if (!ordered_) ordered_ = std::make_unique<const OrderedJson>(OrderedJson::parse(text_));
  static const OrderedJson null;
  const auto found = ordered_->find(key);
  return found == ordered_->end() ? null : *found;
}

void set_constraint(SamplingParams& params, const std::string& param, ConstraintSpec spec) {
  if (!params.constraint.empty())
    throw ApiError(400, "invalid_value", param + ": the answer is held to something else already", param);
  if (spec.empty()) throw ApiError(400, "invalid_value", param + ": is empty", param);
  params.constraint = std::move(spec);
}

void read_max_tokens(const JsonView& body, std::string_view key, SamplingParams& out) {
  if (const auto value = body.find(key)) out.max_tokens = value->as_int(1, std::int64_t{1} << 40);
}

CommonParams read_common(const RequestBody& body, const SamplingParams& defaults) {
  return with_paths([&] {
    const JsonView view = body.view();
    CommonParams out;
    SamplingParams& sampling = out.sampling;
    sampling = defaults;
    out.model = view.get_string("model", "");
    out.user = view.get_string("user", "");
    out.n = static_cast<int>(view.get_int("n", 1, 1, kMaxAnswers));
    out.stream = view.get_bool("stream", false);
    if (const auto options = view.find("stream_options"))
      out.include_usage = options->get_bool("include_usage", false);
    read_float(view, "temperature", 0, 100, sampling.temperature);
    read_float(view, "top_p", 0, 1, sampling.top_p);
    read_float(view, "min_p", 0, 1, sampling.min_p);
    read_float(view, "typical_p", 0, 1, sampling.typical_p);
    read_float(view, "repetition_penalty", 0, kMaxFloat, sampling.repetition_penalty);
    read_float(view, "frequency_penalty", -2, 2, sampling.frequency_penalty);
    read_float(view, "presence_penalty", -2, 2, sampling.presence_penalty);
    sampling.top_k =
        static_cast<int>(view.get_int("top_k", sampling.top_k, -1, std::numeric_limits<std::int32_t>::max()));
    if (const auto seed = view.find("seed"))
      sampling.seed = seed->raw().is_number_unsigned() ? seed->raw().get<std::uint64_t>()
                                                       : static_cast<std::uint64_t>(seed->as_int());
    sampling.ignore_eos = view.get_bool("ignore_eos", sampling.ignore_eos);
    read_logit_bias(view, sampling);
    read_stops(view, sampling);
    read_constraints(body, sampling);
    out.priority = static_cast<int>(view.get_int("priority", 0, -1'000'000, 1'000'000));
    out.cache_salt = view.get_string("cache_salt", "");
    out.media_options.min_pixels = view.get_int("min_pixels", 0, 0, std::int64_t{1} << 32);
    out.media_options.max_pixels = view.get_int("max_pixels", 0, 0, std::int64_t{1} << 32);
    read_image_tokens(view, out.media_options.image_tokens);
    return out;
  });
}

void note_unknown(const RequestBody& body, const std::set<std::string_view>& own, CommonParams& out) {
  for (const auto& [key, value] : body.view().members())
    if (kCommonFields.count(key) == 0 && own.count(key) == 0) out.unknown_fields.push_back(key);
}

}  // namespace triptych::server

#include "server/ollama_api.h"

#include <chrono>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "server/json_text.h"
#include "server/single_writer.h"
#include "server/tool_calls.h"

namespace triptych::server {
namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;

void take_float(const JsonView& options, std::string_view key, double min, double max, float& to) {
  if (const auto value = options.find(key)) to = static_cast<float>(value->as_double(min, max));
}

void read_options(const JsonView& body, SamplingParams& out) {
  const auto options = body.find("options");
  if (!options) return;
  take_float(*options, "temperature", 0, 100, out.temperature);
  take_float(*options, "top_p", 0, 1, out.top_p);
  take_float(*options, "min_p", 0, 1, out.min_p);
  take_float(*options, "typical_p", 0, 1, out.typical_p);
  take_float(*options, "repeat_penalty", 0, 100, out.repetition_penalty);
  take_float(*options, "presence_penalty", -2, 2, out.presence_penalty);
  take_float(*options, "frequency_penalty", -2, 2, out.frequency_penalty);
  if (const auto k = options->find("top_k"))
    out.top_k = static_cast<int>(k->as_int(-1, std::numeric_limits<std::int32_t>::max()));
  if (const auto seed = options->find("seed")) out.seed = static_cast<std::uint64_t>(seed->as_int());
  if (const auto n = options->find("num_predict"))
    out.max_tokens = std::max<std::int64_t>(n->as_int(-2, kMaxTokens), 0);
  if (const auto stop = options->find("stop")) {
    if (stop->is_string()) {
      out.stop.push_back(stop->as_string());
    } else {
      for (const JsonView& one : stop->items()) out.stop.push_back(one.as_string());
    }
    std::erase(out.stop, std::string());
  }
}

void read_format(const RequestBody& body, SamplingParams& out) {
  const auto format = body.view().find("format");
  if (!format || (format->is_string() && format->as_string().empty())) return;
  if (format->is_object()) {
    set_constraint(out, "format", {.json_schema = body.ordered("format").dump()});
  } else if (format->as_string() == "json") {
    set_constraint(out, "format", {.json_schema = R"({"type":"object"})"});
  } else {
    format->fail_expected("json or a schema");
  }
}

void read_shared(const RequestBody& body, const SamplingParams& defaults, ChatWire& out) {
  const JsonView view = body.view();
  out.common.sampling = defaults;
  out.common.model = view.get_string("model", "");
  constexpr std::string_view kLatest = ":latest";  // what these clients append to a name without a tag
  std::string& name = out.common.model;
  if (name.size() > kLatest.size() && name.substr(name.size() - kLatest.size()) == kLatest)
    name.resize(name.size() - kLatest.size());
  out.common.stream = view.get_bool("stream", true);
  read_options(view, out.common.sampling);
  read_format(body, out.common.sampling);
}

void add_images(const JsonView& holder, WireMessage& to) {
  const auto images = holder.find("images");
  if (!images) return;
  std::vector<WirePart> parts;
  for (const JsonView& image : images->items()) {
    WirePart part{.kind = ContentPart::Kind::kImage};
    part.url = image.as_string();
    if (part.url.rfind("data:", 0) != 0) part.url = "data:;base64," + part.url;
    part.param = image.path().substr(kBodyName.size() + 2);
    parts.push_back(std::move(part));
  }
  if (!parts.empty()) to.content_is_string = false;
  to.parts.insert(to.parts.begin(), std::make_move_iterator(parts.begin()),
                  std::make_move_iterator(parts.end()));
}

WireMessage text_message(std::string role, std::string text) {
  WireMessage out;
  out.role = std::move(role);
  out.content_is_string = true;
  out.parts.push_back({.text = std::move(text)});
  return out;
}

class OllamaWriter : public SingleWriter {
 public:
  OllamaWriter(std::shared_ptr<Exchange> exchange, const ChatWire& request, const ModelHost& host,
               bool is_chat)
      : SingleWriter(std::move(exchange), request.common.stream),
        is_chat_(is_chat),
        has_tools_(request.tools != nullptr),
        model_(request.common.model.empty() ? host.name() : request.common.model),
        begin_(std::chrono::steady_clock::now()) {}

 private:
  OrderedJson head() const { return {{"model", model_}, {"created_at", utc_time(unix_time_s())}}; }
  OrderedJson with_text(std::string_view text) const {
    OrderedJson out = head();
    if (is_chat_) {
      out["message"] = {{"role", "assistant"}, {"content", text}};
    } else {
      out["response"] = text;
    }
    return out;
  }
  void line(const OrderedJson& value) { exchange().send(json_text(value) + "\n"); }

  void begin() override {
    HttpResponse head_of_stream;
    head_of_stream.content_type = "application/x-ndjson";
    exchange().start_stream(head_of_stream);
  }
  void delta(std::string_view text) override {
    OrderedJson out;
    if (has_tools_) {
      const ToolCallParser::Piece piece = parser_.push(text);
      if (piece.text.empty() && piece.calls.empty()) return;
      out = with_text(piece.text);
      add_calls(out, piece.calls);
    } else {
      out = with_text(text);
    }
    out["done"] = false;
    line(out);
  }
  void end(const GenerationResult& result) override {
    OrderedJson out = with_text("");
    if (has_tools_) {
      const ToolCallParser::Piece rest = parser_.finish();
      out = with_text(rest.text);
      add_calls(out, rest.calls);
    }
    add_end(out, result);
    line(out);
  }
  void broken(const ApiError& error) override { line({{"error", error.what()}}); }
  std::string whole(const GenerationResult& result) override {
    OrderedJson out;
    if (has_tools_) {
      ToolCallParser::Piece piece = parser_.push(text());
      ToolCallParser::Piece rest = parser_.finish();
      piece.calls.insert(piece.calls.end(), rest.calls.begin(), rest.calls.end());
      out = with_text(piece.text + rest.text);
      add_calls(out, piece.calls);
    } else {
      out = with_text(text());
    }
    add_end(out, result);
    return json_text(out);
  }
  void add_calls(OrderedJson& out, const std::vector<ToolCall>& calls) const {
    if (!is_chat_) return;
    for (const ToolCall& call : calls)
      out["message"]["tool_calls"].push_back(
          {{"function",
            {{"name", call.name}, {"arguments", OrderedJson::parse(call.arguments, nullptr, false)}}}});
  }
  void add_end(OrderedJson& out, const GenerationResult& result) const {
    const auto ns = [](double ms) { return static_cast<std::int64_t>(ms * 1e6); };
    out["done"] = true;
    out["done_reason"] = result.finish_reason == FinishReason::kLength ? "length" : "stop";
    out["total_duration"] = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin_).count();
    out["load_duration"] = 0;
    out["prompt_eval_count"] = result.n_prompt_tokens;
    out["prompt_eval_duration"] = ns(result.timings.encode_ms + result.timings.prefill_ms);
    out["eval_count"] = result.token_ids.size();
    out["eval_duration"] = ns(result.timings.decode_ms);
  }

  const bool is_chat_, has_tools_;
  const std::string model_;
  const std::chrono::steady_clock::time_point begin_;
  ToolCallParser parser_;
};

}  // namespace

ChatWire parse_ollama_chat(std::string_view text, const SamplingParams& defaults) {
  const RequestBody body(text);
  ChatWire out;
  with_paths([&] {
    const JsonView view = body.view();
    read_shared(body, defaults, out);
    const std::vector<JsonView> messages = view.at("messages").items();
    if (messages.empty()) view.at("messages").fail_expected("at least one message");
    for (const JsonView& one : messages) {
      WireMessage message = read_message(one, OrderedJson::object());
      add_images(one, message);
      out.messages.push_back(std::move(message));
    }
    if (const auto tools = view.find("tools"); tools && !tools->items().empty()) {
      for (const JsonView& tool : tools->items())
        static_cast<void>(tool.at("function").at("name").as_string());
      out.tools = share(body.ordered("tools"));
      out.tool_choice = ToolChoice::kAuto;
    }
    return 0;
  });
  return out;
}

ChatWire parse_ollama_generate(std::string_view text, const SamplingParams& defaults) {
  const RequestBody body(text);
  ChatWire out;
  with_paths([&] {
    const JsonView view = body.view();
    read_shared(body, defaults, out);
    for (const char* key : {"suffix", "template"})
      if (!view.get_string(key, "").empty())
        throw ApiError(400, "unsupported_value", fmt::format("{}: is not supported", key), key);
    if (view.get_bool("raw", false)) throw ApiError(400, "unsupported_value", "raw: is not supported", "raw");
    if (const std::string system = view.get_string("system", ""); !system.empty())
      out.messages.push_back(text_message("system", system));
    out.messages.push_back(text_message("user", view.at("prompt").as_string()));
    add_images(view, out.messages.back());
    return 0;
  });
  return out;
}

std::unique_ptr<AnswerWriter> make_ollama_writer(std::shared_ptr<Exchange> exchange, const ChatWire& request,
                                                 const ModelHost& host, bool is_chat) {
  return std::make_unique<OllamaWriter>(std::move(exchange), request, host, is_chat);
}

}  // namespace triptych::server

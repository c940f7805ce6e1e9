#include "server/responses_api.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "server/json_text.h"
#include "server/single_writer.h"

namespace triptych::server {
namespace {

const std::set<std::string_view> kOwnFields = {
    "input",      "instructions", "max_output_tokens",   "text",         "store",    "metadata",
    "truncation", "include",      "parallel_tool_calls", "service_tier", "reasoning"};

void read_text_format(const RequestBody& body, SamplingParams& out) {
  const auto text = body.view().find("text");
  const auto format = text ? text->find("format") : std::nullopt;
  if (!format) return;
  const std::string type = format->at("type").as_string();
  if (type == "json_object") {
    set_constraint(out, "text.format", {.json_schema = R"({"type":"object"})"});
  } else if (type == "json_schema") {
    static_cast<void>(format->at("schema"));
    set_constraint(out, "text.format", {.json_schema = body.ordered("text")["format"]["schema"].dump()});
  } else if (type != "text") {
    format->at("type").fail_expected("text, json_object or json_schema");
  }
}

void refuse_what_needs_a_store(const JsonView& view) {
  for (const char* key : {"previous_response_id", "conversation", "prompt"})
    if (view.has(key))
      throw ApiError(400, "unsupported_value", fmt::format("{}: answers are not stored here", key), key);
  if (view.get_bool("background", false))
    throw ApiError(400, "unsupported_value", "background: is not supported", "background");
  if (const auto tools = view.find("tools"); tools && !tools->items().empty())
    throw ApiError(400, "unsupported_value", "tools: use /v1/chat/completions", "tools");
}

class ResponsesWriter : public SingleWriter {
 public:
  ResponsesWriter(std::shared_ptr<Exchange> exchange, const ChatWire& request, const ModelHost& host)
      : SingleWriter(exchange, request.common.stream),
        events_(std::move(exchange)),
        temperature_(request.common.sampling.temperature),
        top_p_(request.common.sampling.top_p),
        max_tokens_(request.common.sampling.max_tokens),
        model_(host.name()),
        id_(new_id("resp_")),
        item_id_(new_id("msg_")),
        created_s_(unix_time_s()) {}

 private:
  OrderedJson response(std::string_view status, OrderedJson output, OrderedJson usage) const {
    return {{"id", id_},
            {"object", "response"},
            {"created_at", created_s_},
            {"status", status},
            {"background", false},
            {"error", nullptr},
            {"incomplete_details",
             status == "incomplete" ? OrderedJson{{"reason", "max_output_tokens"}} : OrderedJson()},
            {"instructions", nullptr},
            {"max_output_tokens", max_tokens_ > 0 ? OrderedJson(max_tokens_) : OrderedJson()},
            {"model", model_},
            {"output", std::move(output)},
            {"parallel_tool_calls", false},
            {"previous_response_id", nullptr},
            {"store", false},
            {"temperature", temperature_},
            {"text", {{"format", {{"type", "text"}}}}},
            {"tool_choice", "auto"},
            {"tools", OrderedJson::array()},
            {"top_p", top_p_},
            {"truncation", "disabled"},
            {"usage", std::move(usage)},
            {"metadata", OrderedJson::object()}};
  }
  static OrderedJson usage_of(const GenerationResult& result) {
    const auto n_answer = static_cast<std::int64_t>(result.token_ids.size());
    return {{"input_tokens", result.n_prompt_tokens},
            {"input_tokens_details",
             {{"cached_tokens", result.n_reused_tokens}, {"image_tokens", result.n_image_tokens}}},
            {"output_tokens", n_answer},
            {"output_tokens_details", {{"reasoning_tokens", 0}}},
            {"total_tokens", result.n_prompt_tokens + n_answer}};
  }
  static OrderedJson part(std::string_view text) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", OrderedJson::array()}};
  }
  OrderedJson item(std::string_view status, OrderedJson content) const {
    return {{"id", item_id_},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }
  void event(const char* type, OrderedJson members) {
    OrderedJson all = {{"type", type}, {"sequence_number", n_events_++}};
    all.update(members);
    events_.send(json_text(all), type);
  }
  OrderedJson place() const { return {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}}; }
  OrderedJson at_place(const char* key, OrderedJson value) const {
    OrderedJson out = place();
    out[key] = std::move(value);
    return out;
  }
  static const char* status_of(const GenerationResult& result) {
    return result.finish_reason == FinishReason::kLength ? "incomplete" : "completed";
  }

  void begin() override {
    event("response.created", {{"response", response("in_progress", OrderedJson::array(), nullptr)}});
    event("response.in_progress", {{"response", response("in_progress", OrderedJson::array(), nullptr)}});
    event("response.output_item.added",
          {{"output_index", 0}, {"item", item("in_progress", OrderedJson::array())}});
    event("response.content_part.added", at_place("part", part("")));
  }
  void delta(std::string_view text) override {
    OrderedJson members = at_place("delta", text);
    members["logprobs"] = OrderedJson::array();
    event("response.output_text.delta", std::move(members));
  }
  void end(const GenerationResult& result) override {
    const OrderedJson done = item(status_of(result), OrderedJson::array({part(text())}));
    OrderedJson members = at_place("text", text());
    members["logprobs"] = OrderedJson::array();
    event("response.output_text.done", std::move(members));
    event("response.content_part.done", at_place("part", part(text())));
    event("response.output_item.done", {{"output_index", 0}, {"item", done}});
    event(result.finish_reason == FinishReason::kLength ? "response.incomplete" : "response.completed",
          {{"response", response(status_of(result), OrderedJson::array({done}), usage_of(result))}});
  }
  void broken(const ApiError& error) override {
    event("error", {{"code", error.error_code()}, {"message", error.what()}, {"param", nullptr}});
  }
  std::string whole(const GenerationResult& result) override {
    const OrderedJson done = item(status_of(result), OrderedJson::array({part(text())}));
    return json_text(response(status_of(result), OrderedJson::array({done}), usage_of(result)));
  }

  EventStream events_;
  const float temperature_, top_p_;
  const std::int64_t max_tokens_;
  const std::string model_, id_, item_id_;
  const std::int64_t created_s_;
  std::int64_t n_events_ = 0;
};

}  // namespace

ChatWire parse_responses_request(std::string_view text, const SamplingParams& defaults) {
  const RequestBody body(text);
  ChatWire out;
  out.common = read_common(body, defaults);
  with_paths([&] {
    const JsonView view = body.view();
    if (out.common.n != 1) view.at("n").fail_expected("1");
    refuse_what_needs_a_store(view);
    read_max_tokens(view, "max_output_tokens", out.common.sampling);
    read_text_format(body, out.common.sampling);
    const auto add = [&](const char* role, const std::string& content) {
      WireMessage message;
      message.role = role;
      message.content_is_string = true;
      message.parts.push_back({.text = content});
      out.messages.push_back(std::move(message));
    };
    if (const std::string instructions = view.get_string("instructions", ""); !instructions.empty())
      add("system", instructions);
    const JsonView input = view.at("input");
    if (input.is_string()) {
      add("user", input.as_string());
    } else {
      const std::vector<JsonView> items = input.items();
      if (items.empty()) input.fail_expected("a text or messages");
      for (const JsonView& one : items) {
        if (one.get_string("type", "message") != "message") one.at("type").fail_expected("message");
        out.messages.push_back(read_message(one, OrderedJson::object()));
      }
    }
    note_unknown(body, kOwnFields, out.common);
    return 0;
  });
  return out;
}

std::unique_ptr<AnswerWriter> make_responses_writer(std::shared_ptr<Exchange> exchange,
                                                    const ChatWire& request, const ModelHost& host) {
  return std::make_unique<ResponsesWriter>(std::move(exchange), request, host);
}

}  // namespace triptych::server

#include "server/messages_api.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "server/json_text.h"
#include "server/single_writer.h"

namespace triptych::server {
namespace {

const std::set<std::string_view> kOwnFields = {"messages",       "system",   "max_tokens",
                                               "stop_sequences", "metadata", "thinking"};

WirePart read_block(const JsonView& view) {
  const std::string type = view.at("type").as_string();
  if (type == "text") return {.text = view.at("text").as_string()};
  if (type != "image") view.at("type").fail_expected("text or image");
  const JsonView source = view.at("source");
  WirePart out{.kind = ContentPart::Kind::kImage};
  if (source.at("type").as_string() == "base64") {
    const JsonView data = source.at("data");
    out.url = "data:" + source.at("media_type").as_string() + ";base64," + data.as_string();
    out.param = data.path().substr(kBodyName.size() + 2);
  } else if (source.at("type").as_string() == "url") {
    out.url = source.at("url").as_string();
    out.param = source.at("url").path().substr(kBodyName.size() + 2);
  } else {
    source.at("type").fail_expected("base64 or url");
  }
  return out;
}

// A text, or blocks.
void read_content(const JsonView& content, WireMessage& out) {
  if (content.is_string()) {
    out.content_is_string = true;
    out.parts.push_back({.text = content.as_string()});
    return;
  }
  for (const JsonView& block : content.items()) out.parts.push_back(read_block(block));
}

class MessagesWriter : public SingleWriter {
 public:
  MessagesWriter(std::shared_ptr<Exchange> exchange, const ChatWire& request, const ModelHost& host)
      : SingleWriter(exchange, request.common.stream),
        events_(std::move(exchange)),
        model_(host.name()),
        id_(new_id("msg_")) {}

 private:
  OrderedJson message(OrderedJson content, OrderedJson stop_reason, OrderedJson stop_sequence,
                      OrderedJson usage) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_},
            {"content", std::move(content)},
            {"stop_reason", std::move(stop_reason)},
            {"stop_sequence", std::move(stop_sequence)},
            {"usage", std::move(usage)}};
  }
  static OrderedJson usage_of(const GenerationResult& result) {
    return {{"input_tokens", result.n_prompt_tokens - result.n_reused_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", result.n_reused_tokens},
            {"output_tokens", result.token_ids.size()}};
  }
  static OrderedJson stop_reason_of(const GenerationResult& result) {
    return result.finish_reason == FinishReason::kLength ? "max_tokens"
           : result.stop_string.empty()                  ? "end_turn"
                                                         : "stop_sequence";
  }
  static OrderedJson stop_sequence_of(const GenerationResult& result) {
    return result.stop_string.empty() ? OrderedJson() : OrderedJson(result.stop_string);
  }
  void event(const char* type, OrderedJson members) {
    OrderedJson all = {{"type", type}};
    all.update(members);
    events_.send(json_text(all), type);
  }

  void begin() override {
    event("message_start", {{"message", message(OrderedJson::array(), nullptr, nullptr,
                                                {{"input_tokens", 0}, {"output_tokens", 0}})}});
    event("content_block_start", {{"index", 0}, {"content_block", {{"type", "text"}, {"text", ""}}}});
  }
  void delta(std::string_view text) override {
    event("content_block_delta", {{"index", 0}, {"delta", {{"type", "text_delta"}, {"text", text}}}});
  }
  void end(const GenerationResult& result) override {
    event("content_block_stop", {{"index", 0}});
    event("message_delta",
          {{"delta", {{"stop_reason", stop_reason_of(result)}, {"stop_sequence", stop_sequence_of(result)}}},
           {"usage", usage_of(result)}});
    event("message_stop", OrderedJson::object());
  }
  void broken(const ApiError& error) override {
    event("error", {{"error", {{"type", error.type()}, {"message", error.what()}}}});
  }
  std::string whole(const GenerationResult& result) override {
    return json_text(message(OrderedJson::array({{{"type", "text"}, {"text", text()}}}),
                             stop_reason_of(result), stop_sequence_of(result), usage_of(result)));
  }

  EventStream events_;
  const std::string model_, id_;
};

}  // namespace

ChatWire parse_messages_request(std::string_view text, const SamplingParams& defaults) {
  const RequestBody body(text);
  ChatWire out;
  out.common = read_common(body, defaults);
  with_paths([&] {
    const JsonView view = body.view();
    if (out.common.n != 1) view.at("n").fail_expected("1");
    static_cast<void>(view.at("max_tokens"));
    read_max_tokens(view, "max_tokens", out.common.sampling);
    if (const auto tools = view.find("tools"); tools && !tools->items().empty())
      throw ApiError(400, "unsupported_value", "tools: use /v1/chat/completions", "tools");
    if (const auto stops = view.find("stop_sequences"))
      for (const JsonView& stop : stops->items()) out.common.sampling.stop.push_back(stop.as_string());
    std::erase(out.common.sampling.stop, std::string());
    if (const auto system = view.find("system")) {
      WireMessage message;
      message.role = "system";
      read_content(*system, message);
      out.messages.push_back(std::move(message));
    }
    const std::vector<JsonView> messages = view.at("messages").items();
    if (messages.empty()) view.at("messages").fail_expected("at least one message");
    for (const JsonView& one : messages) {
      WireMessage message;
      message.role = one.at("role").as_string();
      if (message.role != "user" && message.role != "assistant")
        one.at("role").fail_expected("user or assistant");
      read_content(one.at("content"), message);
      out.messages.push_back(std::move(message));
    }
    // An answer that is begun already goes on.
    if (out.messages.back().role == "assistant") {
      out.continue_final_message = true;
      out.add_generation_prompt = false;
    }
    note_unknown(body, kOwnFields, out.common);
    return 0;
  });
  return out;
}

std::unique_ptr<AnswerWriter> make_messages_writer(std::shared_ptr<Exchange> exchange,
                                                   const ChatWire& request, const ModelHost& host) {
  return std::make_unique<MessagesWriter>(std::move(exchange), request, host);
}

}  // namespace triptych::server

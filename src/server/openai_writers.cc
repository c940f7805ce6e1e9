#include "server/openai_writers.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "server/event_stream.h"
#include "server/json_text.h"
#include "server/tool_calls.h"
#include "unicode/utf8.h"

namespace triptych::server {
namespace {

OrderedJson byte_array(const std::string& bytes) {
  OrderedJson out = OrderedJson::array();
  for (const char c : bytes) out.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return out;
}

OrderedJson logprob_json(const ModelHost& host, std::int32_t id, float logprob) {
  const std::string& bytes = host.token_bytes(id);
  return {{"token", bytes}, {"logprob", logprob}, {"bytes", byte_array(bytes)}};
}

// One element of "content" in the logprobs of a chat.
OrderedJson token_json(const ModelHost& host, const SampledToken& token) {
  OrderedJson out = logprob_json(host, token.id, token.logprob);
  OrderedJson top = OrderedJson::array();
  for (const TokenLogprob& one : token.top) top.push_back(logprob_json(host, one.id, one.logprob));
  out["top_logprobs"] = std::move(top);
  return out;
}

OrderedJson call_json(const ToolCall& call) {
  return {{"id", new_id("call_")},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

OrderedJson stop_reason_json(const GenerationResult& result) {
  return result.stop_string.empty() ? OrderedJson() : OrderedJson(result.stop_string);
}

std::string finish_reason_of(const GenerationResult& result) {
  return result.finish_reason == FinishReason::kLength ? "length" : "stop";
}

// What the stages of an answer took, as llama.cpp's server and `run --json` have them; milliseconds.
OrderedJson timings_json(const GenerationTimings& t) {
  return {{"queue_ms", t.queue_ms},           {"image_decode_ms", t.image_decode_ms},
          {"preprocess_ms", t.preprocess_ms}, {"encode_ms", t.encode_ms},
          {"prefill_ms", t.prefill_ms},       {"decode_ms", t.decode_ms}};
}

// Boxes and points that an answer names, as in `run --json`: corners x, y one after another.
OrderedJson boxes_json(const std::vector<Region>& regions) {
  OrderedJson out = OrderedJson::array();
  for (const Region& region : regions) {
    OrderedJson thousandths = OrderedJson::array(), pixels = OrderedJson::array();
    for (const PointPerMille& p : region.points_1000) {
      thousandths.push_back(p.x);
      thousandths.push_back(p.y);
    }
    for (const PointPx& p : region.points_px) {
      pixels.push_back(p.x);
      pixels.push_back(p.y);
    }
    out.push_back({{"type", to_string(region.kind)},
                   {"label", region.label},
                   {"image", region.media_index},
                   {"thousandths", std::move(thousandths)},
                   {"pixels", std::move(pixels)}});
  }
  return out;
}

class ChatWriter : public AnswerWriter {
 public:
  ChatWriter(std::shared_ptr<Exchange> exchange, const ModelHost& host, const ChatWire& request)
      : events_(std::move(exchange)),
        host_(host),
        stream_(request.common.stream),
        include_usage_(request.common.include_usage),
        with_logprobs_(request.common.sampling.n_logprobs >= 0),
        tool_choice_(request.tool_choice),
        tool_name_(request.tool_name),
        answers_(static_cast<std::size_t>(request.common.n)) {
    head_ =
        fmt::format(R"("id":{},"object":"{}","created":{},"model":{},"system_fingerprint":null)",
                    json_string(new_id("chatcmpl-")), stream_ ? "chat.completion.chunk" : "chat.completion",
                    unix_time_s(), json_string(host.name()));
  }

  void token(std::size_t i, const TokenEvent& event) override {
    Answer& answer = answers_[i];
    std::string text = event.text;
    std::vector<ToolCall> calls;
    if (tool_choice_ == ToolChoice::kAuto) {
      ToolCallParser::Piece piece = answer.parser.push(text);
      text = std::move(piece.text);
      calls = std::move(piece.calls);
    } else if (must_call()) {
      answer.whole += text;
      text.clear();
    }
    add(i, text, calls, with_logprobs_ ? &event.token : nullptr);
  }

  std::string finished(std::size_t i, const GenerationResult& result) override {
    Answer& answer = answers_[i];
    if (tool_choice_ == ToolChoice::kAuto) {
      const ToolCallParser::Piece rest = answer.parser.finish();
      add(i, rest.text, rest.calls, nullptr);
    } else if (tool_choice_ == ToolChoice::kNamed) {
      add(i, {}, {{tool_name_, answer.whole}}, nullptr);
    } else if (tool_choice_ == ToolChoice::kRequired) {
      const std::vector<ToolCall> calls = parse_required_calls(answer.whole);
      add(i, calls.empty() ? answer.whole : std::string(), calls, nullptr);
    }
    const bool has_called = answer.n_calls > 0 && result.finish_reason == FinishReason::kStop;
    answer.finish_reason = has_called ? "tool_calls" : finish_reason_of(result);
    if (stream_) {
      begin(i);
      const std::string boxes =
          result.regions.empty() ? "" : fmt::format(R"(,"boxes":{})", json_text(boxes_json(result.regions)));
      send(fmt::format(
          R"({{"index":{},"delta":{{}},"logprobs":null,"finish_reason":"{}","stop_reason":{}{}}})", i,
          answer.finish_reason, json_text(stop_reason_json(result)), boxes));
    }
    return answer.finish_reason;
  }

  void all_finished(const std::vector<GenerationResult>& results) override {
    const std::string usage = json_text(usage_json(results, results.size()));
    const std::string timings = json_text(timings_json(results.front().timings));
    if (stream_) {
      if (include_usage_)
        events_.send(fmt::format(R"({{{},"choices":[],"usage":{},"timings":{}}})", head_, usage, timings));
      events_.send("[DONE]");
      events_.end();
      return;
    }
    OrderedJson choices = OrderedJson::array();
    for (std::size_t i = 0; i < answers_.size(); ++i) choices.push_back(choice_json(i, results[i]));
    HttpResponse response;
    response.body = fmt::format(R"({{{},"choices":{},"usage":{},"timings":{}}})", head_, json_text(choices),
                                usage, timings);
    events_.exchange().respond(std::move(response));
  }

  void failed(const ApiError& error) override {
    if (!events_.has_begun()) {
      events_.exchange().respond(error.response());
      return;
    }
    events_.send(error.body());
    events_.send("[DONE]");
    events_.end();
  }

 private:
  struct Answer {
    bool begun = false;
    ToolCallParser parser;
    std::string whole;  // of calls that must come
    std::size_t n_calls = 0;
    std::string finish_reason;
    // When the answer is not streamed.
    std::string text;
    OrderedJson calls = OrderedJson::array();
    OrderedJson logprobs = OrderedJson::array();
  };

  bool must_call() const {
    return tool_choice_ == ToolChoice::kNamed || tool_choice_ == ToolChoice::kRequired;
  }

  void send(std::string_view choice) {
    events_.send(
        fmt::format(R"({{{},"choices":[{}]{}}})", head_, choice, include_usage_ ? R"(,"usage":null)" : ""));
  }

  void begin(std::size_t i) {
    if (std::exchange(answers_[i].begun, true)) return;
    send(fmt::format(
        R"({{"index":{},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}})",
        i));
  }

  void add(std::size_t i, const std::string& text, const std::vector<ToolCall>& calls,
           const SampledToken* token) {
    Answer& answer = answers_[i];
    if (!stream_) {
      answer.text += text;
      for (const ToolCall& call : calls) answer.calls.push_back(call_json(call));
      answer.n_calls += calls.size();
      if (token != nullptr) answer.logprobs.push_back(token_json(host_, *token));
      return;
    }
    begin(i);
    if (!text.empty() || token != nullptr) {
      const std::string logprobs =
          token == nullptr ? "null"
                           : fmt::format(R"({{"content":[{}]}})", json_text(token_json(host_, *token)));
      send(fmt::format(R"({{"index":{},"delta":{{"content":{}}},"logprobs":{},"finish_reason":null}})", i,
                       json_string(text), logprobs));
    }
    for (const ToolCall& call : calls) {
      OrderedJson json = {{"index", answer.n_calls++}};
      json.update(call_json(call));
      send(fmt::format(R"({{"index":{},"delta":{{"tool_calls":[{}]}},"logprobs":null,"finish_reason":null}})",
                       i, json_text(json)));
    }
  }

  OrderedJson choice_json(std::size_t i, const GenerationResult& result) {
    Answer& answer = answers_[i];
    const bool only_calls =
        answer.n_calls > 0 && answer.text.find_first_not_of(" \n\r\t") == std::string::npos;
    OrderedJson message = {{"role", "assistant"},
                           {"content", only_calls ? OrderedJson() : OrderedJson(std::move(answer.text))},
                           {"refusal", nullptr}};
    if (answer.n_calls > 0) message["tool_calls"] = std::move(answer.calls);
    OrderedJson out = {{"index", i}, {"message", std::move(message)}};
    if (with_logprobs_) {
      out["logprobs"] = {{"content", std::move(answer.logprobs)}};
    } else {
      out["logprobs"] = nullptr;
    }
    out["finish_reason"] = answer.finish_reason;
    out["stop_reason"] = stop_reason_json(result);
    if (!result.regions.empty()) out["boxes"] = boxes_json(result.regions);
    return out;
  }

  EventStream events_;
  const ModelHost& host_;
  const bool stream_, include_usage_, with_logprobs_;
  const ToolChoice tool_choice_;
  const std::string tool_name_;
  std::string head_;
  std::vector<Answer> answers_;
};

class CompletionWriter : public AnswerWriter {
 public:
  CompletionWriter(std::shared_ptr<Exchange> exchange, const ModelHost& host, const CompletionWire& request,
                   std::vector<std::string> prompts)
      : events_(std::move(exchange)),
        host_(host),
        stream_(request.common.stream),
        include_usage_(request.common.include_usage),
        with_logprobs_(request.common.sampling.n_logprobs >= 0),
        n_a_prompt_(static_cast<std::size_t>(request.common.n)),
        prompts_(std::move(prompts)),
        answers_(request.prompts.size() * n_a_prompt_) {
    head_ = fmt::format(R"("id":{},"object":"text_completion","created":{},"model":{})",
                        json_string(new_id("cmpl-")), unix_time_s(), json_string(host.name()));
  }

  void token(std::size_t i, const TokenEvent& event) override {
    Answer& answer = answers_[i];
    std::string text = std::exchange(answer.begun, true) ? "" : echo_of(i);
    const std::size_t offset = answer.n_bytes + text.size();
    text += event.text;
    if (with_logprobs_) note(answer, event.token, offset);
    answer.n_bytes += text.size();
    if (!stream_) {
      answer.text += text;
    } else if (!text.empty() || with_logprobs_) {
      const std::string logprobs = with_logprobs_ ? json_text(std::exchange(answer.logprobs, {})) : "null";
      send(fmt::format(R"({{"index":{},"text":{},"logprobs":{},"finish_reason":null}})", i, json_string(text),
                       logprobs));
    }
  }

  std::string finished(std::size_t i, const GenerationResult& result) override {
    Answer& answer = answers_[i];
    const std::string text = answer.begun ? "" : echo_of(i);
    const std::string reason = finish_reason_of(result);
    if (stream_) {
      send(fmt::format(R"({{"index":{},"text":{},"logprobs":null,"finish_reason":"{}","stop_reason":{}}})", i,
                       json_string(text), reason, json_text(stop_reason_json(result))));
    } else {
      answer.text += text;
    }
    return reason;
  }

  void all_finished(const std::vector<GenerationResult>& results) override {
    const std::string usage = json_text(usage_json(results, n_a_prompt_));
    if (stream_) {
      if (include_usage_) events_.send(fmt::format(R"({{{},"choices":[],"usage":{}}})", head_, usage));
      events_.send("[DONE]");
      events_.end();
      return;
    }
    OrderedJson choices = OrderedJson::array();
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      OrderedJson choice = {{"index", i}, {"text", std::move(answers_[i].text)}};
      choice["logprobs"] = with_logprobs_ ? std::move(answers_[i].logprobs) : OrderedJson();
      choice["finish_reason"] = finish_reason_of(results[i]);
      choice["stop_reason"] = stop_reason_json(results[i]);
      choices.push_back(std::move(choice));
    }
    HttpResponse response;
    response.body = fmt::format(R"({{{},"choices":{},"usage":{}}})", head_, json_text(choices), usage);
    events_.exchange().respond(std::move(response));
  }

  void failed(const ApiError& error) override {
    if (!events_.has_begun()) {
      events_.exchange().respond(error.response());
      return;
    }
    events_.send(error.body());
    events_.send("[DONE]");
    events_.end();
  }

 private:
  struct Answer {
    bool begun = false;
    std::size_t n_bytes = 0;
    std::string text;
    OrderedJson logprobs;
  };

  std::string echo_of(std::size_t i) const { return prompts_.empty() ? "" : prompts_[i / n_a_prompt_]; }

  void note(Answer& answer, const SampledToken& token, std::size_t offset) {
    OrderedJson& all = answer.logprobs;
    if (all.is_null())
      all = {{"text_offset", OrderedJson::array()},
             {"token_logprobs", OrderedJson::array()},
             {"tokens", OrderedJson::array()},
             {"top_logprobs", OrderedJson::array()}};
    all["text_offset"].push_back(offset);
    all["token_logprobs"].push_back(token.logprob);
    all["tokens"].push_back(host_.token_bytes(token.id));
    OrderedJson top = OrderedJson::object();
    for (const TokenLogprob& one : token.top)
      top[utf8::is_valid(host_.token_bytes(one.id)) ? host_.token_bytes(one.id)
                                                    : fmt::format("token_id:{}", one.id)] = one.logprob;
    all["top_logprobs"].push_back(std::move(top));
  }

  void send(std::string_view choice) {
    events_.send(
        fmt::format(R"({{{},"choices":[{}]{}}})", head_, choice, include_usage_ ? R"(,"usage":null)" : ""));
  }

  EventStream events_;
  const ModelHost& host_;
  const bool stream_, include_usage_, with_logprobs_;
  const std::size_t n_a_prompt_;
  const std::vector<std::string> prompts_;
  std::string head_;
  std::vector<Answer> answers_;
};

}  // namespace

OrderedJson usage_json(const std::vector<GenerationResult>& results, std::size_t answers_a_prompt) {
  std::int64_t n_prompt = 0, n_answer = 0, n_cached = 0, n_image = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    n_answer += static_cast<std::int64_t>(results[i].token_ids.size());
    if (i % answers_a_prompt != 0) continue;
    n_prompt += results[i].n_prompt_tokens;
    n_cached += results[i].n_reused_tokens;
    n_image += results[i].n_image_tokens;
  }
  return {{"prompt_tokens", n_prompt},
          {"completion_tokens", n_answer},
          {"total_tokens", n_prompt + n_answer},
          {"prompt_tokens_details", {{"cached_tokens", n_cached}, {"image_tokens", n_image}}}};
}

std::unique_ptr<AnswerWriter> make_chat_writer(std::shared_ptr<Exchange> exchange, const ModelHost& host,
                                               const ChatWire& request) {
  return std::make_unique<ChatWriter>(std::move(exchange), host, request);
}

std::unique_ptr<AnswerWriter> make_completion_writer(std::shared_ptr<Exchange> exchange,
                                                     const ModelHost& host, const CompletionWire& request,
                                                     std::vector<std::string> prompts) {
  return std::make_unique<CompletionWriter>(std::move(exchange), host, request, std::move(prompts));
}

}  // namespace triptych::server

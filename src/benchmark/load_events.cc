#include "benchmark/load_events.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace triptych {
namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;
constexpr std::size_t kMaxMessage_bytes = 300;

std::optional<std::int64_t> count_of(const JsonView& object, std::string_view key) {
  const auto found = object.find(key);
  if (!found) return std::nullopt;
  return found->as_int(0, kMaxTokens);
}

bool is_text(const JsonView& delta, std::string_view key) {
  const auto found = delta.find(key);
  return found && found->is_string() && !found->as_string().empty();
}

void read_usage(const JsonView& usage, ChatEvent& out) {
  out.n_prompt_tokens = count_of(usage, "prompt_tokens");
  out.n_answer_tokens = count_of(usage, "completion_tokens");
  if (const auto details = usage.find("prompt_tokens_details")) {
    out.n_image_tokens = count_of(*details, "image_tokens");
    out.n_cached_tokens = count_of(*details, "cached_tokens");
  }
}

// Other servers have members of this name with other contents: what is no number is passed over.
void read_timings(const JsonView& timings, GenerationTimings& out) {
  const auto take = [&](std::string_view key, double& to) {
    const auto found = timings.find(key);
    if (found && found->is_number()) to = found->as_double();
  };
  if (!timings.is_object()) return;
  take("queue_ms", out.queue_ms);
  take("image_decode_ms", out.image_decode_ms);
  take("preprocess_ms", out.preprocess_ms);
  take("encode_ms", out.encode_ms);
  take("prefill_ms", out.prefill_ms);
  take("decode_ms", out.decode_ms);
}

std::string message_of(const JsonView& error) {
  if (error.is_string()) return error.as_string();
  if (error.is_object())
    if (const auto message = error.find("message"); message && message->is_string())
      return message->as_string();
  return "an error without a message";
}

}  // namespace

void EventLines::feed(std::string_view bytes, FunctionRef<void(std::string_view)> on_data) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + part.size() > kMaxLine_bytes)
      fail(ErrorCode::kInvalidFile, "the stream of events: expected lines of at most {} bytes",
           kMaxLine_bytes);
    line_ += part;
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("data:")) {
      line.remove_prefix(5);
      if (line.starts_with(' ')) line.remove_prefix(1);
      on_data(line);
    }
    line_.clear();
  }
}

ChatEvent read_chat_event(std::string_view data) {
  ChatEvent out;
  if (data == "[DONE]") {
    out.is_last = true;
    return out;
  }
  const Json document = parse_json(data, "an event");
  const JsonView event(document, "an event");
  if (const auto error = event.find("error")) out.error = message_of(*error);
  if (const auto choices = event.find("choices"))
    for (const JsonView& choice : choices->items())
      if (const auto delta = choice.find("delta"))
        out.has_text = out.has_text || is_text(*delta, "content") || is_text(*delta, "reasoning_content") ||
                       is_text(*delta, "reasoning");
  if (const auto usage = event.find("usage")) read_usage(*usage, out);
  if (const auto timings = event.find("timings")) read_timings(*timings, out.timings);
  return out;
}

std::string refusal_message(std::string_view body) {
  try {
    const Json document = parse_json(body, "the answer");
    const JsonView answer(document, "the answer");
    if (const auto error = answer.find("error")) return message_of(*error).substr(0, kMaxMessage_bytes);
  } catch (const Error&) {  // then it is text for people
  }
  return std::string(body.substr(0, kMaxMessage_bytes));
}

}  // namespace triptych

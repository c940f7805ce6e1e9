// Streams of server-sent events as OpenAI's chat completions send them, read for what a load test counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "engine/request.h"

namespace triptych {

/// Splits a stream into the data of its events (WHATWG HTML, 9.2.6). One line is one event: that is all that
/// these servers send.
class EventLines {
 public:
  static constexpr std::size_t kMaxLine_bytes = std::size_t{4} << 20;
  /// Calls `on_data` with what stands behind "data:" of each line that is whole. Throws
  /// Error(kInvalidFile) for a line over the limit.
  void feed(std::string_view bytes, FunctionRef<void(std::string_view)> on_data);

 private:
  std::string line_;  // begun, not ended
};

/// What one event of a chat completion says.
struct ChatEvent {
  bool is_last = false;   // [DONE]
  bool has_text = false;  // of an answer, its reasoning included
  std::optional<std::int64_t> n_prompt_tokens, n_image_tokens, n_cached_tokens, n_answer_tokens;
  GenerationTimings timings;         // where the server says them; else zeros
  std::optional<std::string> error;  // message of an error in the midst of a stream
};
/// Throws Error(kInvalidFile) for what is no JSON object or has members of other types.
ChatEvent read_chat_event(std::string_view data);

/// The message in the body of an answer that refuses: OpenAI's error object, or the text's beginning.
std::string refusal_message(std::string_view body);

}  // namespace triptych

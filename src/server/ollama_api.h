// Ollama's /api/chat and /api/generate, which many front ends speak alone.
#pragma once

#include <memory>
#include <string_view>

#include "server/chat_request.h"
#include "server/generation.h"
#include "server/model_host.h"

namespace triptych::server {

/// As chats with streaming unless it is turned off; `images` (base64) go before the text of their message.
/// Throws ApiError with the field's path.
ChatWire parse_ollama_chat(std::string_view body, const SamplingParams& defaults);
/// `system`, `prompt` and `images` become a chat. `raw`, `suffix` and `template` are refused.
ChatWire parse_ollama_generate(std::string_view body, const SamplingParams& defaults);

/// Lines of JSON, or one object. `is_chat`: "message" instead of "response".
std::unique_ptr<AnswerWriter> make_ollama_writer(std::shared_ptr<Exchange> exchange, const ChatWire& request,
                                                 const ModelHost& host, bool is_chat);

}  // namespace triptych::server

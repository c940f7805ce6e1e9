// Anthropic's /v1/messages: texts and pictures in, a text out, whole or as events. No tools.
#pragma once

#include <memory>
#include <string_view>

#include "server/chat_request.h"
#include "server/generation.h"
#include "server/model_host.h"

namespace triptych::server {

/// Throws ApiError with the field's path.
ChatWire parse_messages_request(std::string_view body, const SamplingParams& defaults);

std::unique_ptr<AnswerWriter> make_messages_writer(std::shared_ptr<Exchange> exchange,
                                                   const ChatWire& request, const ModelHost& host);

}  // namespace triptych::server

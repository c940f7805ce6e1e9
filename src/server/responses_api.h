// OpenAI's /v1/responses: texts and pictures in, a text out, whole or as events. Nothing is stored: no
// previous_response_id, no background, and no tools.
#pragma once

#include <memory>
#include <string_view>

#include "server/chat_request.h"
#include "server/generation.h"
#include "server/model_host.h"

namespace triptych::server {

/// Throws ApiError with the field's path.
ChatWire parse_responses_request(std::string_view body, const SamplingParams& defaults);

std::unique_ptr<AnswerWriter> make_responses_writer(std::shared_ptr<Exchange> exchange,
                                                    const ChatWire& request, const ModelHost& host);

}  // namespace triptych::server

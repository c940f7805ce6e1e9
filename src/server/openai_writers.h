// Answers in the forms of OpenAI's API: chat.completion and text_completion, whole or as server-sent events.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/chat_request.h"
#include "server/generation.h"
#include "server/http.h"
#include "server/model_host.h"

namespace triptych::server {

/// "prompt_tokens", "completion_tokens", "total_tokens" and "prompt_tokens_details" (cached and image
/// tokens) of the answers to one or more prompts; `answers_a_prompt` of them share a prompt.
OrderedJson usage_json(const std::vector<GenerationResult>& results, std::size_t answers_a_prompt);

std::unique_ptr<AnswerWriter> make_chat_writer(std::shared_ptr<Exchange> exchange, const ModelHost& host,
                                               const ChatWire& request);

/// `prompts`: texts to echo, one a prompt; empty: none are wanted.
std::unique_ptr<AnswerWriter> make_completion_writer(std::shared_ptr<Exchange> exchange,
                                                     const ModelHost& host, const CompletionWire& request,
                                                     std::vector<std::string> prompts);

}  // namespace triptych::server

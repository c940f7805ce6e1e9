// The body of /v1/chat/completions and /v1/completions, and what they become: requests free of any wire form,
// with pictures still as the text that names them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/video_file.h"
#include "server/request_fields.h"
#include "text/chat_template.h"

namespace triptych::server {

struct WirePart {
  ContentPart::Kind kind = ContentPart::Kind::kText;
  std::string text = {};    // of kText
  std::string url = {};     // of kImage and kVideo: a data URL as a rule
  std::string detail = {};  // "auto", "low", "high"
  // Of kVideo: an animation's URL, or those of its frames; `url` is empty then.
  std::vector<std::string> frame_urls = {};
  VideoOptions video = {};
  std::string param = {};                           // "messages[0].content[1].image_url.url"
  std::shared_ptr<const std::string> fetched = {};  // what stands behind the URL, when it was fetched already
};

struct WireMessage {
  std::string role;
  std::vector<WirePart> parts;
  bool content_is_string = false, content_is_null = false;
  OrderedJsonPtr fields;  // tool_calls, tool_call_id, name...; null: none
};

enum class ToolChoice {
  kNone,      // no tools, or none wanted
  kAuto,      // the model may call
  kRequired,  // it has to
  kNamed,     // it has to call tool_name
};

struct ChatWire {
  CommonParams common;
  std::vector<WireMessage> messages;
  OrderedJsonPtr tools;  // null: none
  ToolChoice tool_choice = ToolChoice::kNone;
  std::string tool_name;
  OrderedJsonPtr template_variables;  // chat_template_kwargs
  bool add_generation_prompt = true, continue_final_message = false;
};

/// Throws ApiError with the field's path. `defaults` is the model's own sampling.
ChatWire parse_chat_request(std::string_view body, const SamplingParams& defaults);

/// One message with its parts; `ordered` is the same in the client's order, for members beyond role and
/// content, or an empty object. Throws what JsonView throws, or ApiError.
WireMessage read_message(const JsonView& view, const OrderedJson& ordered);

struct CompletionPrompt {
  std::string text = {};
  std::vector<std::int32_t> ids = {};  // in place of the text
  bool is_ids = false;
};

struct CompletionWire {
  CommonParams common;
  std::vector<CompletionPrompt> prompts;  // one or more
  bool echo = false;
};

CompletionWire parse_completion_request(std::string_view body, const SamplingParams& defaults);

}  // namespace triptych::server

// Chat templates: conversation -> prompt text. A template is a Jinja program that ships with a checkpoint; it
// is run by the bounded interpreter in src/jinja/ exactly as Hugging Face transformers runs it (jinja2
// ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls, {% generation %}, its own tojson,
// raise_exception, strftime_now).
//
// The prompt is returned as spans: text that came from the conversation keeps a mark through every operation
// of the template, so that a tokenizer can refuse to read control or image tokens in it. User text is never
// evaluated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace triptych {

/// A JSON value in the order the client wrote it, in which templates print it. Null pointer: null.
using OrderedJsonPtr = std::shared_ptr<const OrderedJson>;
OrderedJsonPtr share(OrderedJson value);

/// One element of a message's content list, in the order the client gave.
struct ContentPart {
  enum class Kind { kText, kImage, kVideo };
  Kind kind = Kind::kText;
  std::string text;  // kText only; UTF-8 (invalid bytes become U+FFFD)
};

struct ChatMessage {
  std::string role;
  std::vector<ContentPart> parts;
  /// True when the client gave the content as one plain string (then `parts` holds at most one text).
  /// Templates that only know the other form get it converted, see ChatTemplate::render.
  bool content_is_string = false;
  /// True when the content was null or absent (an assistant message that only calls tools). `parts` is empty
  /// then.
  bool content_is_null = false;
  /// Further members of the message: tool_calls, tool_call_id, name, reasoning_content... An object or null.
  OrderedJsonPtr fields;

  static ChatMessage text(std::string role, std::string content);
};

struct ChatInput {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
  /// The prompt ends inside the last message, right after its text. Excludes add_generation_prompt.
  bool continue_final_message = false;
  /// "bos_token" -> "<s>", "eos_token", "pad_token", "unk_token"... A name that is absent is undefined in the
  /// template.
  std::map<std::string, std::string> special_tokens;
  OrderedJsonPtr tools;  // array of tool schemas, or null
  OrderedJsonPtr
      variables;  // object of further variables (add_vision_id, enable_thinking, documents...), or null
  /// Trusted text that stands for an image or video part where the template only knows plain strings. Empty:
  /// such a part is then an error.
  std::string image_placeholder;
  std::string video_placeholder;
  /// False: every content is passed in the form the client gave and nothing is checked, as transformers does.
  bool adapt_content = true;
  /// Local time for strftime_now; absent: the machine's clock.
  std::optional<std::tm> now;
};

/// A stretch of the prompt. Spans follow each other without gaps; neighbours differ in is_user_text.
/// The prompt is one text: join the spans before pre-tokenizing; only special tokens that lie wholly in spans
/// with is_user_text == false may be recognised.
struct RenderedSpan {
  std::string text;
  bool is_user_text =
      false;  // came from a message, a tool or a variable, not from the template or special_tokens
};

/// Joins the spans.
std::string to_text(const std::vector<RenderedSpan>& spans);

/// Bounds of one render. A template that exceeds one fails with Error(kInvalidArgument).
struct ChatTemplateLimits {
  std::uint64_t max_steps = 20'000'000;       // expressions and statements; long strings count more
  std::size_t max_memory_bytes = 256u << 20;  // values alive at the same time
  std::size_t max_output_bytes = 64u << 20;
};

class ChatTemplate {
 public:
  /// What a template can do, found by rendering small probes when it is loaded.
  struct Capabilities {
    bool string_content = false;  // prints a content that is a plain string
    bool parts_content = false;   // prints the text parts of a content that is a list
    bool system_role = false;     // prints a system message
    bool images = false;          // prints something for an image part
    bool tools = false;           // output changes with tools
  };

  /// `name` is used in errors ("chat_template.jinja:12: ..."). Throws Error(kInvalidFile) for a syntax error,
  /// Error(kUnsupported) for include, import, extends and other things that are refused by name.
  static ChatTemplate parse(std::string_view source, std::string_view name);

  /// Reads the template of a checkpoint directory: chat_template.jinja (with
  /// additional_chat_templates/*.jinja), else chat_template.json, else processor_config.json, else
  /// tokenizer_config.json; the JSON files hold a string or a list of {"name", "template"}. `template_name`
  /// picks a named template; "" takes "default", and "tool_use" when a render has tools. Nothing when the
  /// directory has no template. Throws Error(kInvalidFile), or kNotFound for a `template_name` that does not
  /// exist (the message lists the names).
  static std::optional<ChatTemplate> from_directory(const std::filesystem::path& directory,
                                                    std::string_view template_name = "");

  /// The prompt. Content is adapted to what the template knows: a string becomes a list of one text part,
  /// text parts are joined with "\n", where only the other form is printed. Throws Error(kInvalidArgument):
  /// what the template says through raise_exception, verbatim; or "name:line: ..." for other failures and
  /// exceeded limits; or a system or user message whose text would not reach the prompt.
  std::vector<RenderedSpan> render(const ChatInput& input) const;

  const Capabilities& capabilities() const noexcept;
  /// Names of the templates held: "default", "tool_use"...
  std::vector<std::string> names() const;
  void set_limits(const ChatTemplateLimits& limits);

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
  ChatTemplateLimits limits_;
};

}  // namespace triptych

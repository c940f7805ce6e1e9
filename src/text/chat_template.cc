// Input -> variables of the template, output -> spans, and the probes that find out what a template can do.
// Variables are those of transformers' apply_chat_template (tokenization_utils_base.py, 4.49).
#include "text/chat_template.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "jinja/evaluator.h"
#include "jinja/json_values.h"
#include "jinja/parser.h"
#include "text/chat_template_impl.h"
#include "unicode/python.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

using jinja::DictObject;
using jinja::Evaluator;
using jinja::MarkedString;
using jinja::Origin;
using jinja::Value;

constexpr Origin kInputOrigin = 1;         // roles, tools, variables
constexpr Origin kFirstMessageOrigin = 2;  // the text of message i has kFirstMessageOrigin + i
constexpr std::size_t kMaxTemplateBytes = 4u << 20;

Origin message_origin(std::size_t index) { return kFirstMessageOrigin + static_cast<Origin>(index); }

std::tm local_time() {
  const std::time_t seconds = std::time(nullptr);
  std::tm out{};
  localtime_r(&seconds, &out);
  return out;
}

/// What a template is given as the content of a message.
enum class ContentForm { kString, kParts };

ContentForm content_form(const ChatMessage& message, const ChatTemplate::Capabilities& can, bool adapt) {
  if (!adapt) return message.content_is_string ? ContentForm::kString : ContentForm::kParts;
  if (message.content_is_string)
    return !can.string_content && can.parts_content ? ContentForm::kParts : ContentForm::kString;
  return !can.parts_content && can.string_content ? ContentForm::kString : ContentForm::kParts;
}

const OrderedJson& value_of(const OrderedJsonPtr& pointer) {
  static const OrderedJson null;
  return pointer ? *pointer : null;
}

class InputBuilder {
 public:
  InputBuilder(Evaluator& evaluator, const ChatInput& input, const ChatTemplate::Capabilities& can)
      : evaluator_(evaluator), input_(input), can_(can) {}

  void run() {
    DictObject& out = evaluator_.variables();
    for (const auto& [name, text] : input_.special_tokens)
      set(out, name, jinja::text_value(evaluator_, text, jinja::kTemplateOrigin));
    set(out, "documents", Value::none());
    const OrderedJson& variables = value_of(input_.variables);
    if (variables.is_object()) {
      for (const auto& [name, value] : variables.items()) {
        if (name == "messages" || name == "tools" || name == "add_generation_prompt")
          fail(ErrorCode::kInvalidArgument, "variables: '{}' is set by its own field", name);
        set(out, name, jinja::value_from_json(evaluator_, value, kInputOrigin));
      }
    } else if (!variables.is_null()) {
      fail(ErrorCode::kInvalidArgument, "variables: expected an object");
    }
    set(out, "tools", jinja::value_from_json(evaluator_, value_of(input_.tools), kInputOrigin));
    set(out, "add_generation_prompt", Value::boolean(input_.add_generation_prompt));
    std::vector<Value> messages;
    messages.reserve(input_.messages.size());
    for (std::size_t i = 0; i < input_.messages.size(); ++i) messages.push_back(message(i));
    set(out, "messages", evaluator_.list(std::move(messages)));
  }

 private:
  void set(DictObject& dict, std::string_view key, Value value) {
    evaluator_.dict_set(dict, evaluator_.string(std::string(key)), std::move(value));
  }

  Value message(std::size_t index) {
    const ChatMessage& message = input_.messages[index];
    auto out = std::make_shared<DictObject>();
    set(*out, "role", jinja::text_value(evaluator_, message.role, kInputOrigin));
    set(*out, "content", content(index));
    if (const OrderedJson& fields = value_of(message.fields); fields.is_object()) {
      for (const auto& [name, value] : fields.items())
        if (name != "role" && name != "content")
          evaluator_.dict_set(*out, jinja::text_value(evaluator_, name, kInputOrigin),
                              jinja::value_from_json(evaluator_, value, kInputOrigin));
    }
    return evaluator_.dict(std::move(out));
  }

  Value content(std::size_t index) {
    const ChatMessage& message = input_.messages[index];
    if (message.content_is_null) return Value::none();
    if (content_form(message, can_, input_.adapt_content) == ContentForm::kString)
      return string_content(index);
    std::vector<Value> parts;
    for (const ContentPart& part : message.parts) {
      auto out = std::make_shared<DictObject>();
      const bool is_text = part.kind == ContentPart::Kind::kText;
      set(*out, "type",
          evaluator_.string(is_text                                  ? "text"
                            : part.kind == ContentPart::Kind::kImage ? "image"
                                                                     : "video"));
      if (is_text) set(*out, "text", jinja::text_value(evaluator_, part.text, message_origin(index)));
      parts.push_back(evaluator_.dict(std::move(out)));
    }
    return evaluator_.list(std::move(parts));
  }

  Value string_content(std::size_t index) {
    MarkedString text;
    bool is_first = true;
    for (const ContentPart& part : input_.messages[index].parts) {
      if (!is_first) text.append("\n");
      is_first = false;
      if (part.kind == ContentPart::Kind::kText) {
        text.append(jinja::text_value(evaluator_, part.text, message_origin(index)).text());
        continue;
      }
      const bool is_image = part.kind == ContentPart::Kind::kImage;
      const std::string& placeholder = is_image ? input_.image_placeholder : input_.video_placeholder;
      if (placeholder.empty())
        fail(ErrorCode::kInvalidArgument, "messages[{}].content: the chat template has no place for {}",
             index, is_image ? "images" : "videos");
      text.append(placeholder);
    }
    return evaluator_.string(std::move(text));
  }

  Evaluator& evaluator_;
  const ChatInput& input_;
  const ChatTemplate::Capabilities& can_;
};

MarkedString run_program(const jinja::Program& program, const ChatInput& input,
                         const ChatTemplate::Capabilities& can, const ChatTemplateLimits& limits) {
  jinja::Limits inner;
  inner.max_steps = limits.max_steps;
  inner.max_memory_bytes = limits.max_memory_bytes;
  inner.max_string_bytes = limits.max_output_bytes;
  Evaluator evaluator(program, inner, input.now ? *input.now : local_time(), limits.max_output_bytes);
  InputBuilder(evaluator, input, can).run();
  return evaluator.render();
}

bool has_visible_text(const ChatMessage& message) {
  return std::any_of(message.parts.begin(), message.parts.end(), [](const ContentPart& part) {
    if (part.kind != ContentPart::Kind::kText) return false;
    const std::string text = utf8::sanitize_bytewise(part.text);
    for (std::size_t pos = 0; pos < text.size();)
      if (!python::is_space(utf8::next_bounded(text, pos))) return true;
    return false;
  });
}

/// A system message that the template leaves out would be dropped in silence: refuse it. The same for what a
/// user says.
void check_all_arrived(const ChatInput& input, const MarkedString& prompt) {
  std::vector<bool> arrived(input.messages.size(), false);
  prompt.for_each_run([&](std::size_t, std::size_t, Origin origin) {
    if (origin >= kFirstMessageOrigin) arrived[origin - kFirstMessageOrigin] = true;
  });
  for (std::size_t i = 0; i < arrived.size(); ++i) {
    const ChatMessage& message = input.messages[i];
    const bool must = message.role == "system" || message.role == "developer" || message.role == "user";
    if (must && !arrived[i] && has_visible_text(message))
      fail(ErrorCode::kInvalidArgument,
           "messages[{}]: the text of this '{}' message does not reach the prompt: the chat template has no "
           "place for it",
           i, message.role);
  }
}

/// Cuts the prompt right behind the text of the last message.
void cut_behind_last_message(const ChatInput& input, MarkedString& prompt) {
  const Origin last = message_origin(input.messages.size() - 1);
  std::size_t end = 0;
  prompt.for_each_run([&](std::size_t, std::size_t to, Origin origin) {
    if (origin == last) end = to;
  });
  if (input.messages.empty() || end == 0)
    fail(ErrorCode::kInvalidArgument,
         "continue_final_message: the last message has no text that could be continued");
  prompt.truncate(end);
}

// ---- Probes
// ------------------------------------------------------------------------------------------------------

ChatMessage parts_message(std::string role, std::vector<ContentPart> parts) {
  ChatMessage message;
  message.role = std::move(role);
  message.parts = std::move(parts);
  return message;
}

ChatTemplate::Capabilities probe(const jinja::Program& program) {
  ChatTemplate::Capabilities can;
  const ChatTemplateLimits limits{200'000, 16u << 20, 1u << 20};
  const auto render = [&](std::vector<ChatMessage> messages,
                          OrderedJsonPtr tools = nullptr) -> std::optional<MarkedString> {
    ChatInput input;
    input.messages = std::move(messages);
    input.tools = std::move(tools);
    input.special_tokens = {
        {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "<pad>"}, {"unk_token", "<unk>"}};
    ChatTemplate::Capabilities as_given;
    try {
      return run_program(program, input, as_given, limits);
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  const auto shows = [](const std::optional<MarkedString>& prompt, Origin wanted) {
    bool found = false;
    if (prompt)
      prompt->for_each_run([&](std::size_t, std::size_t, Origin origin) { found |= origin == wanted; });
    return found;
  };
  // A template that does not know lists may print one as Python or JSON would.
  const auto is_raw_list = [](const std::optional<MarkedString>& prompt) {
    return prompt->view().find("'type': 'text'") != std::string_view::npos ||
           prompt->view().find("\"type\": \"text\"") != std::string_view::npos;
  };
  const ContentPart text{ContentPart::Kind::kText, "probe"};
  const ContentPart image{ContentPart::Kind::kImage, ""};

  const auto plain = render({ChatMessage::text("user", "probe")});
  can.string_content = shows(plain, message_origin(0));
  const auto parts = render({parts_message("user", {text})});
  can.parts_content = shows(parts, message_origin(0)) && !is_raw_list(parts);
  if (can.parts_content) {
    const auto with_image = render({parts_message("user", {image, text})});
    can.images = with_image && with_image->view() != parts->view();
  }
  const auto make = [&](std::string role) {
    return can.string_content ? ChatMessage::text(std::move(role), "probe")
                              : parts_message(std::move(role), {text});
  };
  const auto with_system = render({make("system"), make("user")});
  can.system_role = shows(with_system, message_origin(0));
  const OrderedJson tool = {{"type", "function"},
                            {"function",
                             {{"name", "probe"},
                              {"description", "probe"},
                              {"parameters", {{"type", "object"}, {"properties", OrderedJson::object()}}}}}};
  const auto without_tools = render({make("user")});
  const auto with_tools = render({make("user")}, share(OrderedJson::array({tool})));
  can.tools = with_tools && without_tools && with_tools->view() != without_tools->view();
  return can;
}

}  // namespace

OrderedJsonPtr share(OrderedJson value) { return std::make_shared<const OrderedJson>(std::move(value)); }

ChatMessage ChatMessage::text(std::string role, std::string content) {
  ChatMessage message;
  message.role = std::move(role);
  message.parts.push_back({ContentPart::Kind::kText, std::move(content)});
  message.content_is_string = true;
  return message;
}

std::string to_text(const std::vector<RenderedSpan>& spans) {
  std::string out;
  for (const RenderedSpan& span : spans) out += span.text;
  return out;
}

void ChatTemplate::Impl::add(std::string_view name, std::string_view source, std::string_view file) {
  if (source.size() > kMaxTemplateBytes)
    fail(ErrorCode::kInvalidFile, "{}: a chat template of {} bytes exceeds {}", file, source.size(),
         kMaxTemplateBytes);
  Named named;
  named.name = std::string(name);
  named.program = jinja::parse_program(source, file);
  named.can = probe(*named.program);
  templates.push_back(std::move(named));
}

const ChatTemplate::Impl::Named* ChatTemplate::Impl::find(std::string_view name) const {
  for (const Named& named : templates)
    if (named.name == name) return &named;
  return nullptr;
}

const ChatTemplate::Impl::Named& ChatTemplate::Impl::choose(bool has_tools) const {
  if (templates.size() == 1) return templates.front();
  if (const Named* named = find("tool_use"); named != nullptr && has_tools) return *named;
  return *find("default");
}

ChatTemplate ChatTemplate::parse(std::string_view source, std::string_view name) {
  auto impl = std::make_shared<Impl>();
  impl->add("default", source, name);
  return ChatTemplate(std::move(impl));
}

std::vector<RenderedSpan> ChatTemplate::render(const ChatInput& input) const {
  if (input.continue_final_message && input.add_generation_prompt)
    fail(ErrorCode::kInvalidArgument, "continue_final_message and add_generation_prompt exclude each other");
  const OrderedJson& tools = value_of(input.tools);
  if (!tools.is_null() && !tools.is_array()) fail(ErrorCode::kInvalidArgument, "tools: expected an array");
  const auto& chosen = impl_->choose(!tools.is_null());
  MarkedString prompt = run_program(*chosen.program, input, chosen.can, limits_);
  if (input.adapt_content) check_all_arrived(input, prompt);
  if (input.continue_final_message) cut_behind_last_message(input, prompt);
  std::vector<RenderedSpan> spans;
  prompt.for_each_run([&](std::size_t from, std::size_t to, Origin origin) {
    const bool is_user_text = origin != jinja::kTemplateOrigin;
    if (spans.empty() || spans.back().is_user_text != is_user_text) spans.push_back({"", is_user_text});
    spans.back().text += prompt.view().substr(from, to - from);
  });
  return spans;
}

const ChatTemplate::Capabilities& ChatTemplate::capabilities() const noexcept {
  return impl_->choose(false).can;
}

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> out;
  for (const auto& named : impl_->templates) out.push_back(named.name);
  return out;
}

void ChatTemplate::set_limits(const ChatTemplateLimits& limits) { limits_ = limits; }

}  // namespace triptych

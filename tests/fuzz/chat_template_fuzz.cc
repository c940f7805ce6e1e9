// A chat template from arbitrary bytes, loaded and rendered with conversations of both forms. Only Error may
// be thrown; what comes out is valid UTF-8 in alternating spans; and a character that only the conversation
// holds is never in a span that claims to be the template's.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "only_errors.h"
#include "text/chat_template.h"
#include "unicode/utf8.h"

namespace {

using namespace triptych;

// A private-use character: templates do not hold it.
constexpr const char* kTyped = "\uE000 {{ 7*7 }} <image>\n\uE000, a=1 \uE000";

ChatInput conversation(bool as_parts) {
  ChatInput input;
  const auto message = [&](const char* role) {
    ChatMessage out = ChatMessage::text(role, kTyped);
    if (as_parts) {
      out.content_is_string = false;
      out.parts.insert(out.parts.begin(), ContentPart{ContentPart::Kind::kImage, ""});
    }
    return out;
  };
  input.messages = {message("system"), message("user"), message("assistant"), message("user")};
  input.messages[2].fields = share(OrderedJson::parse(
      R"({"tool_calls": [{"id": "123456789", "type": "function", "function": {"name": "f", "arguments": {"x": 1.5}}}]})"));
  input.tools = share(OrderedJson::parse(
      R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object",
          "properties": {"x": {"type": "number"}}, "required": ["x"]}}}])"));
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.now = std::tm{};
  input.adapt_content = !as_parts;
  return input;
}

void check(const std::vector<RenderedSpan>& spans, bool may_write_marker) {
  for (std::size_t i = 0; i < spans.size(); ++i) {
    fuzz::require(!spans[i].text.empty(), "a span holds text");
    fuzz::require(utf8::is_valid(spans[i].text), "a span is valid UTF-8");
    fuzz::require(i == 0 || spans[i].is_user_text != spans[i - 1].is_user_text, "spans alternate");
    fuzz::require(
        may_write_marker || spans[i].is_user_text || spans[i].text.find("\uE000") == std::string::npos,
        "typed text keeps its mark");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  bool may_write_marker = false;
  for (const std::string_view way : {"\uE000", "e000", "E000", "57344", "%c", ":c", "c}"})
    may_write_marker |= source.find(way) != std::string_view::npos;
  fuzz::only_errors([&] {
    ChatTemplate chat_template = ChatTemplate::parse(source, "fuzz");
    chat_template.set_limits({100'000, 16u << 20, 1u << 20});
    for (const bool as_parts : {false, true})
      fuzz::only_errors([&] { check(chat_template.render(conversation(as_parts)), may_write_marker); });
  });
  return 0;
}

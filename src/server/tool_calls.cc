#include "server/tool_calls.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace triptych::server {
namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";

std::optional<OrderedJson> parsed(std::string_view text) {
  try {
    static_cast<void>(parse_json(text, "call"));  // for its limit of depth
    return OrderedJson::parse(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<ToolCall> call_of(const OrderedJson& value) {
  if (!value.is_object() || !value.contains("name") || !value["name"].is_string()) return std::nullopt;
  ToolCall out{value["name"].get<std::string>(), "{}"};
  for (const char* key : {"arguments", "parameters"})
    if (value.contains(key)) {
      const OrderedJson& arguments = value[key];
      out.arguments = arguments.is_string() ? arguments.get<std::string>() : arguments.dump();
      break;
    }
  return out;
}

// How many bytes at the end may be the beginning of the tag.
std::size_t partial_tag(std::string_view text) {
  for (std::size_t n = std::min(text.size(), kOpen.size() - 1); n > 0; --n)
    if (text.substr(text.size() - n) == kOpen.substr(0, n)) return n;
  return 0;
}

}  // namespace

ToolCallParser::Piece ToolCallParser::push(std::string_view text) {
  held_ += text;
  Piece out;
  for (;;) {
    const std::size_t open = held_.find(kOpen);
    if (open == std::string::npos) {
      const std::size_t n = held_.size() - partial_tag(held_);
      out.text += held_.substr(0, n);
      held_.erase(0, n);
      return out;
    }
    const std::size_t close = held_.find(kClose, open);
    out.text += held_.substr(0, open);
    held_.erase(0, open);
    if (close == std::string::npos) return out;
    const std::size_t end = close - open;
    const auto value = parsed(std::string_view(held_).substr(kOpen.size(), end - kOpen.size()));
    if (auto call = value ? call_of(*value) : std::nullopt) {
      out.calls.push_back(std::move(*call));
    } else {
      out.text += held_.substr(0, end + kClose.size());
    }
    held_.erase(0, end + kClose.size());
  }
}

ToolCallParser::Piece ToolCallParser::finish() {
  Piece out;
  // The end tag is a stop token of some models, which leave it out.
  if (held_.rfind(kOpen, 0) == 0) {
    const auto value = parsed(std::string_view(held_).substr(kOpen.size()));
    if (auto call = value ? call_of(*value) : std::nullopt) {
      out.calls.push_back(std::move(*call));
      held_.clear();
    }
  }
  out.text = std::exchange(held_, {});
  return out;
}

std::vector<ToolCall> parse_required_calls(std::string_view text) {
  std::vector<ToolCall> out;
  const auto value = parsed(text);
  if (!value || !value->is_array()) return out;
  for (const OrderedJson& one : *value)
    if (auto call = call_of(one)) out.push_back(std::move(*call));
  return out;
}

}  // namespace triptych::server

#include "server/chat_request.h"

#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace triptych::server {
namespace {

constexpr std::size_t kMaxMessages = 4096;
constexpr std::size_t kMaxPrompts = 128;
constexpr int kMaxTopLogprobs = 20;  // as OpenAI's API

const std::set<std::string_view> kChatFields = {"messages",
                                                "tools",
                                                "tool_choice",
                                                "parallel_tool_calls",
                                                "logprobs",
                                                "top_logprobs",
                                                "max_tokens",
                                                "max_completion_tokens",
                                                "chat_template_kwargs",
                                                "add_generation_prompt",
                                                "continue_final_message"};
const std::set<std::string_view> kCompletionFields = {"prompt", "logprobs", "max_tokens",
                                                      "echo",   "suffix",   "best_of"};

bool has_further_members(const Json& message) {
  if (!message.is_object()) return false;
  return message.size() > message.count("role") + message.count("content");
}

std::string param_of(const JsonView& view) {
  return view.path().substr(std::string(kBodyName).size() + 2);  // "request: "
}

// One URL, or those of the frames: {"url", "fps", "max_frames"}, or the URL with these beside it.
WirePart read_video(const JsonView& view, const JsonView& video) {
  WirePart out;
  out.kind = ContentPart::Kind::kVideo;
  const bool is_object = video.is_object();
  const JsonView url = is_object ? video.at("url") : video;
  const JsonView& options = is_object ? video : view;
  out.param = param_of(url);
  if (url.is_string()) {
    out.url = url.as_string();
  } else {
    for (const JsonView& frame : url.items()) out.frame_urls.push_back(frame.as_string());
    if (out.frame_urls.empty()) url.fail_expected("at least one frame");
  }
  if (const auto fps = options.find("fps")) out.video.source_frames_per_s = fps->as_double(1e-3, 1e3);
  if (const auto most = options.find("max_frames"))
    out.video.max_frames = static_cast<int>(most->as_int(1, 65536));
  return out;
}

WirePart read_part(const JsonView& view) {
  WirePart out;
  const std::string type = view.at("type").as_string();
  if (type == "text" || type == "input_text" || type == "output_text") {
    out.text = view.at("text").as_string();
    return out;
  }
  if (type == "image_url" || type == "input_image") {
    out.kind = ContentPart::Kind::kImage;
    const JsonView image = view.at("image_url");  // {"url", "detail"}, or the URL
    const JsonView url = image.is_string() ? image : image.at("url");
    const auto detail = image.is_string() ? view.find("detail") : image.find("detail");
    out.url = url.as_string();
    out.param = param_of(url);
    out.detail = detail ? detail->as_string() : "auto";
    if (out.detail != "auto" && out.detail != "low" && out.detail != "high")
      detail->fail_expected("auto, low or high");
    return out;
  }
  if (type == "video_url") return read_video(view, view.at("video_url"));
  if (type == "video") return read_video(view, view.at("video"));  // as Qwen's own code names it
  throw ApiError(400, "unsupported_value",
                 fmt::format("{}: parts of type text, image_url and video_url are taken, got \"{}\"",
                             param_of(view) + ".type", type.substr(0, 64)),
                 param_of(view) + ".type");
}

// The schema of a call's arguments, or null.
const OrderedJson* parameters_of(const OrderedJson& tools, const std::string& name) {
  static const OrderedJson any = {{"type", "object"}};
  for (const OrderedJson& tool : tools)
    if (tool["function"]["name"] == name) {
      const OrderedJson& function = tool["function"];
      return function.contains("parameters") ? &function["parameters"] : &any;
    }
  return nullptr;
}

void check_tools(const JsonView& tools) {
  for (const JsonView& tool : tools.items()) {
    if (tool.at("type").as_string() != "function") tool.at("type").fail_expected("function");
    const JsonView function = tool.at("function");
    if (function.at("name").as_string().empty()) function.at("name").fail_expected("a name");
    if (const auto parameters = function.find("parameters"); parameters && !parameters->is_object())
      parameters->fail_expected("an object");
  }
}

// A call that must come is held to its schema: of one function its arguments, of any an array of calls.
void constrain_calls(ChatWire& out) {
  const OrderedJson& tools = *out.tools;
  if (out.tool_choice == ToolChoice::kNamed) {
    const OrderedJson* schema = parameters_of(tools, out.tool_name);
    if (schema == nullptr)
      throw ApiError(400, "invalid_value",
                     fmt::format("tool_choice: tools hold no function \"{}\"", out.tool_name), "tool_choice");
    set_constraint(out.common.sampling, "tool_choice", {.json_schema = schema->dump()});
  } else if (out.tool_choice == ToolChoice::kRequired) {
    OrderedJson any_of = OrderedJson::array();
    for (const OrderedJson& tool : tools) {
      const std::string name = tool["function"]["name"];
      any_of.push_back(
          {{"type", "object"},
           {"properties", {{"name", {{"const", name}}}, {"parameters", *parameters_of(tools, name)}}},
           {"required", {"name", "parameters"}},
           {"additionalProperties", false}});
    }
    const OrderedJson schema = {{"type", "array"}, {"minItems", 1}, {"items", {{"anyOf", any_of}}}};
    set_constraint(out.common.sampling, "tool_choice", {.json_schema = schema.dump()});
  }
}

void read_tools(const RequestBody& body, ChatWire& out) {
  const JsonView view = body.view();
  const auto tools = view.find("tools");
  const auto choice = view.find("tool_choice");
  if (!tools || tools->items().empty()) {
    if (choice && !(choice->is_string() && (choice->as_string() == "none" || choice->as_string() == "auto")))
      throw ApiError(400, "invalid_value", "tool_choice: there are no tools", "tool_choice");
    return;
  }
  check_tools(*tools);
  out.tools = share(body.ordered("tools"));
  out.tool_choice = ToolChoice::kAuto;
  if (!choice) return;
  if (choice->is_string()) {
    const std::string word = choice->as_string();
    if (word == "none") {
      out.tool_choice = ToolChoice::kNone;
      out.tools = nullptr;
    } else if (word == "required") {
      out.tool_choice = ToolChoice::kRequired;
    } else if (word != "auto") {
      choice->fail_expected("none, auto, required or a function");
    }
  } else {
    out.tool_choice = ToolChoice::kNamed;
    out.tool_name = choice->at("function").at("name").as_string();
  }
  if (out.tools) constrain_calls(out);
}

void read_chat_logprobs(const JsonView& view, SamplingParams& out) {
  const bool wanted = view.get_bool("logprobs", false);
  const auto top = view.find("top_logprobs");
  if (top && !wanted)
    throw ApiError(400, "invalid_value", "top_logprobs: needs \"logprobs\": true", "top_logprobs");
  out.n_logprobs = !wanted ? -1 : top ? static_cast<int>(top->as_int(0, kMaxTopLogprobs)) : 0;
}

CompletionPrompt read_ids(const JsonView& list) {
  CompletionPrompt out;
  out.is_ids = true;
  for (const JsonView& id : list.items())
    out.ids.push_back(static_cast<std::int32_t>(id.as_int(0, std::numeric_limits<std::int32_t>::max())));
  return out;
}

// A text, ids, or a list of either.
std::vector<CompletionPrompt> read_prompts(const JsonView& view) {
  if (view.is_string()) return {{.text = view.as_string()}};
  const std::vector<JsonView> items = view.items();
  if (items.empty() || items.size() > (items.front().is_integer() ? std::size_t{1} << 24 : kMaxPrompts))
    view.fail_expected(fmt::format("a text, token ids, or 1 to {} of either", kMaxPrompts));
  if (items.front().is_integer()) return {read_ids(view)};
  std::vector<CompletionPrompt> out;
  for (const JsonView& one : items)
    out.push_back(one.is_string() ? CompletionPrompt{.text = one.as_string()} : read_ids(one));
  return out;
}

}  // namespace

WireMessage read_message(const JsonView& view, const OrderedJson& ordered) {
  WireMessage out;
  out.role = view.at("role").as_string();
  if (out.role == "developer") out.role = "system";  // its name since the o1 models
  if (out.role.empty() || out.role.size() > 64) view.at("role").fail_expected("a role such as user");
  const auto content = view.find("content");
  if (!content) {
    if (!view.has("tool_calls")) static_cast<void>(view.at("content"));  // says that it is missing
    out.content_is_null = true;
    if (!view.has("tool_calls")) view.at("content").fail_expected("a text or an array of parts");
  } else if (content->is_string()) {
    out.content_is_string = true;
    out.parts.push_back({.text = content->as_string()});
  } else if (content->is_array()) {
    for (const JsonView& part : content->items()) out.parts.push_back(read_part(part));
  } else {
    content->fail_expected("a text or an array of parts");
  }
  OrderedJson fields = OrderedJson::object();
  for (const auto& [key, value] : ordered.items())
    if (key != "role" && key != "content") fields[key] = value;
  // Templates read the arguments of calls as an object; the wire has them as text.
  if (const auto calls = fields.find("tool_calls"); calls != fields.end() && calls->is_array())
    for (OrderedJson& call : *calls) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
      OrderedJson& function = call["function"];
      if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
      const auto& text = function["arguments"].get_ref<const std::string&>();
      try {
        parse_json(text, kBodyName);  // for its limit of depth
        function["arguments"] = OrderedJson::parse(text);
      } catch (const std::exception&) {
        throw ApiError(400, "invalid_value",
                       param_of(view) + ".tool_calls: the arguments of a call are not JSON",
                       param_of(view) + ".tool_calls");
      }
    }
  if (!fields.empty()) out.fields = share(std::move(fields));
  return out;
}

ChatWire parse_chat_request(std::string_view text, const SamplingParams& defaults) {
  const RequestBody body(text);
  ChatWire out;
  out.common = read_common(body, defaults);
  with_paths([&] {
    const JsonView view = body.view();
    SamplingParams& sampling = out.common.sampling;
    read_max_tokens(view, "max_tokens", sampling);
    read_max_tokens(view, "max_completion_tokens", sampling);
    read_chat_logprobs(view, sampling);
    const JsonView messages = view.at("messages");
    const std::vector<JsonView> items = messages.items();
    if (items.empty() || items.size() > kMaxMessages)
      messages.fail_expected(fmt::format("1 to {} messages", kMaxMessages));
    // Only messages with further members need the order of these.
    const OrderedJson none = OrderedJson::object();
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool has_more = has_further_members(items[i].raw());
      out.messages.push_back(read_message(items[i], has_more ? body.ordered("messages")[i] : none));
    }
    read_tools(body, out);
    if (const auto variables = view.find("chat_template_kwargs")) {
      if (!variables->is_object()) variables->fail_expected("an object");
      out.template_variables = share(body.ordered("chat_template_kwargs"));
    }
    out.add_generation_prompt = view.get_bool("add_generation_prompt", true);
    out.continue_final_message = view.get_bool("continue_final_message", false);
    if (out.continue_final_message && view.get_bool("add_generation_prompt", false))
      throw ApiError(400, "invalid_value", "continue_final_message: excludes add_generation_prompt",
                     "continue_final_message");
    note_unknown(body, kChatFields, out.common);
    return 0;
  });
  return out;
}

CompletionWire parse_completion_request(std::string_view text, const SamplingParams& defaults) {
  const RequestBody body(text);
  CompletionWire out;
  out.common = read_common(body, defaults);
  with_paths([&] {
    const JsonView view = body.view();
    SamplingParams& sampling = out.common.sampling;
    sampling.max_tokens = 16;  // as OpenAI's API
    read_max_tokens(view, "max_tokens", sampling);
    if (const auto logprobs = view.find("logprobs"))
      sampling.n_logprobs = static_cast<int>(logprobs->as_int(0, kMaxTopLogprobs));
    out.prompts = read_prompts(view.at("prompt"));
    if (out.prompts.size() * static_cast<std::size_t>(out.common.n) > kMaxPrompts)
      throw ApiError(400, "invalid_value",
                     fmt::format("n: at most {} answers to all prompts together", kMaxPrompts), "n");
    out.echo = view.get_bool("echo", false);
    for (const char* key : {"suffix", "best_of"})
      if (view.has(key))
        throw ApiError(400, "unsupported_value", fmt::format("{}: is not supported", key), key);
    note_unknown(body, kCompletionFields, out.common);
    return 0;
  });
  return out;
}

}  // namespace triptych::server

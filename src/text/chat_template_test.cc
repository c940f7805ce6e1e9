#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace triptych {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
namespace fs = std::filesystem;

// The template of llava-1.5-7b-hf: knows lists of parts only, puts pictures first.
constexpr const char* kLlava =
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': ' }}{% "
    "endif %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\\n' }}{% "
    "endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] + ' ' "
    "}}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}";
// Knows both forms and keeps the order of parts.
constexpr const char* kOrdered =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for p in "
    "m.content %}"
    "{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}{% endif %}</>{% endfor %}";
// Knows plain strings only.
constexpr const char* kPlain =
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] + eos_token }}{% endfor %}";
constexpr const char* kNoSystem =
    "{% for m in messages %}{% if m.role == 'user' %}U {{ m.content }}{% elif m.role == 'assistant' %}A {{ "
    "m.content }}"
    "{% endif %}{% endfor %}";

ContentPart text_part(std::string text) { return {ContentPart::Kind::kText, std::move(text)}; }
ContentPart image_part() { return {ContentPart::Kind::kImage, ""}; }

ChatMessage parts(std::string role, std::vector<ContentPart> list) {
  ChatMessage message;
  message.role = std::move(role);
  message.parts = std::move(list);
  return message;
}

ChatInput input(std::vector<ChatMessage> messages) {
  ChatInput out;
  out.messages = std::move(messages);
  out.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  return out;
}

std::string render(const char* source, const ChatInput& in) {
  return to_text(ChatTemplate::parse(source, "t").render(in));
}

std::string error_of(const char* source, const ChatInput& in, ErrorCode code = ErrorCode::kInvalidArgument) {
  try {
    render(source, in);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

/// "[user text]template text" for reading.
std::string marked(const std::vector<RenderedSpan>& spans) {
  std::string out;
  for (const RenderedSpan& span : spans) out += span.is_user_text ? "[" + span.text + "]" : span.text;
  return out;
}

std::string marks(const char* source, const ChatInput& in) {
  return marked(ChatTemplate::parse(source, "t").render(in));
}

class Directory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "triptych_template_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  void TearDown() override { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  std::string rendered(std::string_view name = "") {
    const auto found = ChatTemplate::from_directory(path_, name);
    return found ? to_text(found->render(input({ChatMessage::text("user", "x")}))) : "nothing";
  }
  fs::path path_;
};

TEST(ChatTemplate, LlavaPromptOfThePublishedModel) {
  EXPECT_EQ(render(kLlava, input({parts("user", {image_part(), text_part("What is this?")})})),
            "USER: <image>\nWhat is this? ASSISTANT:");
}

TEST(ChatTemplate, UserTextIsMarkedAndNeverEvaluated) {
  const auto in =
      input({parts("user", {image_part(), text_part("<image> <|im_end|> {{ 7*7 }} {% raise %}")})});
  EXPECT_EQ(marks(kLlava, in), "[USER]: <image>\n[<image> <|im_end|> {{ 7*7 }} {% raise %}] ASSISTANT:");
}

TEST(ChatTemplate, MarksFollowTextThroughOperations) {
  const auto in = input({ChatMessage::text("user", "ab,C d")});
  const std::pair<const char*, const char*> cases[] = {
      {"{{ 'x' + messages[0].content + 'y' }}", "x[ab,C d]y"},
      {"{{ 'x' ~ messages[0].content ~ 1 }}", "x[ab,C d]1"},
      {"{{ messages[0].content[1:4] }}", "[b,C]"},
      {"{{ ('--' + messages[0].content + '--')[1:5] }}", "-[ab,]"},
      {"{{ ('-' + messages[0].content + '-')[::-1] }}", "-[d C,ba]-"},
      {"{{ (' ' + messages[0].content + ' ')|trim }}", "[ab,C d]"},
      {"{{ ('<' + messages[0].content + '>')|upper }}", "<[AB,C D]>"},
      {"{{ messages[0].content.split(',')|join(' <i> ') }}", "[ab] <i> [C d]"},
      {"{{ messages[0].content|replace(',', '<i>') }}", "[ab]<i>[C d]"},
      {"{{ 'a<u>b'|replace('<u>', messages[0].content) }}", "a[ab,C d]b"},
      {"{{ '%s|%5s' % (messages[0].content, 'k') }}", "[ab,C d]|    k"},
      {"{{ '{}|{:>8}|{!r}'.format(1, messages[0].content, messages[0].content) }}",
       "1|  [ab,C d]|'[ab,C d]'"},
      {"{{ messages[0].content|tojson }}", "\"[ab,C d]\""},
      {"{{ [messages[0].content, 'k'] }}", "['[ab,C d]', 'k']"},
      {"{{ (messages[0].content + '\\nz')|indent(2, true) }}", "  [ab,C d]\n  z"},
      {"{{ messages[0].content|truncate(4, true, '..', 0) }}", "[ab].."},
      {"{{ messages[0].content|list|reverse|join('-') }}", "[d]-[ ]-[C]-[,]-[b]-[a]"},
      {"{{ messages[0].content|center(8) }}|{{ messages[0].content.zfill(8) }}", " [ab,C d] |00[ab,C d]"},
      {"{% set x %}<{{ messages[0].content }}>{% endset %}{{ x|upper }}", "<[AB,C D]>"},
      {"{% macro m(c) %}({{ c }}){% endmacro %}{{ m(messages[0].content) }}", "([ab,C d])"},
      {"{% filter lower %}X{{ messages[0].content }}{% endfilter %}", "x[ab,c d]"},
      {"{% for c in messages[0].content %}{{ c }}.{% endfor %}", "[a].[b].[,].[C].[ ].[d]."},
      {"{{ messages[0].content|length }}{{ messages[0].content == 'ab,C d' }}{{ messages[0].content }}",
       "6True[ab,C d]"},
      {"{{ messages[0].content|e }}{{ messages[0].content|urlencode }}", "[ab,C dab%2CC%20d]"},
      {"{{ messages[0].content|title }} {{ messages[0].content.capitalize() }}", "[Ab,c D] [Ab,c d]"},
      {"{{ messages|map(attribute='content')|first }}{{ (messages|groupby('content'))[0].grouper }}",
       "[ab,C dab,C d]"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(marks(source, in), expected) << source;
}

TEST(ChatTemplate, RolesToolsAndVariablesAreMarkedSpecialTokensAreNot) {
  ChatInput in = input({ChatMessage::text("user<|x|>", "hi")});
  in.tools = share(OrderedJson::parse(R"([{"type":"function","function":{"name":"<|t|>"}}])"));
  in.variables = share({{"city", "<v>"}});
  in.messages[0].fields = share({{"name", "<n>"}});
  EXPECT_EQ(marks("{{ bos_token }}{{ messages[0].role }}:{{ messages[0].content }}{{ messages[0].name }}|"
                  "{{ tools[0].function.name }}|{{ city }}{{ eos_token }}",
                  in),
            "<s>[user<|x|>]:[hi<n>]|[<|t|>]|[<v>]</s>");
}

TEST(ChatTemplate, ToolsKeepTheOrderOfTheirMembers) {
  ChatInput in = input({ChatMessage::text("user", "hi")});
  in.tools = share(
      OrderedJson::parse(R"([{"type":"function","function":{"name":"z","arguments":{"b":1,"a":2.0}}}])"));
  EXPECT_EQ(render("{{ tools|tojson }}{{ messages[0].content }}", in),
            R"([{"type": "function", "function": {"name": "z", "arguments": {"b": 1, "a": 2.0}}}]hi)");
}

TEST(ChatTemplate, OrderOfPartsIsKept) {
  const auto a = text_part("A"), b = text_part("B");
  const auto prompt = [&](std::vector<ContentPart> list) {
    return render(kOrdered, input({parts("user", std::move(list))}));
  };
  EXPECT_EQ(prompt({a, image_part(), b}), "<user>A<image>B</>");
  EXPECT_EQ(prompt({image_part(), a}), "<user><image>A</>");
  EXPECT_EQ(prompt({a, image_part()}), "<user>A<image></>");
  EXPECT_EQ(prompt({image_part(), a, image_part(), b}), "<user><image>A<image>B</>");
  EXPECT_EQ(prompt({image_part(), image_part(), a}), "<user><image><image>A</>");
}

TEST(ChatTemplate, StringContentReachesATemplateThatKnowsPartsOnly) {
  const ChatTemplate llava = ChatTemplate::parse(kLlava, "t");
  EXPECT_FALSE(llava.capabilities().string_content);
  EXPECT_TRUE(llava.capabilities().parts_content);
  EXPECT_TRUE(llava.capabilities().images);
  EXPECT_TRUE(llava.capabilities().system_role);
  EXPECT_FALSE(llava.capabilities().tools);
  EXPECT_EQ(to_text(llava.render(
                input({ChatMessage::text("system", "Be brief."), ChatMessage::text("user", "Hi")}))),
            "Be brief. USER: Hi ASSISTANT:");
  // As transformers would do it: the text is lost.
  ChatInput in = input({ChatMessage::text("user", "Hi")});
  in.adapt_content = false;
  EXPECT_EQ(to_text(llava.render(in)), "USER: ASSISTANT:");
}

TEST(ChatTemplate, PartsReachATemplateThatKnowsStringsOnly) {
  const ChatTemplate plain = ChatTemplate::parse(kPlain, "t");
  EXPECT_TRUE(plain.capabilities().string_content);
  EXPECT_FALSE(plain.capabilities().parts_content);
  ChatInput in = input({parts("user", {text_part("a"), image_part(), text_part("<image>")})});
  EXPECT_THAT(error_of(kPlain, in), HasSubstr("no place for images"));
  in.image_placeholder = "<image>";
  EXPECT_EQ(marked(plain.render(in)), "<|[user]|>[a]\n<image>\n[<image>]</s>");
}

TEST(ChatTemplate, ASystemMessageIsNeverDroppedInSilence) {
  const ChatTemplate no_system = ChatTemplate::parse(kNoSystem, "t");
  EXPECT_FALSE(no_system.capabilities().system_role);
  const auto in = input({ChatMessage::text("system", "rules"), ChatMessage::text("user", "hi")});
  EXPECT_THAT(error_of(kNoSystem, in), HasSubstr("messages[0]"));
  EXPECT_EQ(render(kNoSystem, input({ChatMessage::text("system", "  \n"), ChatMessage::text("user", "hi")})),
            "U hi");
  EXPECT_EQ(render(kNoSystem, input({ChatMessage::text("assistant", ""), ChatMessage::text("user", "")})),
            "A U ");
}

TEST(ChatTemplate, ContinueFinalMessageEndsBehindItsText) {
  ChatInput in = input({ChatMessage::text("user", "hi"), ChatMessage::text("assistant", "Once upon ")});
  in.add_generation_prompt = false;
  in.continue_final_message = true;
  EXPECT_EQ(render(kPlain, in), "<|user|>hi</s><|assistant|>Once upon ");
  EXPECT_EQ(render("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}", in), "<hi><Once upon");
  in.messages.back() = ChatMessage::text("assistant", "");
  EXPECT_THAT(error_of(kPlain, in), HasSubstr("continue_final_message"));
  in.messages.clear();
  EXPECT_THAT(error_of(kPlain, in), HasSubstr("continue_final_message"));
  in.add_generation_prompt = true;
  EXPECT_THAT(error_of(kPlain, in), HasSubstr("exclude each other"));
}

TEST(ChatTemplate, ErrorsNameTemplateAndLineAndRaiseExceptionIsVerbatim) {
  const auto in = input({ChatMessage::text("user", "hi")});
  EXPECT_EQ(error_of("\n\n{{ raise_exception('Only <b> roles: {0}!') }}", in), "Only <b> roles: {0}!");
  EXPECT_EQ(error_of("{{ raise_exception('Got ' + messages[0].content) }}", in), "Got hi");
  EXPECT_EQ(error_of("a\nb\n{{ nope.x }}", in), "t:3: 'nope' is undefined");
  EXPECT_EQ(error_of("a\n{% if x %}", in, ErrorCode::kInvalidFile).substr(0, 4), "t:2:");
  EXPECT_THAT(error_of("{% include 'other' %}", in, ErrorCode::kUnsupported),
              HasSubstr("'include' is not supported"));
}

TEST(ChatTemplate, InvalidUtf8BecomesReplacementCharacters) {
  EXPECT_EQ(render("{{ messages[0].content }}", input({ChatMessage::text("user", "a\xff\xc3(\xed\xa0\x80")})),
            "a\uFFFD\uFFFD(\uFFFD\uFFFD\uFFFD");
  EXPECT_THROW(ChatTemplate::parse("\xff", "t"), Error);
}

TEST(ChatTemplate, StrftimeNowUsesTheGivenClock) {
  ChatInput in = input({ChatMessage::text("user", "hi")});
  std::tm now{};
  now.tm_year = 99;
  now.tm_mon = 11;
  now.tm_mday = 31;
  in.now = now;
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y') }}{{ messages[0].content }}", in), "31 Dec 1999hi");
  in.now.reset();
  EXPECT_EQ(render("{{ strftime_now('%Y')|length }}{{ messages[0].content }}", in), "4hi");
}

TEST(ChatTemplate, BadInputFieldsAreNamed) {
  ChatInput in = input({ChatMessage::text("user", "hi")});
  in.variables = share({{"messages", 1}});
  EXPECT_THAT(error_of(kPlain, in), HasSubstr("'messages'"));
  in.variables = share(OrderedJson::array());
  EXPECT_THAT(error_of(kPlain, in), HasSubstr("variables:"));
  in.variables = nullptr;
  in.tools = share("x");
  EXPECT_THAT(error_of(kPlain, in), HasSubstr("tools:"));
  in.tools = nullptr;
  OrderedJson deep = 1;
  for (int i = 0; i < 150; ++i) deep = OrderedJson::array({deep});
  in.variables = share({{"deep", deep}});
  EXPECT_THAT(error_of(kPlain, in), HasSubstr("nested deeper"));
}

TEST(ChatTemplate, LimitsHold) {
  ChatTemplate small =
      ChatTemplate::parse("{% for i in range(1000) %}{{ messages[0].content }}{% endfor %}", "t");
  EXPECT_EQ(to_text(small.render(input({ChatMessage::text("user", "ab")}))).size(), 2000u);
  const auto expect_error = [&](const ChatTemplateLimits& limits, const char* what) {
    small.set_limits(limits);
    try {
      small.render(input({ChatMessage::text("user", "ab")}));
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
  };
  expect_error({500, 1u << 20, 1u << 20}, "steps");
  expect_error({1'000'000, 1u << 20, 1000}, "exceeds 1000 bytes");
  expect_error({1'000'000, 2000, 1u << 20}, "bytes of memory");
}

TEST(ChatTemplate, TenThousandMessagesAndLongTextArePlain) {
  std::vector<ChatMessage> messages;
  for (int i = 0; i < 10'000; ++i)
    messages.push_back(ChatMessage::text(i % 2 == 0 ? "user" : "assistant", "hello"));
  EXPECT_GT(render(kPlain, input(messages)).size(), 100'000u);
  EXPECT_EQ(render(kLlava, input({ChatMessage::text("user", std::string(5'000'000, 'x'))})).size(),
            5'000'000u + 17u);
}

// ---- Directories
// -------------------------------------------------------------------------------------------------

TEST_F(Directory, NothingThere) {
  EXPECT_EQ(rendered(), "nothing");
  write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ(rendered(), "nothing");
  write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(rendered(), "nothing");
  EXPECT_THROW(ChatTemplate::from_directory(path_, "rag"), Error);
}

TEST_F(Directory, OrderOfPreference) {
  write("tokenizer_config.json", R"({"chat_template": "tokenizer {{ messages[0].content }}"})");
  EXPECT_EQ(rendered(), "tokenizer x");
  write("processor_config.json", R"({"chat_template": "processor {{ messages[0].content }}"})");
  EXPECT_EQ(rendered(), "processor x");
  write("chat_template.json", R"({"chat_template": "json {{ messages[0].content }}"})");
  EXPECT_EQ(rendered(), "json x");
  write("chat_template.jinja", "jinja {{ messages[0].content }}\n");
  EXPECT_EQ(rendered(), "jinja x");
}

TEST_F(Directory, NamedTemplates) {
  write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "d {{ messages[0].content }}"},
      {"name": "tool_use", "template": "t {{ messages[0].content }}{{ tools|length }}"},
      {"name": "rag", "template": "r {{ messages[0].content }}"}]})");
  EXPECT_EQ(rendered(), "d x");
  EXPECT_EQ(rendered("rag"), "r x");
  const auto found = ChatTemplate::from_directory(path_);
  EXPECT_THAT(found->names(), ElementsAre("default", "tool_use", "rag"));
  ChatInput in = input({ChatMessage::text("user", "x")});
  in.tools = share(OrderedJson::array({OrderedJson::object()}));
  EXPECT_EQ(to_text(found->render(in)), "t x1");
  try {
    rendered("other");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr(R"("default", "tool_use", "rag")"));
  }
}

TEST_F(Directory, AdditionalTemplates) {
  write("chat_template.jinja", "d {{ messages[0].content }}");
  write("additional_chat_templates/rag.jinja", "r {{ messages[0].content }}");
  write("additional_chat_templates/notes.txt", "{{");
  EXPECT_EQ(rendered(), "d x");
  EXPECT_EQ(rendered("rag"), "r x");
  EXPECT_THAT(ChatTemplate::from_directory(path_)->names(), UnorderedElementsAre("default", "rag"));
}

TEST_F(Directory, BadFilesAreNamed) {
  const auto error = [&](const std::string& file, const std::string& text) -> std::string {
    write(file, text);
    std::string out = "no error";
    try {
      rendered();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidFile) << e.what();
      out = e.what();
    }
    fs::remove(path_ / file);
    return out;
  };
  EXPECT_THAT(error("chat_template.jinja", "\n{{ 1"), HasSubstr("chat_template.jinja:2:"));
  EXPECT_THAT(error("chat_template.jinja", "\xff\xfe"), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(error("chat_template.json", "{"), HasSubstr("chat_template.json"));
  EXPECT_THAT(error("chat_template.json", R"({"chat_template": 5})"),
              HasSubstr("chat_template.json: chat_template: expected"));
  EXPECT_THAT(error("tokenizer_config.json", R"({"chat_template": [{"name": "a"}]})"),
              HasSubstr("\"template\" is missing"));
  EXPECT_THAT(error("tokenizer_config.json",
                    R"({"chat_template": [{"name": "a", "template": ""}, {"name": "a", "template": ""}]})"),
              HasSubstr("given twice"));
  EXPECT_THAT(error("tokenizer_config.json",
                    R"({"chat_template": [{"name": "a", "template": ""}, {"name": "b", "template": ""}]})"),
              HasSubstr("none is \"default\""));
  EXPECT_THAT(error("chat_template.jinja", std::string((4u << 20) + 1, 'x')), HasSubstr("exceeds"));
}

// A link to a file of somebody else is refused wherever a template may lie; one into the hub cache's blobs is
// what a download looks like.
TEST_F(Directory, LinksStayInside) {
  const std::filesystem::path outside = std::filesystem::path(testing::TempDir()) / "template_outside.jinja";
  std::ofstream(outside) << "{}";
  for (const char* name :
       {"chat_template.jinja", "chat_template.json", "additional_chat_templates/rag.jinja"}) {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::filesystem::create_symlink(outside, path_ / name);
    EXPECT_THROW(ChatTemplate::from_directory(path_), Error) << name;
    std::filesystem::remove(path_ / name);
  }
  const std::filesystem::path snapshot = path_ / "snapshots" / "1";
  std::filesystem::create_directories(snapshot / "additional_chat_templates");
  std::filesystem::create_directories(path_ / "blobs");
  std::ofstream(path_ / "blobs" / "abc") << "hello";
  std::filesystem::create_symlink("../../blobs/abc", snapshot / "chat_template.jinja");
  std::filesystem::create_symlink("../../../blobs/abc", snapshot / "additional_chat_templates" / "rag.jinja");
  EXPECT_THAT(ChatTemplate::from_directory(snapshot)->names(), UnorderedElementsAre("default", "rag"));
  std::filesystem::remove(outside);
}

TEST_F(Directory, AFifoDoesNotHang) {
  ASSERT_EQ(mkfifo((path_ / "chat_template.jinja").c_str(), 0600), 0);
  try {
    rendered();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("not a regular file"));
  }
}

}  // namespace
}  // namespace triptych

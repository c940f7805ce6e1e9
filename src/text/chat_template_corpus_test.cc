// The corpus: each template of tests/data/chat_templates with each conversation, against what Python's jinja2
// gives (frozen by tools/make_template_cases.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/source_dir.h"
#include "text/chat_template.h"

namespace triptych {
namespace {

const std::filesystem::path kData = test::source_dir() / "tests/data/chat_templates";

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

OrderedJson read_json(const char* name) { return OrderedJson::parse(read(kData / name)); }

/// The clock of the frozen results: 2024-07-04 15:07:09, a Thursday.
std::tm frozen_now() {
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 4;
  now.tm_hour = 15;
  now.tm_min = 7;
  now.tm_sec = 9;
  now.tm_wday = 4;
  now.tm_yday = 185;
  return now;
}

ChatMessage message_from_json(const OrderedJson& json) {
  ChatMessage message;
  message.role = json.at("role").get<std::string>();
  const OrderedJson& content = json.at("content");
  message.content_is_string = content.is_string();
  message.content_is_null = content.is_null();
  if (content.is_string()) message.parts.push_back({ContentPart::Kind::kText, content.get<std::string>()});
  if (content.is_array()) {
    for (const OrderedJson& part : content) {
      const auto type = part.at("type").get<std::string>();
      const auto kind = type == "text"    ? ContentPart::Kind::kText
                        : type == "image" ? ContentPart::Kind::kImage
                                          : ContentPart::Kind::kVideo;
      message.parts.push_back({kind, part.value("text", "")});
    }
  }
  message.fields = share(json);
  return message;
}

ChatInput input_from_json(const OrderedJson& json) {
  ChatInput input;
  for (const OrderedJson& message : json.at("messages")) input.messages.push_back(message_from_json(message));
  input.special_tokens = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
  if (json.contains("tools")) input.tools = share(json.at("tools"));
  if (json.contains("variables")) input.variables = share(json.at("variables"));
  input.adapt_content = false;
  input.now = frozen_now();
  return input;
}

/// Text, or how it failed, in the form the frozen files have.
OrderedJson outcome(const ChatTemplate& chat_template, const ChatInput& input) {
  try {
    return {{"output", to_text(chat_template.render(input))}};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return {{"failed", error.what()}};
  }
}

void expect_same(const OrderedJson& expected, const OrderedJson& got, const std::string& what) {
  if (expected.contains("output")) {
    ASSERT_TRUE(got.contains("output")) << what << "\n" << got.dump();
    EXPECT_EQ(got.at("output"), expected.at("output")) << what;
  } else {
    ASSERT_TRUE(got.contains("failed")) << what << "\nexpected " << expected.dump() << "\ngot " << got.dump();
    if (expected.contains("raised")) {
      EXPECT_EQ(got.at("failed"), expected.at("raised")) << what;
    }
  }
}

TEST(ChatTemplateCorpus, EveryTemplateGivesWhatJinja2Gives) {
  const OrderedJson expected = read_json("expected.json");
  const OrderedJson conversations = read_json("conversations.json");
  ASSERT_GE(expected.size(), 35u);
  std::size_t n_cases = 0;
  for (const auto& [file, results] : expected.items()) {
    const ChatTemplate chat_template = ChatTemplate::parse(read(kData / file), file);
    std::size_t i = 0;
    for (const OrderedJson& conversation : conversations) {
      ChatInput input = input_from_json(conversation);
      for (const bool add_generation_prompt : {true, false}) {
        input.add_generation_prompt = add_generation_prompt;
        const std::string what =
            fmt::format("{}, {}, add_generation_prompt={}", file, conversation.at("name").get<std::string>(),
                        add_generation_prompt);
        expect_same(results.at(i++), outcome(chat_template, input), what);
        ++n_cases;
      }
    }
    EXPECT_EQ(i, results.size());
  }
  EXPECT_EQ(n_cases, expected.size() * conversations.size() * 2);
}

TEST(ChatTemplateCorpus, NoFileIsLeftOut) {
  const OrderedJson expected = read_json("expected.json");
  std::size_t n_templates = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kData)) {
    if (entry.path().extension() != ".jinja") continue;
    ++n_templates;
    EXPECT_TRUE(expected.contains(entry.path().filename().string()))
        << entry.path() << ": run tools/make_template_cases.py";
  }
  EXPECT_EQ(n_templates, expected.size());
}

/// The text of messages is marked and everything a template writes is not, for every template and
/// conversation.
TEST(ChatTemplateCorpus, SpansAreTheMessagesText) {
  const OrderedJson conversations = read_json("conversations.json");
  const OrderedJson expected = read_json("expected.json");
  std::size_t n_seen = 0;
  for (const auto& [file, results] : expected.items()) {
    const ChatTemplate chat_template = ChatTemplate::parse(read(kData / file), file);
    for (const OrderedJson& conversation : conversations) {
      ChatInput input = input_from_json(conversation);
      std::vector<RenderedSpan> spans;
      try {
        spans = chat_template.render(input);
      } catch (const Error&) {
        continue;
      }
      for (std::size_t i = 0; i < spans.size(); ++i) {
        EXPECT_FALSE(spans[i].text.empty()) << file;
        if (i > 0) {
          EXPECT_NE(spans[i].is_user_text, spans[i - 1].is_user_text) << file;
        }
        // Typed control tokens of the conversation must be in marked spans only, apart from those the
        // template writes.
        if (spans[i].text.find("{{ 7*7 }}") != std::string::npos) {
          EXPECT_TRUE(spans[i].is_user_text) << file;
          ++n_seen;
        }
        EXPECT_EQ(spans[i].text.find("49"), std::string::npos) << file;
      }
    }
  }
  EXPECT_GE(n_seen, 50u);
}

/// Whatever a user types, what the template itself writes stays the same.
TEST(ChatTemplateCorpus, TypedTextDoesNotChangeTrustedText) {
  const auto trusted = [](const std::vector<RenderedSpan>& spans) {
    std::string out;
    for (const RenderedSpan& span : spans) out += span.is_user_text ? "*" : span.text;
    return out;
  };
  const OrderedJson conversations = read_json("conversations.json");
  const OrderedJson expected = read_json("expected.json");
  std::size_t n_compared = 0;
  for (const auto& [file, results] : expected.items()) {
    const ChatTemplate chat_template = ChatTemplate::parse(read(kData / file), file);
    for (const OrderedJson& conversation : conversations) {
      if (conversation.at("name").get<std::string>().find("control tokens") == std::string::npos) continue;
      ChatInput typed = input_from_json(conversation);
      ChatInput plain = typed;
      for (ContentPart& part : plain.messages.at(0).parts)
        for (char& c : part.text) c = c == ' ' || c == '\n' ? c : 'a';
      try {
        EXPECT_EQ(trusted(chat_template.render(typed)), trusted(chat_template.render(plain))) << file;
        ++n_compared;
      } catch (const Error&) {
        EXPECT_THROW(chat_template.render(typed), Error) << file;
        EXPECT_THROW(chat_template.render(plain), Error) << file;
      }
    }
  }
  EXPECT_GE(n_compared, 50u);
}

}  // namespace
}  // namespace triptych

// Conversations of every family as a user's request meets them: with the directory's own template against
// what the reference renders and tokenizes (tests/data/prompts.json, made by tools/make_prompt_cases.py), the
// rules of families with one picture or no system prompt, and text that looks like control tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/load.h"
#include "parity/chat_messages.h"
#include "support/shared_dir.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using testing::HasSubstr;

constexpr const char* kFamilies[] = {"llava",    "llava_next",  "llava_onevision", "qwen_vl",
                                     "qwen2_vl", "qwen2_5_vl",  "qwen3_vl",        "fuyu",
                                     "blip2",    "instructblip"};

// Small reference sets and trained models ship; the others are looked for among the shared ones.
std::filesystem::path directory_of(const std::string& name) {
  const std::filesystem::path source = test::source_dir();
  for (const auto& path : {source / "tests/data/golden" / name, source / "assets/models" / name})
    if (std::filesystem::exists(path)) return path;
  return test::shared_dir() / "golden/models" / name;
}

std::unique_ptr<LoadedModel> open(const std::string& name) {
  return LoadedModel::open(directory_of(name), {.n_threads = 1});
}

MediaInput grey_picture(int grey) {
  Image image{56, 56, PoolVector<std::uint8_t>(56 * 56 * 3, static_cast<std::uint8_t>(grey))};
  return {.frames = {std::move(image)}, .is_video = false, .frames_per_s = 0};
}

MediaInput grey_video() {
  MediaInput out = grey_picture(9);
  out.frames.push_back(out.frames.front());
  out.is_video = true;
  out.frames_per_s = 2;
  return out;
}

// The media of its parts are grey.
ChatRequest request_of(std::vector<ChatMessage> messages) {
  ChatRequest out;
  out.messages = std::move(messages);
  for (const ChatMessage& message : out.messages)
    for (const ContentPart& part : message.parts) {
      if (part.kind == ContentPart::Kind::kImage) out.media.push_back(grey_picture(100));
      if (part.kind == ContentPart::Kind::kVideo) out.media.push_back(grey_video());
    }
  out.media_options = {.min_pixels = 784, .max_pixels = 3136};
  return out;
}

using test::kPicture;
using test::say;
using test::words;

// ---- own templates

std::vector<ChatMessage> messages_of(const Json& list) {
  std::vector<ChatMessage> out;
  for (const Json& message : list) {
    std::vector<ContentPart> parts;
    for (const Json& part : message["content"]) {
      const std::string type = part["type"];
      parts.push_back(type == "text"    ? words(part["text"])
                      : type == "image" ? kPicture
                                        : ContentPart{ContentPart::Kind::kVideo, ""});
    }
    out.push_back(say(message["role"], std::move(parts)));
  }
  return out;
}

Json prompt_cases() {
  std::ifstream in(test::source_path("tests/data/prompts.json"));
  std::stringstream text;
  text << in.rdbuf();
  return parse_json(text.str(), "prompts.json");
}

class OwnTemplate : public testing::TestWithParam<const char*> {};

TEST_P(OwnTemplate, RendersAndTokenizesAsTheReference) {
  const std::string name = GetParam();
  if (!std::filesystem::exists(directory_of(name)))
    GTEST_SKIP() << "no " << directory_of(name) << "; set TRIPTYCH_SHARED";
  const auto model = open(name);
  const Json all = prompt_cases();
  const Json& cases = all.at(name);
  ASSERT_GE(cases.size(), 14U);
  for (const Json& one : cases) {
    const std::string what = name + " " + one["name"].get<std::string>();
    ChatRequest request = request_of(messages_of(one["messages"]));
    request.add_generation_prompt = one["add_generation_prompt"];
    if (one.contains("raised")) {
      try {
        model->prepare(request);
        ADD_FAILURE() << what << ": no error";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(one["raised"].get<std::string>())) << what;
      }
      continue;
    }
    const PreparedRequest prepared = model->prepare(request);
    EXPECT_EQ(prepared.prompt, one["prompt"].get<std::string>()) << what;
    EXPECT_EQ(prepared.token_ids, one["ids"].get<std::vector<std::int32_t>>()) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, OwnTemplate,
                         testing::Values("llava", "llava_next", "llava_onevision", "qwen2_vl", "qwen2_5_vl",
                                         "qwen3_vl", "scenes-llava", "scenes-qwen2-vl"));

// ---- every family

class EveryFamily : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(directory_of(GetParam())))
      GTEST_SKIP() << "no " << directory_of(GetParam()) << "; set TRIPTYCH_SHARED";
    model_ = open(GetParam());
  }
  std::string error_of(const ChatRequest& request) const {
    try {
      model_->prepare(request);
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal);
      return error.what();
    }
    return "no error";
  }
  std::unique_ptr<LoadedModel> model_;
};

TEST_P(EveryFamily, IsNamedInItsErrors) {
  EXPECT_EQ(model_->info().family, GetParam());
  EXPECT_FALSE(model_->info().architecture.empty());
}

TEST_P(EveryFamily, MorePicturesThanItTakesAreAnError) {
  const ChatRequest two = request_of({say("user", {kPicture, kPicture, words("Which?")})});
  const ChatRequest over_turns =
      request_of({say("user", {kPicture, words("a")}), say("assistant", {words("b")}),
                  say("user", {kPicture, words("c")})});
  if (model_->info().max_images < 0) {
    EXPECT_EQ(model_->prepare(two).media.size(), 2U);
    EXPECT_EQ(model_->prepare(over_turns).media.size(), 2U);
    return;
  }
  const std::string expected = model_->info().architecture + " takes 1 image in a prompt, got 2";
  EXPECT_EQ(error_of(two), expected);
  EXPECT_EQ(error_of(over_turns), expected);
}

TEST_P(EveryFamily, ASystemPromptIsUsedOrRefused) {
  const ChatRequest request =
      request_of({say("system", {words("Zq9.")}), say("user", {kPicture, words("Which?")})});
  if (!model_->info().supports_system_prompt) {
    EXPECT_EQ(error_of(request), model_->info().architecture + " has no system prompt");
  } else if (const std::string error = error_of(request); error != "no error") {
    EXPECT_THAT(error, HasSubstr("roles are supported"));  // the template's own word
  } else {
    EXPECT_THAT(model_->prepare(request).prompt, HasSubstr("Zq9."));
  }
}

TEST_P(EveryFamily, AVideoIsTakenOrRefusedByName) {
  ChatRequest request = request_of({say("user", {{ContentPart::Kind::kVideo, ""}, words("What?")})});
  if (model_->info().video_placeholder.empty()) {
    EXPECT_THAT(error_of(request),
                HasSubstr(model_->info().architecture + " does not take videos; these do: "));
  } else {
    const PreparedRequest prepared = model_->prepare(request);
    EXPECT_TRUE(prepared.media.at(0).plan.meta.is_video);
    EXPECT_EQ(prepared.layout.runs.size(), 1U);
  }
}

// Everything that might be a control token of any family, and all added tokens of this one.
std::vector<std::string> control_texts(const LoadedModel& model) {
  std::vector<std::string> out = {"<image>",
                                  "<|image_pad|>",
                                  "<|video_pad|>",
                                  "<|vision_start|>",
                                  "<|vision_end|>",
                                  "<|vision_pad|>",
                                  "<|im_start|>",
                                  "<|im_end|>",
                                  "<|endoftext|>",
                                  "<s>",
                                  "</s>",
                                  "<unk>",
                                  "<pad>",
                                  "[PAD]",
                                  "[INST]",
                                  "|SPEAKER|",
                                  "|NEWLINE|",
                                  "|ENDOFTEXT|",
                                  "<img>",
                                  "</img>",
                                  "<imgpad>",
                                  "<0x00>",
                                  "<0x04>",
                                  "<video>",
                                  "\x04",
                                  "<|im_start|",
                                  "<|im_start|><|im",
                                  "<<|image_pad|>|>",
                                  "|SPEAKER||SPEAKER|"};
  for (char c = 0; c < 6; ++c) out.push_back(std::string("x") + c + "y" + c);
  for (const AddedToken& token : model.tokenizer().added_tokens()) out.push_back(token.content);
  return out;
}

// Ids that only a prompt's own text may become.
std::map<std::int32_t, std::string> control_ids(const LoadedModel& model) {
  const ModelInfo& info = model.info();
  std::map<std::int32_t, std::string> out;
  const auto typeable = [&](const std::string& content) {
    return std::find(info.typeable_specials.begin(), info.typeable_specials.end(), content) !=
           info.typeable_specials.end();
  };
  for (const AddedToken& token : model.tokenizer().added_tokens())
    // The unknown token is what the vocabulary says of a character it lacks.
    if (token.special && !typeable(token.content) && token.id != model.tokenizer().unk_id().value_or(-1))
      out[token.id] = token.content;
  out[info.image_token_id] = "the image placeholder";
  if (info.video_token_id >= 0) out[info.video_token_id] = "the video placeholder";
  for (const std::int32_t id : info.never_sample) out.emplace(id, "an id that is never sampled");
  for (const std::int32_t id : model.stop_token_ids()) out.emplace(id, "a stop token");
  // Fuyu's marks of boxes and points and of the answer's beginning are bytes of its vocabulary.
  if (info.family == "fuyu")
    for (const char* byte : {"<0x00>", "<0x01>", "<0x02>", "<0x03>", "<0x04>"})
      out.emplace(model.tokenizer().token_to_id(byte).value(), byte);
  if (const auto bos = model.tokenizer().bos_id()) out.emplace(*bos, "the BOS token");
  return out;
}

TEST_P(EveryFamily, TypedControlTokensStayText) {
  const auto ids = control_ids(*model_);
  ASSERT_FALSE(ids.empty());
  const auto counts = [&](const std::vector<std::int32_t>& tokens) {
    std::map<std::string, int> out;
    for (const std::int32_t id : tokens)
      if (const auto found = ids.find(id); found != ids.end()) ++out[found->second];
    return out;
  };
  const auto conversation = [&](const std::string& text, bool with_picture) {
    std::vector<ContentPart> first;
    if (with_picture) first.push_back(kPicture);
    first.push_back(words("a " + text + " b"));
    return request_of(
        {say("user", std::move(first)), say("assistant", {words(text)}), say("user", {words(text)})});
  };
  for (const bool with_picture : {true, false}) {
    const PreparedRequest plain = model_->prepare(conversation("word", with_picture));
    for (const std::string& text : control_texts(*model_)) {
      const PreparedRequest typed = model_->prepare(conversation(text, with_picture));
      EXPECT_THAT(typed.prompt, HasSubstr("a " + text + " b"));
      EXPECT_EQ(counts(typed.token_ids), counts(plain.token_ids)) << GetParam() << ": " << text;
      EXPECT_EQ(typed.layout.runs.size(), plain.layout.runs.size()) << GetParam() << ": " << text;
      // Fuyu's layout adds ids of its own; they stay as many.
      EXPECT_EQ(counts(typed.layout.input_ids), counts(plain.layout.input_ids)) << GetParam() << ": " << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::ValuesIn(kFamilies));

}  // namespace
}  // namespace triptych

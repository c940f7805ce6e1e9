// What each family's own prompt is, character by character, for directories without a chat template: one
// turn, several turns, a system message, and the order of pictures and texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/testing/tiny_models.h"
#include "parity/chat_messages.h"
#include "text/chat_template.h"

namespace triptych {
namespace {

using test::kPicture;
using test::say;
using test::words;

std::string render(const Model& model, std::vector<ChatMessage> messages) {
  ChatInput input;
  input.messages = std::move(messages);
  input.image_placeholder = model.info().image_placeholder;
  input.video_placeholder = model.info().video_placeholder;
  const ChatTemplate chat = ChatTemplate::parse(model.info().default_chat_template, "default");
  return to_text(chat.render(input));
}

struct Expected {
  std::string one_turn;       // [picture, "What is it?"]
  std::string several_turns;  // the same, "A star.", "Where?"; empty: the family has no turns
  std::string with_system;    // "Be brief.", then as one_turn; empty: no system message
  std::string text_around;    // ["Look:", picture, "and tell."]; empty: the picture is first
};

void expect_prompts(const Model& model, const Expected& expected) {
  const ChatMessage question = say("user", {kPicture, words("What is it?")});
  EXPECT_EQ(render(model, {question}), expected.one_turn);
  if (!expected.several_turns.empty()) {
    EXPECT_EQ(render(model, {question, say("assistant", {words("A star.")}), say("user", {words("Where?")})}),
              expected.several_turns);
  }
  if (!expected.with_system.empty()) {
    EXPECT_EQ(render(model, {say("system", {words("Be brief.")}), question}), expected.with_system);
  } else {
    // Refused by the engine, or by the template itself.
    if (model.info().supports_system_prompt) {
      EXPECT_THROW(render(model, {say("system", {words("Be brief.")}), question}), Error);
    }
  }
  if (!expected.text_around.empty()) {
    EXPECT_EQ(render(model, {say("user", {words("Look:"), kPicture, words("and tell.")})}),
              expected.text_around);
  }
}

test::TinyModel next_with(const char* decoder) {
  auto files = test::tiny_files("llava_next", test::Geometry::kSmall);
  files.config["text_config"]["model_type"] = decoder;
  files.config["text_config"]["num_key_value_heads"] = 2;
  return test::TinyModel(std::move(files));
}

constexpr std::string_view kVicunaSystem =
    "A chat between a curious human and an artificial intelligence assistant. The assistant gives helpful, "
    "detailed, and polite answers to the human's questions. ";

TEST(DefaultTemplates, Llava) {
  const test::TinyModel model("llava", test::Geometry::kSmall);
  expect_prompts(*model,
                 {.one_turn = "USER: <image>\nWhat is it? ASSISTANT:",
                  .several_turns = "USER: <image>\nWhat is it? ASSISTANT: A star.</s>USER: Where? ASSISTANT:",
                  .with_system = "Be brief. USER: <image>\nWhat is it? ASSISTANT:",
                  .text_around = "USER: <image>\nLook:and tell. ASSISTANT:"});
}

TEST(DefaultTemplates, LlavaNextByDecoder) {
  const std::string vicuna(kVicunaSystem);
  expect_prompts(
      *next_with("llama"),
      {.one_turn = vicuna + "USER: <image>\nWhat is it? ASSISTANT:",
       .several_turns = vicuna + "USER: <image>\nWhat is it? ASSISTANT: A star.</s>USER: Where? ASSISTANT:",
       .with_system = "Be brief. USER: <image>\nWhat is it? ASSISTANT:",
       .text_around = vicuna + "USER: Look:<image>\nand tell. ASSISTANT:"});
  expect_prompts(*next_with("mistral"),
                 {.one_turn = "[INST] <image>\nWhat is it? [/INST]",
                  .several_turns = "[INST] <image>\nWhat is it? [/INST] A star.</s>[INST] Where? [/INST]",
                  .with_system = "",
                  .text_around = "[INST] Look:<image>\nand tell. [/INST]"});
  const std::string chatml = "<|im_start|>user\n<image>\nWhat is it?<|im_end|>";
  const std::string answer = "<|im_start|>assistant\n";
  const std::string system = "<|im_start|>system\nAnswer the questions.<|im_end|>";
  expect_prompts(*next_with("qwen2"),
                 {.one_turn = system + chatml + answer,
                  .several_turns = system + chatml + answer +
                                   "A star.<|im_end|><|im_start|>user\nWhere?<|im_end|>" + answer,
                  .with_system = "<|im_start|>system\nBe brief.<|im_end|>" + chatml + answer,
                  .text_around = system + "<|im_start|>user\nLook:<image>\nand tell.<|im_end|>" + answer});
}

// Yi's configuration says llama; its vocabulary has ChatML's tokens.
TEST(DefaultTemplates, LlavaNextWithYi) {
  auto files = test::tiny_files("llava_next", test::Geometry::kSmall);
  files.tokens = {{"<|im_start|>", 6}, {"<|im_end|>", 7}};
  const test::TinyModel model(std::move(files));
  EXPECT_EQ(
      render(*model, {say("user", {kPicture, words("What is it?")})}),
      "<|im_start|>system\nAnswer the questions.<|im_end|><|im_start|>user\n<image>\nWhat is it?<|im_end|>"
      "<|im_start|>assistant\n");
}

TEST(DefaultTemplates, LlavaOnevision) {
  const test::TinyModel model("llava_onevision", test::Geometry::kSmall);
  const std::string question = "<|im_start|>user <image>\n\nWhat is it?<|im_end|>";
  const std::string answer = "<|im_start|>assistant\n";
  expect_prompts(*model, {.one_turn = question + answer,
                          .several_turns = question +
                                           "<|im_start|>assistant \nA star.<|im_end|>"
                                           "<|im_start|>user \nWhere?<|im_end|>" +
                                           answer,
                          .with_system = "<|im_start|>system \nBe brief.<|im_end|>" + question + answer,
                          .text_around = "<|im_start|>user <image>\n\nLook:\nand tell.<|im_end|>" + answer});
  const ContentPart video{ContentPart::Kind::kVideo, ""};
  EXPECT_EQ(render(*model, {say("user", {words("And?"), video, kPicture})}),
            "<|im_start|>user <image>\n<video>\n\nAnd?<|im_end|>" + answer);
}

TEST(DefaultTemplates, QwenVl) {
  const test::TinyModel model("qwen_vl", test::Geometry::kSmall);
  const std::string system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>";
  const std::string question = "\n<|im_start|>user\nPicture 1: <img><imgpad></img>\nWhat is it?<|im_end|>";
  const std::string answer = "\n<|im_start|>assistant\n";
  expect_prompts(
      *model,
      {.one_turn = system + question + answer,
       .several_turns =
           system + question + answer + "A star.<|im_end|>\n<|im_start|>user\nWhere?<|im_end|>" + answer,
       .with_system = "<|im_start|>system\nBe brief.<|im_end|>" + question + answer,
       .text_around =
           system + "\n<|im_start|>user\nLook:Picture 1: <img><imgpad></img>\nand tell.<|im_end|>" + answer});
  // Pictures count through the conversation.
  EXPECT_THAT(
      render(*model, {say("user", {kPicture, words("a")}), say("assistant", {words("b")}),
                      say("user", {kPicture, kPicture, words("c")})}),
      testing::HasSubstr("Picture 2: <img><imgpad></img>\nPicture 3: <img><imgpad></img>\nc<|im_end|>"));
}

TEST(DefaultTemplates, Qwen2VlAndQwen25Vl) {
  const std::string system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n";
  const std::string picture = "<|vision_start|><|image_pad|><|vision_end|>";
  const std::string question = "<|im_start|>user\n" + picture + "What is it?<|im_end|>\n";
  const std::string answer = "<|im_start|>assistant\n";
  for (const char* family : {"qwen2_vl", "qwen2_5_vl"}) {
    const test::TinyModel model(family, test::Geometry::kSmall);
    expect_prompts(
        *model,
        {.one_turn = system + question + answer,
         .several_turns =
             system + question + answer + "A star.<|im_end|>\n<|im_start|>user\nWhere?<|im_end|>\n" + answer,
         .with_system = "<|im_start|>system\nBe brief.<|im_end|>\n" + question + answer,
         .text_around = system + "<|im_start|>user\nLook:" + picture + "and tell.<|im_end|>\n" + answer});
  }
}

TEST(DefaultTemplates, Qwen3VlHasNoSystemMessageOfItsOwn) {
  const std::string picture = "<|vision_start|><|image_pad|><|vision_end|>";
  const std::string question = "<|im_start|>user\n" + picture + "What is it?<|im_end|>\n";
  const std::string answer = "<|im_start|>assistant\n";
  const test::TinyModel model("qwen3_vl", test::Geometry::kSmall);
  expect_prompts(*model,
                 {.one_turn = question + answer,
                  .several_turns =
                      question + answer + "A star.<|im_end|>\n<|im_start|>user\nWhere?<|im_end|>\n" + answer,
                  .with_system = "<|im_start|>system\nBe brief.<|im_end|>\n" + question + answer,
                  .text_around = "<|im_start|>user\nLook:" + picture + "and tell.<|im_end|>\n" + answer});
}

TEST(DefaultTemplates, FuyuEndsAQuestionWithANewline) {
  const test::TinyModel model("fuyu", test::Geometry::kSmall);
  expect_prompts(
      *model,
      {.one_turn = "|SPEAKER|What is it?\n", .several_turns = "", .with_system = "", .text_around = ""});
  EXPECT_EQ(render(*model, {say("user", {kPicture, words("What is it?\n")})}), "|SPEAKER|What is it?\n");
  EXPECT_EQ(render(*model, {say("user", {kPicture, words("Answer"), words("briefly.")})}),
            "|SPEAKER|Answerbriefly.\n");
  EXPECT_FALSE(model->info().supports_system_prompt);
}

TEST(DefaultTemplates, BlipIsPlainText) {
  for (const char* family : {"blip2", "instructblip"}) {
    const test::TinyModel model(family, test::Geometry::kSmall);
    expect_prompts(
        *model,
        {.one_turn = "<image>What is it?", .several_turns = "", .with_system = "", .text_around = ""});
    EXPECT_EQ(render(*model, {say("user", {kPicture})}), "<image>");
    EXPECT_FALSE(model->info().supports_system_prompt);
  }
}

}  // namespace
}  // namespace triptych

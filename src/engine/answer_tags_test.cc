// Boxes and points of Fuyu between text and tokens, against values of the reference
// (tests/data/fuyu_tags, made by tools/make_fuyu_tags.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/answer_text.h"
#include "engine/engine.h"
#include "support/fixed_answer.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const std::filesystem::path kSource = test::source_dir();

class AnswerTags : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = (std::filesystem::temp_directory_path() / "triptych-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    test::write_fuyu(folder_, kSource,
                     {"\u2581at", "<0x00>", "10", "20", "30", "40", "<0x01>", "\u2581it", "<0x02>", "15",
                      "25", "<0x03>", "."});
    model_ = LoadedModel::open(folder_, {.n_threads = 2});
    cases_ = parse_json(read_text_file(kSource / "tests/data/fuyu_tags/cases.json", 1 << 24), "cases.json");
  }
  static void TearDownTestSuite() {
    model_.reset();
    std::filesystem::remove_all(folder_);
  }
  static MediaPlan plan(const Json& size) {
    return model_->model().plan_media(
        {.width_px = size[0].get<int>(), .height_px = size[1].get<int>(), .name = ""}, {});
  }
  static std::int32_t id(const std::string& content) {
    return model_->tokenizer().token_to_id(content).value();
  }
  static PreparedRequest prepare(const std::string& text, int width, int height) {
    ChatRequest request;
    ChatMessage message;
    message.role = "user";
    if (width > 0) {
      message.parts.push_back({ContentPart::Kind::kImage, ""});
      const auto n = static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3;
      request.media.push_back({.frames = {Image{width, height, PoolVector<std::uint8_t>(n, 200)}}});
    }
    message.parts.push_back({ContentPart::Kind::kText, text});
    request.messages.push_back(message);
    return model_->prepare(request);
  }
  static std::string text_of(const std::vector<std::int32_t>& ids, std::span<const MediaPlan> plans) {
    AnswerText text(*model_, plans);
    std::string out;
    for (const std::int32_t i : ids) out += text.push(i);
    return out + text.finish();
  }

  static std::filesystem::path folder_;
  static std::unique_ptr<LoadedModel> model_;
  static Json cases_;
};

std::filesystem::path AnswerTags::folder_;
std::unique_ptr<LoadedModel> AnswerTags::model_;
Json AnswerTags::cases_;

TEST_F(AnswerTags, PromptsHaveTheReferencesTokens) {
  ASSERT_THAT(cases_["prompts"], SizeIs(84));
  for (const Json& one : cases_["prompts"]) {
    std::vector<std::int32_t> want = {id("|SPEAKER|")};
    for (const Json& i : one["ids"]) want.push_back(i.get<std::int32_t>());
    const auto width = one["size"][0].get<int>(), height = one["size"][1].get<int>();
    const auto n = static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3;
    const auto got =
        model_->prepare_prompt("|SPEAKER|" + one["text"].get<std::string>(),
                               {{.frames = {Image{width, height, PoolVector<std::uint8_t>(n, 200)}}}});
    EXPECT_EQ(got.token_ids, want) << one["size"] << one["text"];
  }
}

TEST_F(AnswerTags, CoordinatesAreScaledAsTheReferenceScalesThem) {
  int n = 0;
  for (const Json& one : cases_["numbers"]) {
    const MediaPlan picture = plan(one["size"]);
    for (const Json& pair : one["pairs"]) {
      const std::string text = fmt::format("<point>{}, 0</point>", pair[0].get<double>());
      const auto tags = model_->model().find_typed_tags(text, {&picture, 1});
      ASSERT_THAT(tags, SizeIs(1)) << text;
      EXPECT_THAT(tags[0].ids,
                  ElementsAre(id("<0x02>"), id(std::to_string(pair[1].get<int>())), id("0"), id("<0x03>")))
          << one["size"] << text;
      ++n;
    }
  }
  EXPECT_GT(n, 500);
}

TEST_F(AnswerTags, AnswersReadAsTheReferencesText) {
  ASSERT_THAT(cases_["answers"], SizeIs(48));
  for (const Json& one : cases_["answers"]) {
    const MediaPlan picture = plan(one["size"]);
    EXPECT_EQ(text_of(one["ids"].get<std::vector<std::int32_t>>(), {&picture, 1}),
              one["text"].get<std::string>())
        << one["size"];
  }
  int n = 0;
  for (const Json& one : cases_["back"]) {
    const MediaPlan picture = plan(one["size"]);
    for (const Json& pair : one["pairs"]) {
      const std::vector<std::int32_t> ids = {id("<0x02>"), id(std::to_string(pair[0].get<int>())), id("0"),
                                             id("<0x03>")};
      EXPECT_EQ(text_of(ids, {&picture, 1}), fmt::format("<point>{}, 0</point>", pair[1].get<int>()))
          << one["size"] << pair[0];
      ++n;
    }
  }
  EXPECT_GT(n, 1000);
}

TEST_F(AnswerTags, WhatIsNoTagStaysText) {
  const MediaPlan picture = plan({64, 48});
  const auto typed = [&](std::string_view text) {
    return model_->model().find_typed_tags(text, {&picture, 1});
  };
  for (const char* text : {"<box>", "<box></box>", "<box>1, 2, 3</box>", "<box>1, 2, 3, 4, 5</box>",
                           "<box>1, 2, 3, 4</point>", "<point>1, 2, 3, 4</point>", "<box>1, 2, 3, x</box>",
                           "<box>1, 2, 3, inf</box>", "<box>1, 2, 3, 1e1</box>", "<box>1 2 3 4</box>",
                           "<box>1, 2,, 4</box>", "<point>1, 2", "<box><box>1, 2, 3, 4", "a < b > c"})
    EXPECT_THAT(typed(text), IsEmpty()) << text;
  EXPECT_THAT(typed("<box><box>1, 2, 3, 4</box>"), SizeIs(1));
  EXPECT_THAT(model_->model().find_typed_tags("<point>1, 2</point>", {}), IsEmpty());  // no picture
  // Tokens of an answer that make no whole tag.
  for (const auto& ids : std::vector<std::vector<std::int32_t>>{
           {id("<0x00>")},
           {id("<0x00>"), id("1"), id("2"), id("3")},
           {id("<0x00>"), id("1"), id("2"), id("3"), id("4")},
           {id("<0x00>"), id("1"), id("2"), id("3"), id("4"), id("5"), id("<0x01>")},
           {id("<0x02>"), id("a"), id("<0x03>")},
           {id("<0x01>"), id("<0x03>")}}) {
    EXPECT_EQ(text_of(ids, {&picture, 1}), model_->tokenizer().decode(ids));
    EXPECT_THAT(model_->model().find_regions("", ids, {&picture, 1}), IsEmpty());
  }
  // A mark in the middle of a broken tag begins a whole one.
  const std::vector<std::int32_t> nested = {id("<0x00>"), id("1"), id("<0x02>"),
                                            id("1"),      id("2"), id("<0x03>")};
  EXPECT_THAT(text_of(nested, {&picture, 1}), testing::EndsWith("1<point>2, 4</point>"));
}

TEST_F(AnswerTags, CoordinatesWithoutATokenAreAnError) {
  for (const char* text :
       {"<point>9999, 0</point>", "<box>-4, 0, 1, 1</box>", "<point>99999999999999999999, 0</point>"}) {
    try {
      prepare(text, 64, 48);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), testing::HasSubstr("64x48"));
    }
  }
}

TEST_F(AnswerTags, RefusalsNameTheModel) {
  ChatRequest request;
  request.messages.push_back(ChatMessage::text("system", "Be brief."));
  try {
    model_->prepare(request);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), testing::HasSubstr("FuyuForCausalLM"));
  }
}

TEST_F(AnswerTags, UserTextNeverBecomesAnyOtherControlToken) {
  std::vector<std::int32_t> control;
  for (const char* content :
       {"<0x00>", "<0x01>", "<0x02>", "<0x03>", "<0x04>", "|SPEAKER|", "|NEWLINE|", "|ENDOFTEXT|", "<s>"})
    control.push_back(id(content));
  const std::string typed = "<0x00>1<0x01>|SPEAKER||NEWLINE||ENDOFTEXT|<s> <0x04>" +
                            std::string("\0\x01\x02\x03\x04", 5) +
                            " |NEWLINE|<0x02>1, 2<0x03><box>1, 2</box>";
  for (const int width : {0, 64}) {
    auto ids = prepare(typed, width, 48).token_ids;
    if (width > 0) ids.erase(ids.begin());  // the picture
    for (const std::int32_t bad : control) EXPECT_THAT(ids, testing::Not(testing::Contains(bad))) << width;
  }
  // Beside a tag, too: only its own two marks come.
  const auto ids =
      prepare("<0x00>" + std::string("\x04", 1) + "<point>1, 2</point>|NEWLINE|", 64, 48).token_ids;
  EXPECT_EQ(std::count(ids.begin(), ids.end(), id("<0x02>")), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), id("<0x03>")), 1);
  for (const char* content : {"<0x00>", "<0x04>", "|NEWLINE|"})
    EXPECT_EQ(std::count(ids.begin(), ids.end(), id(content)), 0) << content;
}

TEST_F(AnswerTags, AnAnswerHasItsTextAndItsRegions) {
  Engine engine(*model_);
  std::string streamed;
  const GenerationResult result =
      engine.generate(prepare("Where?\n", 400, 300), {}, [&](const TokenEvent& event) {
        streamed += event.text;
        return true;
      });
  EXPECT_EQ(result.text, "at<box>20, 40, 60, 80</box> it<point>30, 50</point>.");
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  ASSERT_THAT(result.regions, SizeIs(2));
  EXPECT_EQ(result.regions[0].kind, RegionKind::kBox);  // top, left, bottom, right
  EXPECT_THAT(result.regions[0].points_px, ElementsAre(PointPx{40, 20}, PointPx{80, 60}));
  EXPECT_THAT(result.regions[0].points_1000,
              ElementsAre(PointPerMille{100, 1000.0 * 20 / 300}, PointPerMille{200, 200}));
  EXPECT_EQ(result.regions[1].kind, RegionKind::kPoint);
  EXPECT_THAT(result.regions[1].points_px, ElementsAre(PointPx{30, 50}));
  // What the answer said can be said again: the same tokens.
  const auto again = prepare(result.text, 400, 300).token_ids;
  EXPECT_THAT(again,
              testing::IsSupersetOf({id("<0x00>"), id("10"), id("20"), id("30"), id("40"), id("<0x01>")}));
  // Cut in the middle of a box: its tokens are text, and there is no region.
  SamplingParams few;
  few.max_tokens = 4;
  const GenerationResult cut = engine.generate(prepare("Where?\n", 400, 300), few);
  EXPECT_EQ(cut.text, model_->tokenizer().decode(cut.token_ids));
  EXPECT_THAT(cut.regions, IsEmpty());
}

}  // namespace
}  // namespace triptych

#include "evaluation/eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "base/error.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

TEST(Eval, KindIsTheFirstTwoWords) {
  EXPECT_EQ(kind_of("Is there a red square?"), "Is there");
  EXPECT_EQ(kind_of("  Describe   the image."), "Describe the");
  EXPECT_EQ(kind_of("What?"), "What?");
  EXPECT_EQ(kind_of(""), "");
}

TEST(Eval, ScoresAddUp) {
  EvalReport report;
  report.kinds["a"] = {.n = 4, .n_right = 3, .n_control_right = 1, .n_answer_tokens = 8, .sum_logprob = -2.0};
  report.kinds["b"] = {.n = 6, .n_right = 5, .n_control_right = 0, .n_answer_tokens = 2, .sum_logprob = -3.0};
  const EvalScore total = report.total();
  EXPECT_DOUBLE_EQ(total.accuracy(), 0.8);
  EXPECT_DOUBLE_EQ(total.control_accuracy(), 0.1);
  EXPECT_DOUBLE_EQ(total.mean_logprob(), -0.5);
  EXPECT_DOUBLE_EQ(EvalScore{}.accuracy(), 0.0);
}

TEST(Eval, DivergenceOfKnownDistributions) {
  const std::vector<float> p = {std::log(0.5F), std::log(0.25F), std::log(0.25F)};
  const std::vector<float> q = {std::log(0.25F) + 7, std::log(0.5F) + 7,
                                std::log(0.25F) + 7};  // any constant
  EXPECT_NEAR(kl_divergence(p, q), 0.5 * std::log(2.0) - 0.25 * std::log(2.0), 1e-6);
  EXPECT_NEAR(kl_divergence(p, p), 0.0, 1e-12);
  EvalScore a = {.n_answer_tokens = 2, .sum_kl_divergence = 0.5, .max_kl_divergence = 0.4, .n_same_top = 1};
  a.add({.n_answer_tokens = 2, .sum_kl_divergence = 0.1, .max_kl_divergence = 0.1, .n_same_top = 2});
  EXPECT_DOUBLE_EQ(a.mean_kl_divergence(), 0.15);
  EXPECT_DOUBLE_EQ(a.max_kl_divergence, 0.4);
  EXPECT_DOUBLE_EQ(a.same_top(), 0.75);
}

TEST(Eval, AppendedTokensTakeThePositionsOfAnAnswer) {
  PromptLayout layout;
  layout.input_ids = {5, 6};
  layout.positions = {0, 1, 0, 3, 0, 2};  // three axes
  layout.next_position = 4;
  append_tokens(layout, {7, 8}, 3);
  EXPECT_EQ(layout.input_ids, (std::vector<std::int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(layout.positions, (std::vector<std::int32_t>{0, 1, 4, 5, 0, 3, 4, 5, 0, 2, 4, 5}));
  EXPECT_EQ(layout.next_position, 6);
}

TEST(Eval, QuestionsNameTheBadLine) {
  const auto directory = std::filesystem::path(testing::TempDir()) / "eval_questions";
  std::filesystem::create_directories(directory);
  const auto read = [&](const std::string& text) {
    std::ofstream(directory / "questions.jsonl") << text;
    return read_questions(directory);
  };
  const auto error_of = [&](const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const auto good = read("{\"id\": \"7\", \"image\": \"a.png\", \"question\": \"q\", \"answer\": \"a\"}\n\n");
  ASSERT_EQ(good.size(), 1U);
  EXPECT_EQ(good[0].id, "7");
  EXPECT_EQ(read("{\"image\": \"a.png\", \"question\": \"q\", \"answer\": \"a\"}")[0].id,
            "questions.jsonl:1");
  EXPECT_THAT(error_of("\n{\"image\": \"a.png\", \"answer\": \"a\"}"),
              testing::HasSubstr("questions.jsonl:2: "));
  EXPECT_THAT(error_of("{\"image\": \"../a.png\", \"question\": \"q\", \"answer\": \"a\"}"),
              testing::HasSubstr("expected the name of a file"));
  EXPECT_THAT(error_of("{"), testing::HasSubstr("questions.jsonl:1"));
  EXPECT_THAT(error_of(""), testing::HasSubstr("no questions"));
  std::filesystem::remove_all(directory);
}

// Questions about one picture share what the tower made of it, and no number changes by that.
TEST(Eval, APictureIsEncodedOnce) {
  const std::string source = test::source_dir().string();
  const auto model = LoadedModel::open(source + "/assets/models/scenes-llava", {.n_threads = 2});
  const std::filesystem::path scenes = source + "/assets/eval/scenes";
  std::vector<EvalQuestion> questions = read_questions(scenes);
  questions.resize(70);  // more than are prepared at once
  std::set<std::string> pictures;
  for (const EvalQuestion& q : questions) pictures.insert(q.image);
  const EvalReport shared = evaluate(*model, scenes, questions, {});
  const EvalReport apart = evaluate(*model, scenes, questions, {.vision_embedding_cache_bytes = 0});
  EXPECT_EQ(shared.n_pictures_encoded, static_cast<std::int64_t>(pictures.size()) + 1);  // and the blank one
  // Once for each likelihood; answers and controls that run together share a pass.
  EXPECT_GT(apart.n_pictures_encoded, 70);
  EXPECT_GT(apart.n_pictures_encoded, shared.n_pictures_encoded);
  EXPECT_EQ(shared.total().n_right, apart.total().n_right);
  EXPECT_EQ(shared.total().n_control_right, apart.total().n_control_right);
  EXPECT_EQ(shared.total().sum_logprob, apart.total().sum_logprob);
  ASSERT_EQ(shared.mistakes.size(), apart.mistakes.size());
  for (std::size_t i = 0; i < shared.mistakes.size(); ++i)
    EXPECT_EQ(shared.mistakes[i].got, apart.mistakes[i].got);
}

}  // namespace
}  // namespace triptych

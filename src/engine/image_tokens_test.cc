// Pictures of which only some tokens stay: which, what is computed without the others, and what becomes of
// their blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/image_token_keep.h"
#include "engine/sequence.h"
#include "engine/token_selection.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "models/testing/tiny_models.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

constexpr ImageTokenSelection kAll[] = {ImageTokenSelection::kDiversity, ImageTokenSelection::kKeyNormLow,
                                        ImageTokenSelection::kKeyNormHigh, ImageTokenSelection::kAttention};

LoadedModel& llava() {
  static const std::unique_ptr<LoadedModel> loaded =
      LoadedModel::open(test::source_path("assets/models/scenes-llava"), {.n_threads = 2});
  return *loaded;
}
LoadedModel& qwen() {
  static const std::unique_ptr<LoadedModel> loaded =
      LoadedModel::open(test::source_path("assets/models/scenes-qwen2-vl"), {.n_threads = 2});
  return *loaded;
}

MediaInput picture(const std::string& name) {
  const auto file = MappedFile::open(test::source_path("assets/eval/scenes/") + name);
  MediaInput out;
  out.frames.push_back(decode_image(file->bytes(), {}, name));
  return out;
}

PreparedRequest ask(LoadedModel& model, const std::string& text, const std::vector<std::string>& pictures,
                    const ImageTokenOptions& options) {
  ChatRequest out;
  ChatMessage message;
  message.role = "user";
  for (const std::string& name : pictures) {
    message.parts.push_back({ContentPart::Kind::kImage, ""});
    out.media.push_back(picture(name));
  }
  message.parts.push_back({ContentPart::Kind::kText, text});
  out.messages.push_back(std::move(message));
  out.media_options.image_tokens = options;
  return model.prepare(out);
}

SamplingParams answer_of(std::int64_t n) {
  SamplingParams out;
  out.max_tokens = n;
  out.ignore_eos = true;
  out.n_logprobs = 0;
  return out;
}

void expect_same(const GenerationResult& a, const GenerationResult& b, const std::string& what) {
  EXPECT_EQ(a.token_ids, b.token_ids) << what;
  EXPECT_EQ(a.n_dropped_image_tokens, b.n_dropped_image_tokens) << what;
  ASSERT_EQ(a.tokens.size(), b.tokens.size()) << what;
  for (std::size_t i = 0; i < a.tokens.size(); ++i)
    EXPECT_NEAR(a.tokens[i].logprob, b.tokens[i].logprob, 1e-4) << what << ", token " << i;
}

TEST(ImageTokenOptions, KeepsAShareRoundedUpAndAtLeastOne) {
  EXPECT_EQ((ImageTokenOptions{.keep = 0.25}).n_kept(64), 16);
  EXPECT_EQ((ImageTokenOptions{.keep = 0.12}).n_kept(64), 8);
  EXPECT_EQ((ImageTokenOptions{.keep = 0.1}).n_kept(10), 1);
  EXPECT_EQ((ImageTokenOptions{.keep = 1e-6}).n_kept(64), 1);
  EXPECT_EQ((ImageTokenOptions{.keep = 1}).n_kept(64), 64);
  EXPECT_EQ((ImageTokenOptions{.keep = 0.5}).n_kept(0), 0);
  for (const double wrong : {0.0, -1.0, 1.5, std::nan("")})
    EXPECT_THROW((ImageTokenOptions{.keep = wrong}).validate(), Error) << wrong;
  for (const ImageTokenSelection selection : kAll)
    EXPECT_EQ(parse_image_token_selection(to_string(selection)), selection);
  EXPECT_THROW(parse_image_token_selection("norm"), Error);
  // What changes nothing is no difference.
  EXPECT_EQ(ImageTokenOptions{}, (ImageTokenOptions{.selection = ImageTokenSelection::kAttention}));
  EXPECT_FALSE((ImageTokenOptions{.keep = 0.5}) == (ImageTokenOptions{.keep = 0.25}));
}

// A prompt of 12 tokens on two axes: two of text, picture 0 (rows 2 to 5), one of text, picture 1 (7 to 9),
// two of text; one token of an answer behind it.
class KeepTest : public testing::Test {
 protected:
  void make(ImageTokenSelection selection, double keep = 0.5) {
    PromptLayout layout;
    for (std::int32_t t = 0; t < 12; ++t) layout.input_ids.push_back(100 + t);
    for (const std::int32_t axis : {0, 1000})
      for (std::int32_t t = 0; t < 12; ++t) layout.positions.push_back(axis + t);
    layout.next_position = 12;
    layout.runs = {{.media_index = 0, .first_media_row = 0, .first_prompt_row = 2, .n_rows = 4},
                   {.media_index = 1, .first_media_row = 0, .first_prompt_row = 7, .n_rows = 3}};
    s_.set_prompt(layout, 2);
    s_.media.resize(2);
    for (MediaItem& item : s_.media) item.image_tokens = {.keep = keep, .selection = selection};
    s_.media_rows.resize(2);
    s_.keep = ImageTokenKeep::make(s_, 2);
  }
  std::vector<std::int32_t> positions(std::size_t axis) const {
    std::vector<std::int32_t> out;
    for (std::size_t t = axis; t < s_.positions.size(); t += 2) out.push_back(s_.positions[t]);
    return out;
  }

  Sequence s_;
};

TEST_F(KeepTest, NothingIsThereWhenAllTokensStay) {
  make(ImageTokenSelection::kAttention, 1.0);
  EXPECT_EQ(s_.keep, nullptr);
}

// 0.99 of 4 and of 3 rows, rounded up, are all of them: then there is no cut, and nothing to wait for.
TEST_F(KeepTest, AShareThatRoundsToAllCutsNothing) {
  make(ImageTokenSelection::kKeyNormLow, 0.99);
  ASSERT_NE(s_.keep, nullptr);
  EXPECT_EQ(s_.keep->n_schedulable(s_), 12);
  EXPECT_TRUE(s_.keep->due(12).empty());
  s_.keep->restore(s_);
  EXPECT_EQ(s_.n_tokens(), 12);
}

TEST_F(KeepTest, RowsBeforePrefillLeaveThePromptAndPositionsStay) {
  make(ImageTokenSelection::kDiversity);
  EXPECT_EQ(s_.keep->n_schedulable(s_), 12 - 2 - 1) << "counted before they are gone";
  EXPECT_EQ(s_.keep->n_at_most(s_), 9);
  s_.keep->choose_rows(0, {1, 3});
  s_.keep->drop(std::vector<std::size_t>{0}, s_);
  EXPECT_EQ(s_.tokens, (std::vector<std::int32_t>{100, 101, 103, 105, 106, 107, 108, 109, 110, 111}));
  EXPECT_EQ(positions(0), (std::vector<std::int32_t>{0, 1, 3, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(positions(1),
            (std::vector<std::int32_t>{1000, 1001, 1003, 1005, 1006, 1007, 1008, 1009, 1010, 1011}));
  EXPECT_EQ(s_.n_prompt, 10);
  EXPECT_EQ(s_.n_dropped, 2);
  EXPECT_EQ(s_.next_position, 12);
  ASSERT_EQ(s_.runs.size(), 2U);
  EXPECT_EQ(s_.runs[0].first_media_row, 0) << "of the rows that stay";
  EXPECT_EQ(s_.runs[0].first_prompt_row, 2);
  EXPECT_EQ(s_.runs[0].n_rows, 2);
  EXPECT_EQ(s_.runs[1].first_prompt_row, 5);
  EXPECT_EQ(s_.runs[1].n_rows, 3);
  s_.append(7, 2);
  s_.keep->choose_rows(1, {0, 2});
  s_.keep->drop(std::vector<std::size_t>{1}, s_);
  EXPECT_EQ(s_.tokens, (std::vector<std::int32_t>{100, 101, 103, 105, 106, 107, 109, 110, 111, 7}));
  EXPECT_EQ(positions(1).back(), 12);
  EXPECT_EQ(s_.keep->n_schedulable(s_), 10);
  // It loses its cache: nothing comes back, for nothing of it was computed.
  s_.keep->restore(s_);
  EXPECT_EQ(s_.n_tokens(), 10);
}

TEST_F(KeepTest, KeysAreChosenBehindEachPicture) {
  make(ImageTokenSelection::kKeyNormLow);
  EXPECT_EQ(s_.keep->n_schedulable(s_), 6);
  EXPECT_EQ(s_.keep->n_at_most(s_), 9)
      << "6, then 4 and up to the end of the second, then 11 less two less one";
  EXPECT_TRUE(s_.keep->due(5).empty());
  EXPECT_THAT(s_.keep->due(6), testing::ElementsAre(0U));
  EXPECT_THAT(s_.keep->tokens_of(0), testing::ElementsAre(2, 3, 4, 5));
  s_.n_computed = 6;
  s_.keep->choose(0, std::vector<double>{1, 4, 2, 3});
  const std::vector<std::size_t> first = {0};
  EXPECT_THAT(s_.keep->tokens_left(first, 6), testing::ElementsAre(0, 1, 3, 5));
  s_.keep->drop(first, s_);
  EXPECT_EQ(s_.tokens, (std::vector<std::int32_t>{100, 101, 103, 105, 106, 107, 108, 109, 110, 111}));
  EXPECT_EQ(s_.runs[0].first_media_row, 1) << "media rows are all there";
  EXPECT_EQ(s_.runs[1].first_media_row, 3);
  EXPECT_EQ(s_.keep->n_schedulable(s_), 8);
  EXPECT_THAT(s_.keep->due(8), testing::ElementsAre(1U));
  EXPECT_THAT(s_.keep->tokens_of(1), testing::ElementsAre(5, 6, 7));
  s_.keep->choose(1, std::vector<double>{0, 0, 1});
  const std::vector<std::size_t> second = {1};
  s_.keep->drop(second, s_);
  EXPECT_EQ(s_.keep->n_schedulable(s_), 9);
  EXPECT_EQ(s_.tokens, (std::vector<std::int32_t>{100, 101, 103, 105, 106, 107, 109, 110, 111}));
  s_.append(7, 2);
  // Preempted: the whole prompt has to be computed again, and what was chosen stays chosen.
  s_.keep->restore(s_);
  EXPECT_EQ(s_.n_tokens(), 13);
  EXPECT_EQ(s_.n_prompt, 12);
  EXPECT_EQ(s_.n_dropped, 0);
  EXPECT_EQ(s_.tokens.back(), 7);
  EXPECT_EQ(s_.keep->n_schedulable(s_), 6);
  s_.keep->choose(0, std::vector<double>{9, 0, 9, 0});
  EXPECT_THAT(s_.keep->tokens_left(first, 6), testing::ElementsAre(0, 1, 3, 5));
}

TEST_F(KeepTest, AttentionIsHeardFromTextBehindThePicturesAndCountsWhenTheStepEnds) {
  make(ImageTokenSelection::kAttention);
  EXPECT_EQ(s_.keep->n_schedulable(s_), 11) << "but for the last row of the prompt";
  const auto rows = s_.keep->listening_rows(s_, 11);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].first, 6);
  EXPECT_EQ(rows[0].end, 7);
  EXPECT_EQ(rows[1].first, 10);
  EXPECT_EQ(rows[1].end, 11);
  s_.n_computed = 6;
  s_.keep->begin_step(11)[4] = 5;  // it failed and is forgotten
  s_.keep->begin_step(11)[4] = 2;
  s_.keep->end_step();
  s_.keep->end_step();
  EXPECT_THAT(s_.keep->received_by(0), testing::ElementsAre(0, 0, 2, 0));
  s_.n_computed = 11;
  EXPECT_EQ(s_.keep->n_publishable(s_), 6) << "who began with more would not hear them";
  EXPECT_THAT(s_.keep->due(11), testing::ElementsAre(0U, 1U));
}

// Logits behind a prompt with a picture of which `kept` media rows are left, computed with everything else
// taken out of the prompt by hand: positions as they were.
std::vector<float> logits_without(LoadedModel& model, const PreparedRequest& whole,
                                  const std::set<std::int32_t>& kept, std::int32_t next) {
  PreparedRequest part;
  for (const MediaItem& item : whole.media)
    part.media.push_back({item.plan, Tensor::copy_of(item.pixels), item.text_ids, item.fingerprint, {}});
  const auto n = static_cast<std::int64_t>(whole.layout.input_ids.size());
  const auto axes = static_cast<std::int64_t>(model.info().n_position_axes);
  std::vector<std::int64_t> stays;
  const MediaRun& run = whole.layout.runs.front();
  for (std::int64_t t = 0; t < n; ++t) {
    const std::int64_t row = t - run.first_prompt_row;
    if (row >= 0 && row < run.n_rows) {
      if (!kept.contains(static_cast<std::int32_t>(row))) continue;
      part.layout.runs.push_back({0, row, static_cast<std::int64_t>(stays.size()), 1});
    }
    stays.push_back(t);
  }
  for (const std::int64_t t : stays)
    part.layout.input_ids.push_back(whole.layout.input_ids[static_cast<std::size_t>(t)]);
  for (std::int64_t a = 0; a < axes; ++a)
    for (const std::int64_t t : stays)
      part.layout.positions.push_back(whole.layout.positions[static_cast<std::size_t>(a * n + t)]);
  part.layout.next_position = whole.layout.next_position;
  Engine engine(model, {.kv_cache_dtype = KvDType::kF32});
  const TensorView prompt = engine.forward_prompt(part, nullptr);
  std::vector<float> out(prompt.row(prompt.dim(0) - 1).cf32(),
                         prompt.row(prompt.dim(0) - 1).cf32() + prompt.dim(1));
  const TensorView more = engine.forward_next(next, nullptr);
  out.insert(out.end(), more.cf32(), more.cf32() + more.numel());
  return out;
}

// Positions that an answer goes on from do not move, and rows before prefill are dropped as if the prompt had
// never held them. The choice is found out by trying: the logits fit that of exactly one diverse set, the
// engine's.
TEST(ImageTokens, DiversityIsThePromptWithoutTheOtherRows) {
  for (LoadedModel* model : {&llava(), &qwen()}) {
    const ImageTokenOptions options{.keep = 0.25, .selection = ImageTokenSelection::kDiversity};
    const PreparedRequest request = ask(*model, "Describe the image.", {"0000.png"}, options);
    Engine engine(*model, {.kv_cache_dtype = KvDType::kF32});
    const TensorView got = engine.forward_prompt(request, nullptr);
    const std::int64_t n_rows = request.media[0].plan.n_tokens;
    const std::int64_t n_all = static_cast<std::int64_t>(request.layout.input_ids.size());
    EXPECT_EQ(got.dim(0), n_all - n_rows + options.n_kept(n_rows)) << "the others were never computed";
    std::vector<float> logits(got.row(got.dim(0) - 1).cf32(), got.row(got.dim(0) - 1).cf32() + got.dim(1));
    const TensorView more = engine.forward_next(5, nullptr);
    logits.insert(logits.end(), more.cf32(), more.cf32() + more.numel());
    const Tensor rows = Tensor::copy_of(engine.encode_media(request.media, nullptr));
    const TensorView seen = rows.view().cols(0, model->info().hidden_size);
    const std::vector<std::int32_t> kept = select_diverse(seen, options.n_kept(n_rows));
    const std::vector<float> expected = logits_without(*model, request, {kept.begin(), kept.end()}, 5);
    ASSERT_EQ(logits.size(), expected.size());
    for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 2e-4) << i;
  }
}

// In a decoder of one layer a token's key and value do not know the tokens before it. What is taken out of
// the cache must then be the same as what was never in the prompt: the oracle, for a row more or less than
// none. Which row it is, is found by trying all of them.
TEST(ImageTokens, TakingKeysOutOfTheCacheHidesTheirTokens) {
  const Json config = test::tiny_files("qwen2_vl", test::Geometry::kSmall).config;
  ASSERT_EQ(config["num_hidden_layers"], 1);
  LoadOptions load;
  load.n_threads = 1;
  const auto model = LoadedModel::with_random_weights(config, DType::kF32, load);
  Image image{112, 84, {}};
  for (int i = 0; i < 112 * 84 * 3; ++i)
    image.rgb.push_back(static_cast<std::uint8_t>((i * 37 + i * i / 91) % 251));
  const auto request = [&](const ImageTokenOptions& options) {
    PreparedRequest out;
    MediaItem item;
    item.plan = model->model().plan_media({.width_px = image.width_px, .height_px = image.height_px}, {});
    item.pixels = model->model().preprocess({&image, 1}, item.plan, nullptr);
    item.image_tokens = options;
    const MediaPlan plan = item.plan;
    for (const std::int32_t id : {3, 5}) out.token_ids.push_back(id);
    out.token_ids.push_back(model->info().image_token_id);
    for (const std::int32_t id : {2, 7, 4, 6}) out.token_ids.push_back(id);
    out.layout = model->model().expand_prompt(out.token_ids, {&plan, 1});
    out.media.push_back(std::move(item));
    return out;
  };
  const PreparedRequest whole = request({});
  const auto n = static_cast<std::int32_t>(whole.media[0].plan.n_tokens);
  ASSERT_GE(n, 4);
  for (const ImageTokenSelection selection : kAll)
    for (const bool keeps_one : {false, true}) {
      const double keep = keeps_one ? 1.0 / n : (n - 1.0) / n;
      Engine engine(*model, {.kv_cache_dtype = KvDType::kF32});
      const TensorView prompt =
          engine.forward_prompt(request({.keep = keep, .selection = selection}), nullptr);
      std::vector<float> got(prompt.row(prompt.dim(0) - 1).cf32(),
                             prompt.row(prompt.dim(0) - 1).cf32() + prompt.dim(1));
      const TensorView more = engine.forward_next(5, nullptr);
      got.insert(got.end(), more.cf32(), more.cf32() + more.numel());
      int n_fitting = 0;
      for (std::int32_t row = 0; row < n; ++row) {
        std::set<std::int32_t> kept;
        for (std::int32_t r = 0; r < n; ++r)
          if ((r == row) == keeps_one) kept.insert(r);
        const std::vector<float> expected = logits_without(*model, whole, kept, 5);
        ASSERT_EQ(got.size(), expected.size());
        float worst = 0;
        for (std::size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - expected[i]));
        n_fitting += worst < 1e-5F ? 1 : 0;
      }
      EXPECT_EQ(n_fitting, 1) << to_string(selection) << (keeps_one ? ", one stays" : ", one goes");
    }
}

// What is kept decides the answer.
TEST(ImageTokens, KeepingAlmostNothingChangesTheAnswerAndKeepingAllButOneHardly) {
  for (const ImageTokenSelection selection : kAll) {
    const auto logprob = [&](double keep) {
      Engine engine(llava(), {.kv_cache_dtype = KvDType::kF32});
      const auto result = engine.generate(
          ask(llava(), "How many shapes are there?", {"0002.png"}, {.keep = keep, .selection = selection}),
          answer_of(1));
      EXPECT_EQ(result.n_image_tokens, 64);
      return std::pair(result.tokens[0].logprob, result.n_dropped_image_tokens);
    };
    const auto all = logprob(1);
    const auto most = logprob(63.0 / 64);
    EXPECT_EQ(all.second, 0);
    EXPECT_EQ(most.second, 1) << to_string(selection);
    EXPECT_NE(most.first, all.first) << to_string(selection);
    EXPECT_EQ(logprob(0.01).second, 63) << to_string(selection);
  }
}

// Off by default, and a share of 1 is off: the same bits.
TEST(ImageTokens, AShareOfOneChangesNoBit) {
  Engine engine(llava());
  const auto plain = engine.generate(ask(llava(), "Describe the image.", {"0001.png"}, {}), answer_of(20));
  for (const ImageTokenSelection selection : kAll) {
    Engine other(llava());
    const auto same =
        other.generate(ask(llava(), "Describe the image.", {"0001.png"}, {.keep = 1, .selection = selection}),
                       answer_of(20));
    EXPECT_EQ(plain.token_ids, same.token_ids);
    for (std::size_t i = 0; i < plain.tokens.size(); ++i)
      EXPECT_EQ(plain.tokens[i].logprob, same.tokens[i].logprob);
  }
}

// A prompt cut into small steps, several pictures, other sequences beside it (some with all tokens): the
// answer is the one that the sequence gives alone, and when all is over every block is free.
TEST(ImageTokens, AnswersDoNotDependOnStepsAndNeighboursAndBlocksComeBack) {
  for (LoadedModel* model : {&llava(), &qwen()}) {
    std::vector<PreparedRequest> requests;
    std::vector<GenerationResult> alone;
    const auto request = [&](std::size_t i) {
      const ImageTokenOptions options{.keep = i < 4 ? 0.25 : 1.0, .selection = kAll[i % 4]};
      return ask(*model, i % 2 == 0 ? "Describe the image." : "Which shape is orange?",
                 {"000" + std::to_string(i) + ".png", "0007.png"}, options);
    };
    for (std::size_t i = 0; i < 5; ++i) {
      Engine engine(*model, {.kv_cache_dtype = KvDType::kF32});
      alone.push_back(engine.generate(request(i), answer_of(24)));
      EXPECT_EQ(engine.n_used_blocks(), 0);
      EXPECT_EQ(alone.back().n_dropped_image_tokens > 0, i < 4);
    }
    Engine engine(*model, {.max_batch_tokens = 29, .max_sequences = 5, .kv_cache_dtype = KvDType::kF32});
    std::vector<Engine::RequestId> ids;
    for (std::size_t i = 0; i < 5; ++i) ids.push_back(engine.submit(request(i), answer_of(24)));
    while (engine.has_work()) engine.step();
    EXPECT_EQ(engine.n_used_blocks(), 0);
    for (std::size_t i = 0; i < ids.size(); ++i)
      expect_same(engine.take_result(ids[i]).value(), alone[i],
                  model->info().family + " " + std::string(to_string(kAll[i % 4])));
  }
}

// Of two pictures of 64 tokens 16 stay each: blocks in use once the prompt is done.
TEST(ImageTokens, FreedPagesGoBackToThePool) {
  for (const ImageTokenSelection selection : kAll) {
    const auto n_blocks_while_answering = [&](double keep) {
      Engine engine(llava(), {.kv_cache_dtype = KvDType::kF32});
      const auto request = ask(llava(), "Describe the image.", {"0000.png", "0001.png"},
                               {.keep = keep, .selection = selection});
      const auto n_prompt = static_cast<std::int64_t>(request.layout.input_ids.size());
      const auto id = engine.submit(ask(llava(), "Describe the image.", {"0000.png", "0001.png"},
                                        {.keep = keep, .selection = selection}),
                                    answer_of(2));
      bool answered = false;
      std::int64_t used = 0;
      while (engine.has_work() && !answered)
        for (const StepOutput& out : engine.step()) answered = answered || !out.events.empty();
      used = engine.n_used_blocks();
      engine.cancel(id);
      while (engine.has_work()) engine.step();
      EXPECT_EQ(engine.n_used_blocks(), 0);
      const std::int64_t n_left = n_prompt - (keep < 1 ? 96 : 0);
      EXPECT_EQ(used, blocks_for(n_left)) << to_string(selection) << " " << n_prompt;
      return used;
    };
    EXPECT_LT(n_blocks_while_answering(0.25), n_blocks_while_answering(1)) << to_string(selection);
  }
}

// The youngest give way and are computed again, with the choice they made before.
TEST(ImageTokens, PreemptedSequencesGiveTheAnswersTheyGiveAlone) {
  for (const ImageTokenSelection selection : kAll) {
    const ImageTokenOptions options{.keep = 0.25, .selection = selection};
    const auto request = [&](int i) {
      return ask(llava(), i % 2 == 0 ? "Describe the image." : "Which shape is orange?",
                 {"000" + std::to_string(i) + ".png"}, options);
    };
    std::vector<GenerationResult> alone;
    for (int i = 0; i < 4; ++i) {
      Engine engine(llava(), {.kv_cache_dtype = KvDType::kF32});
      alone.push_back(engine.generate(request(i), answer_of(90)));
    }
    Engine engine(llava(), {.max_context_tokens = 192,
                            .kv_cache_tokens = 320,
                            .max_batch_tokens = 48,
                            .max_sequences = 4,
                            .kv_cache_dtype = KvDType::kF32});
    std::vector<Engine::RequestId> ids;
    for (int i = 0; i < 4; ++i) ids.push_back(engine.submit(request(i), answer_of(90)));
    while (engine.has_work()) engine.step();
    EXPECT_GT(engine.n_preemptions(), 0) << to_string(selection);
    EXPECT_EQ(engine.n_used_blocks(), 0);
    for (std::size_t i = 0; i < ids.size(); ++i)
      expect_same(engine.take_result(ids[i]).value(), alone[i], std::string(to_string(selection)));
  }
}

// What was computed with some tokens is never found by a request for all, nor the other way round, nor by one
// for another share or selection; text before the picture, and what was chosen by diversity, is.
TEST(ImageTokens, TheKeyOfAPrefixNamesShareAndSelection) {
  const auto request = [&](const ImageTokenOptions& options) {
    return ask(llava(), "Describe the image.", {"0004.png"}, options);
  };
  std::vector<ImageTokenOptions> all = {{}};
  for (const ImageTokenSelection selection : kAll) all.push_back({.keep = 0.25, .selection = selection});
  all.push_back({.keep = 0.5, .selection = ImageTokenSelection::kDiversity});
  const PreparedRequest whole = request({});
  const std::int64_t first_row = whole.layout.runs.front().first_prompt_row;
  for (const ImageTokenOptions& first : all) {
    for (const ImageTokenOptions& then : all) {
      Engine fresh(llava(), {.kv_cache_dtype = KvDType::kF32});
      const GenerationResult expected = fresh.generate(request(then), answer_of(12));
      Engine engine(llava(), {.kv_cache_dtype = KvDType::kF32, .prefix_cache_bytes = std::size_t{64} << 20});
      engine.generate(request(first), answer_of(12));
      const GenerationResult got = engine.generate(request(then), answer_of(12));
      expect_same(got, expected, std::string(to_string(then.selection)));
      if (!(first == then)) {
        EXPECT_EQ(got.n_reused_tokens, first_row);
      } else if (then.keeps_all() || then.selection == ImageTokenSelection::kDiversity) {
        EXPECT_GT(got.n_reused_tokens, first_row + 10) << "the picture and what stands behind it";
      } else {
        EXPECT_GE(got.n_reused_tokens, first_row);
      }
    }
  }
}

// A picture found in the cache of rows, or whose choice is known, loses the same rows.
TEST(ImageTokens, ARepeatedPictureNeedsNoTowerAndAnswersTheSame) {
  for (const ImageTokenSelection selection : kAll) {
    const ImageTokenOptions options{.keep = 0.12, .selection = selection};
    Engine engine(qwen(), {.kv_cache_dtype = KvDType::kF32, .vision_embedding_cache_bytes = 1 << 20});
    const auto first =
        engine.generate(ask(qwen(), "Describe the image.", {"0005.png"}, options), answer_of(16));
    const auto again =
        engine.generate(ask(qwen(), "Describe the image.", {"0005.png"}, options), answer_of(16));
    EXPECT_EQ(engine.n_media_encoded(), 1);
    expect_same(again, first, std::string(to_string(selection)));
    const auto whole = engine.generate(ask(qwen(), "Describe the image.", {"0005.png"}, {}), answer_of(16));
    EXPECT_EQ(engine.n_media_encoded(), 1) << "the rows are kept whole";
    EXPECT_EQ(whole.n_dropped_image_tokens, 0);
  }
}

// A video: its frames are one item, and positions on three axes stay.
TEST(ImageTokens, VideosKeepAShareOfAllFrames) {
  for (const ImageTokenSelection selection : kAll) {
    ChatRequest chat;
    ChatMessage message;
    message.role = "user";
    message.parts = {{ContentPart::Kind::kVideo, ""}, {ContentPart::Kind::kText, "Describe the video."}};
    chat.messages.push_back(std::move(message));
    MediaInput video = picture("0001.png");
    for (const char* name : {"0002.png", "0003.png", "0004.png"})
      video.frames.push_back(std::move(picture(name).frames.front()));
    video.is_video = true;
    video.frames_per_s = 2;
    chat.media.push_back(std::move(video));
    chat.media_options.image_tokens = {.keep = 0.25, .selection = selection};
    PreparedRequest request = qwen().prepare(chat);
    const std::int64_t n = request.media.front().plan.n_tokens;
    Engine engine(qwen(), {.max_batch_tokens = 31, .kv_cache_dtype = KvDType::kF32});
    const auto result = engine.generate(std::move(request), answer_of(8));
    EXPECT_EQ(result.n_dropped_image_tokens, n - chat.media_options.image_tokens.n_kept(n));
    EXPECT_EQ(result.token_ids.size(), 8U);
    EXPECT_EQ(engine.n_used_blocks(), 0);
  }
}

// Quantized caches, whose pages have offsets, too.
TEST(ImageTokens, EveryTypeOfCacheTakesMoves) {
  for (const KvDType dtype : {KvDType::kF16, KvDType::kInt8, KvDType::kFp8, KvDType::kInt4}) {
    Engine engine(qwen(), {.kv_cache_dtype = dtype});
    Engine exact(qwen(), {.kv_cache_dtype = KvDType::kF32});
    const ImageTokenOptions options{.keep = 0.5, .selection = ImageTokenSelection::kAttention};
    const auto request = [&] { return ask(qwen(), "How many shapes are there?", {"0003.png"}, options); };
    const auto a = engine.generate(request(), answer_of(1));
    const auto b = exact.generate(request(), answer_of(1));
    EXPECT_EQ(a.token_ids, b.token_ids) << to_string(dtype);
    EXPECT_NEAR(a.tokens[0].logprob, b.tokens[0].logprob, dtype == KvDType::kInt4 ? 0.3 : 0.05)
        << to_string(dtype);
  }
}

TEST(ImageTokens, AWrongShareIsRefused) { EXPECT_THROW(ask(llava(), "?", {"0000.png"}, {.keep = 0}), Error); }

}  // namespace
}  // namespace triptych

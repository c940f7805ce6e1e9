// Several requests in one engine: decoding goes on while a picture is encoded, who goes first, who ends when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/testing/faulty_model.h"

namespace triptych {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EngineScheduling : public testing::Test {
 protected:
  LoadedModel& model() { return *model_; }

  EngineOptions options() {
    return {.max_context_tokens = 1024,
            .kv_cache_tokens = 8192,
            .kv_cache_dtype = KvDType::kF32,
            .replay_steps = false,
            .clock_ms = [this] {
              ++n_looks_;
              if (on_look_) on_look_();
              return now_ms_ += tick_ms_;
            }};
  }

  PreparedRequest text(int n_tokens, int first = 0) {
    PreparedRequest out;
    for (int i = 0; i < n_tokens; ++i) out.token_ids.push_back(1 + (first + 3 * i) % 7);
    out.layout = model().model().expand_prompt(out.token_ids, {});
    return out;
  }

  // `n_tokens` of text, then a picture of one colour; of `side` pixels a side.
  PreparedRequest picture(int n_tokens, std::uint8_t colour, int side = 112) {
    PreparedRequest out = text(n_tokens, colour);
    Image image{side, side, {}};
    image.rgb.assign(static_cast<std::size_t>(3 * side * side), colour);
    MediaItem item;
    item.plan = model().model().plan_media({.width_px = side, .height_px = side}, {});
    item.pixels = model().model().preprocess({&image, 1}, item.plan, nullptr);
    item.fingerprint.high = colour;
    item.fingerprint.low = static_cast<std::uint64_t>(side);
    out.token_ids.push_back(model().info().image_token_id);
    out.layout = model().model().expand_prompt(out.token_ids, {&item.plan, 1});
    out.media.push_back(std::move(item));
    return out;
  }

  static SamplingParams answer(std::int64_t n_tokens) {
    SamplingParams out;
    out.max_tokens = n_tokens;
    out.ignore_eos = true;
    out.n_logprobs = 0;
    return out;
  }

  static std::vector<RequestId> run(Engine& engine) {
    std::vector<RequestId> ended;
    while (engine.has_work())
      for (const StepOutput& out : engine.step())
        if (out.finish_reason) ended.push_back(out.id);
    return ended;
  }

  test::FaultyTinyModel model_{"qwen2_vl"};
  double now_ms_ = 0;
  double tick_ms_ = 0;  // that a look at the clock takes
  std::int64_t n_looks_ = 0;
  std::function<void()> on_look_;
};

TEST_F(EngineScheduling, DecodingGoesOnWhileAPictureIsEncoded) {
  Engine whole(model(), options());
  const auto alone = whole.generate(picture(3, 90, 224), answer(6)).token_ids;
  const auto text_alone = whole.generate(text(9), answer(60)).token_ids;

  tick_ms_ = 1;
  EngineOptions cut = options();
  cut.max_step_ms = 2;
  Engine engine(model(), cut);
  const auto decoding = engine.submit(text(9), answer(60));
  engine.step();
  const auto seeing = engine.submit(picture(3, 90, 224), answer(6));
  int n_tokens_meanwhile = 0;
  while (engine.n_media_encoded() == 0)
    for (const StepOutput& out : engine.step()) {
      EXPECT_TRUE(out.id == decoding || engine.n_media_encoded() == 1);
      n_tokens_meanwhile += out.id == decoding ? static_cast<int>(out.events.size()) : 0;
    }
  EXPECT_GT(n_tokens_meanwhile, 5);
  EXPECT_GT(engine.n_encode_stretches(), 5);
  EXPECT_EQ(engine.n_encode_passes(), 1);
  run(engine);
  EXPECT_EQ(engine.take_result(decoding).value().token_ids, text_alone);
  EXPECT_EQ(engine.take_result(seeing).value().token_ids, alone);
  EXPECT_EQ(engine.n_padded_patches(), 0);
  EXPECT_EQ(engine.n_padded_tokens(), 0);
}

TEST_F(EngineScheduling, PicturesOfSeveralRequestsGoThroughTheTowerTogether) {
  std::vector<std::size_t> passes;
  model_.faults->before_encode = [&](std::span<const MediaItem> items) { passes.push_back(items.size()); };
  Engine engine(model(), options());
  const std::pair<std::uint8_t, int> asked[] = {{10, 56}, {20, 112}, {10, 56}, {30, 84}};
  std::vector<RequestId> ids;
  for (const auto& [colour, side] : asked) ids.push_back(engine.submit(picture(2, colour, side), answer(4)));
  run(engine);
  EXPECT_THAT(passes, ElementsAre(3U)) << "the third asks about the first's picture";
  EXPECT_EQ(engine.n_media_encoded(), 3);
  EXPECT_EQ(engine.n_padded_patches(), 0);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Engine own(model(), options());
    EXPECT_EQ(engine.take_result(ids[i]).value().token_ids,
              own.generate(picture(2, asked[i].first, asked[i].second), answer(4)).token_ids)
        << i;
  }
  passes.clear();
  EngineOptions narrow = options();
  narrow.max_batch_patches = picture(2, 1, 112).media[0].plan.n_patches + 1;
  Engine limited(model(), narrow);
  for (const auto& [colour, side] : {std::pair<std::uint8_t, int>{1, 112}, {2, 112}, {3, 56}, {4, 224}})
    limited.submit(picture(2, colour, side), answer(2));
  run(limited);
  EXPECT_THAT(passes, ElementsAre(1U, 1U, 1U, 1U)) << "one item goes whatever its size";
}

TEST_F(EngineScheduling, OfAPassThatThrowsOnlyItsItemFails) {
  model_.faults->before_encode = [](std::span<const MediaItem> items) {
    for (const MediaItem& item : items)
      if (item.fingerprint.high == 66) fail(ErrorCode::kOutOfMemory, "no memory for the tower");
  };
  Engine engine(model(), options());
  const auto a = engine.submit(picture(2, 10), answer(4));
  const auto bad = engine.submit(picture(2, 66), answer(4));
  const auto also_bad = engine.submit(picture(4, 66), answer(4));
  const auto b = engine.submit(picture(2, 20), answer(4));
  run(engine);
  for (const RequestId id : {a, b}) EXPECT_EQ(engine.take_result(id).value().token_ids.size(), 4U);
  for (const RequestId id : {bad, also_bad}) {
    const GenerationResult result = engine.take_result(id).value();
    EXPECT_EQ(result.finish_reason, FinishReason::kError);
    EXPECT_THAT(result.error.value().message, HasSubstr("no memory for the tower"));
  }
}

// Another thread cancels while the tower works: it stops at the next piece, and another's picture in the same
// pass goes on.
TEST_F(EngineScheduling, CancellingReachesTheTower) {
  Engine engine(model(), options());
  const auto kept = engine.submit(picture(2, 20, 224), answer(4));
  const auto cancelled = engine.submit(picture(2, 10, 224), answer(4));
  const std::int64_t before = n_looks_;
  on_look_ = [&] {
    if (n_looks_ == before + 12) std::thread([&] { engine.cancel(cancelled); }).join();
  };
  bool seen = false;
  while (engine.has_work())
    for (const StepOutput& out : engine.step())
      if (out.id == cancelled && out.finish_reason) {
        seen = true;
        EXPECT_EQ(out.finish_reason, FinishReason::kCancelled);
      }
  EXPECT_TRUE(seen);
  EXPECT_EQ(engine.n_encode_stretches(), 2) << "left once, for the cancellation";
  EXPECT_TRUE(engine.take_result(cancelled).value().token_ids.empty());
  EXPECT_EQ(engine.take_result(kept).value().token_ids.size(), 4U);

  // Nobody else needs the pass: it ends.
  const auto alone = engine.submit(picture(2, 30, 224), answer(4));
  const std::int64_t n_encoded = engine.n_media_encoded();
  const std::int64_t start = n_looks_;
  on_look_ = [&] {
    if (n_looks_ == start + 8) engine.cancel(alone);
  };
  engine.step();
  EXPECT_FALSE(engine.has_work());
  EXPECT_EQ(engine.take_result(alone).value().finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(engine.n_media_encoded(), n_encoded);
  on_look_ = nullptr;
  EXPECT_EQ(engine.generate(picture(2, 30, 224), answer(4)).token_ids.size(), 4U);
}

TEST_F(EngineScheduling, ADeadlineEndsARequestWhereverItIs) {
  EngineOptions one = options();
  one.max_sequences = 1;
  Engine engine(model(), one);
  const auto with_deadline = [](PreparedRequest request, double ms) {
    request.queue.timeout_ms = ms;
    return request;
  };
  const auto running = engine.submit(with_deadline(text(5), 100), answer(50));
  const auto waiting = engine.submit(with_deadline(text(5), 50), answer(50));
  const auto patient = engine.submit(text(5), answer(3));
  for (int i = 0; i < 4; ++i) engine.step();
  now_ms_ = 60;
  for (const StepOutput& out : engine.step())
    EXPECT_TRUE(out.id != waiting || out.finish_reason == FinishReason::kTimeout);
  EXPECT_EQ(engine.take_result(waiting).value().finish_reason, FinishReason::kTimeout);
  EXPECT_FALSE(engine.take_result(running).has_value());
  now_ms_ = 101;
  run(engine);
  const GenerationResult ended = engine.take_result(running).value();
  EXPECT_EQ(ended.finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(ended.token_ids.size(), 5U) << "what came until then";
  EXPECT_EQ(engine.take_result(patient).value().finish_reason, FinishReason::kLength);

  // In the middle of the tower.
  tick_ms_ = 1;
  const auto seeing = engine.submit(with_deadline(picture(2, 40, 224), 12), answer(4));
  engine.step();
  EXPECT_EQ(engine.take_result(seeing).value().finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(engine.n_media_encoded(), 0);
  EXPECT_THROW(engine.submit(with_deadline(text(5), -1), answer(1)), Error);
}

TEST_F(EngineScheduling, LowerPrioritiesGoFirstAndWaitingMakesUpForThem) {
  EngineOptions one = options();
  one.max_sequences = 1;
  one.priority_aging_ms = 100;
  Engine engine(model(), one);
  const auto submit = [&](int priority) {
    PreparedRequest request = text(5);
    request.queue.priority = priority;
    return engine.submit(std::move(request), answer(2));
  };
  const auto first = submit(3);
  engine.step();  // it runs
  const auto low = submit(2);
  const auto high = submit(-1);
  const auto middle = submit(0);
  EXPECT_THAT(run(engine), ElementsAre(first, high, middle, low));
  const auto busy = submit(0);
  engine.step();
  const auto old = submit(2);
  now_ms_ += 250;
  const auto young = submit(0);
  EXPECT_THAT(run(engine), ElementsAre(busy, old, young));
}

TEST_F(EngineScheduling, TenantsTakeTurns) {
  EngineOptions one = options();
  one.max_sequences = 1;
  one.tenant_weights = {{"paying", 2.0}};
  Engine engine(model(), one);
  std::map<RequestId, char> of;
  const auto submit = [&](const char* tenant) {
    PreparedRequest request = text(20);
    request.queue.tenant = tenant;
    of[engine.submit(std::move(request), answer(2))] = *tenant;
  };
  for (int i = 0; i < 6; ++i) submit("loud");
  for (int i = 0; i < 4; ++i) submit("paying");
  for (int i = 0; i < 2; ++i) submit("quiet");
  std::string order;
  for (const RequestId id : run(engine)) order += of[id];
  EXPECT_EQ(order.substr(0, 4), "lpqp") << order;
  EXPECT_EQ(std::count(order.begin(), order.begin() + 8, 'p'), 4) << order;
  EXPECT_EQ(order.substr(8), "llll") << order;
  one.tenant_weights = {{"paying", 0.0}};
  EXPECT_THROW(Engine(model(), one), Error);
}

// Text before a picture need not wait for it.
TEST_F(EngineScheduling, TextBeforeAPictureIsReadMeanwhile) {
  tick_ms_ = 1;
  EngineOptions cut = options();
  cut.max_step_ms = 2;
  Engine engine(model(), cut);
  std::vector<std::int32_t> fed;  // of the request with the picture, before its rows were there
  const std::int64_t n_prompt = static_cast<std::int64_t>(picture(40, 50, 224).layout.input_ids.size());
  model_.faults->before_forward = [&](const Batch& batch) {
    for (const RowLengths& row : batch.lengths)
      if (row.n_prompt == n_prompt && engine.n_media_encoded() == 0) fed.push_back(row.n_tokens);
  };
  engine.submit(text(9), answer(40));
  engine.step();
  const auto id = engine.submit(picture(40, 50, 224), answer(2));
  run(engine);
  EXPECT_EQ(fed.size(), 40U);
  EXPECT_EQ(engine.take_result(id).value().token_ids.size(), 2U);
}

}  // namespace
}  // namespace triptych

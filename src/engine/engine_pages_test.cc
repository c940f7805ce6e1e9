// Pages of an engine: whose they are, that a prefix is stored once, what is copied, and how much of them is
// empty.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/testing/faulty_model.h"

namespace triptych {
namespace {

constexpr std::size_t kAnyBytes = std::numeric_limits<std::size_t>::max();
const EngineOptions kOptions = {.max_context_tokens = 512,
                                .kv_cache_tokens = 4096,
                                .max_batch_tokens = 64,
                                .kv_cache_dtype = KvDType::kF32,
                                .replay_steps = false,
                                .prefix_cache_bytes = kAnyBytes};

class EnginePages : public testing::Test {
 protected:
  LoadedModel& model() { return *model_; }
  // n tokens, of which the first n_same are those of every other prompt.
  PreparedRequest prompt(int n, int n_same, int own) {
    PreparedRequest out;
    for (int i = 0; i < n; ++i) out.token_ids.push_back(1 + (i * i / 3 + (i < n_same ? 0 : own)) % 7);
    out.layout = model().model().expand_prompt(out.token_ids, {});
    return out;
  }
  static SamplingParams greedy(std::int64_t max_tokens) {
    SamplingParams out;
    out.max_tokens = max_tokens;
    out.ignore_eos = true;
    return out;
  }
  std::vector<std::int32_t> alone(PreparedRequest request, std::int64_t max_tokens) {
    EngineOptions options = kOptions;
    options.prefix_cache_bytes = 0;
    Engine engine(model(), options);
    return engine.generate(std::move(request), greedy(max_tokens)).token_ids;
  }

  test::FaultyTinyModel model_{"llava"};
};

// k requests with a prefix of three pages, one after another, each while the others still run.
TEST_F(EnginePages, APrefixIsStoredOnce) {
  Engine engine(model(), kOptions);
  std::vector<Engine::RequestId> ids;
  for (int k = 1; k <= 4; ++k) {
    ids.push_back(engine.submit(prompt(200, 192, k), greedy(50)));
    for (int i = 0; i < 5; ++i) engine.step();
    const KvCacheStats stats = engine.kv_cache_stats();
    EXPECT_EQ(stats.n_used_blocks, 3 + k) << k;
    EXPECT_EQ(stats.n_shared_blocks, k == 1 ? 0 : 3) << k;
    EXPECT_EQ(stats.n_cached_blocks, 3) << "full ones, while all run";
    EXPECT_EQ(stats.n_hit_tokens, 192 * (k - 1)) << k;
    EXPECT_EQ(stats.n_blocks, stats.n_free_blocks + stats.n_used_blocks + stats.n_idle_blocks);
  }
  while (engine.has_work()) engine.step();
  for (int k = 1; k <= 4; ++k) {
    const GenerationResult result = engine.take_result(ids[static_cast<std::size_t>(k - 1)]).value();
    EXPECT_EQ(result.n_reused_tokens, k == 1 ? 0 : 192);
    EXPECT_EQ(result.token_ids, alone(prompt(200, 192, k), 50)) << k;
  }
  const KvCacheStats stats = engine.kv_cache_stats();
  EXPECT_EQ(stats.n_used_blocks, 0);
  EXPECT_EQ(stats.n_idle_blocks, 3 + 4);
  EXPECT_EQ(stats.fragmentation(), 0.0);
}

// Two that start in the same step compute the same pages; one copy stays.
TEST_F(EnginePages, EqualPagesComputedAtOnceBecomeOne) {
  EngineOptions options = kOptions;
  options.max_batch_tokens = 512;
  Engine engine(model(), options);
  const auto a = engine.submit(prompt(200, 192, 1), greedy(40));
  const auto b = engine.submit(prompt(200, 192, 2), greedy(40));
  engine.step();
  EXPECT_EQ(engine.kv_cache_stats().n_used_blocks, 3 + 2);
  EXPECT_EQ(engine.kv_cache_stats().n_shared_blocks, 3);
  while (engine.has_work()) engine.step();
  EXPECT_EQ(engine.take_result(a).value().token_ids, alone(prompt(200, 192, 1), 40));
  EXPECT_EQ(engine.take_result(b).value().token_ids, alone(prompt(200, 192, 2), 40));
}

// One that waits for its turn in the step begins with what the other has computed meanwhile.
TEST_F(EnginePages, ASequenceThatWaitsTakesThePagesOfTheOneBeforeIt) {
  Engine engine(model(), kOptions);  // 64 rows a step
  std::int64_t n_rows = 0;
  model_.faults->before_forward = [&](const Batch& batch) {
    n_rows += static_cast<std::int64_t>(batch.token_ids.size());
  };
  const auto a = engine.submit(prompt(200, 192, 1), greedy(1));
  const auto b = engine.submit(prompt(200, 192, 2), greedy(1));
  while (engine.has_work()) engine.step();
  model_.faults->before_forward = nullptr;
  EXPECT_EQ(n_rows, 200 + 8);
  EXPECT_EQ(engine.take_result(a).value().n_reused_tokens, 0);
  const GenerationResult second = engine.take_result(b).value();
  EXPECT_EQ(second.n_reused_tokens, 192);
  EXPECT_EQ(second.token_ids, alone(prompt(200, 192, 2), 1));
}

TEST_F(EnginePages, WhoWritesIntoASharedPageCopiesIt) {
  Engine engine(model(), kOptions);
  const GenerationResult first = engine.generate(prompt(150, 150, 0), greedy(60));
  // 100 tokens of it: the second page is shared in part.
  const auto a = engine.submit(prompt(150, 100, 1), greedy(60));
  const auto b = engine.submit(prompt(150, 100, 2), greedy(60));
  while (engine.has_work()) engine.step();
  for (const auto& [id, own] : {std::pair(a, 1), std::pair(b, 2)}) {
    const GenerationResult result = engine.take_result(id).value();
    EXPECT_EQ(result.n_reused_tokens, 100);
    EXPECT_EQ(result.token_ids, alone(prompt(150, 100, own), 60));
  }
  const GenerationResult again = engine.generate(prompt(150, 150, 0), greedy(60));
  EXPECT_EQ(again.n_reused_tokens, 149);
  EXPECT_EQ(again.token_ids, first.token_ids) << "what was shared is as it was";
}

TEST_F(EnginePages, TenantsShareNothing) {
  Engine engine(model(), kOptions);
  const auto ask = [&](const char* salt) {
    PreparedRequest request = prompt(200, 200, 0);
    request.cache_salt = salt;
    return engine.generate(std::move(request), greedy(5)).n_reused_tokens;
  };
  EXPECT_EQ(ask("a"), 0);
  EXPECT_EQ(ask("b"), 0);
  EXPECT_EQ(ask("a"), 199);
  EXPECT_EQ(ask(""), 0);
  EXPECT_EQ(ask("b"), 199);
}

TEST_F(EnginePages, IdlePagesGiveWayToSequences) {
  EngineOptions options = kOptions;
  options.kv_cache_tokens = 512;  // eight pages
  Engine engine(model(), options);
  for (int own = 1; own <= 6; ++own)
    EXPECT_EQ(engine.generate(prompt(200, 0, own), greedy(100)).token_ids, alone(prompt(200, 0, own), 100))
        << own;
  EXPECT_EQ(engine.n_preemptions(), 0);
  EXPECT_GT(engine.kv_cache_stats().n_evicted_blocks, 0);
  EXPECT_EQ(engine.generate(prompt(200, 0, 6), greedy(5)).n_reused_tokens, 199) << "used last";
}

TEST_F(EnginePages, NoMoreIsKeptThanAsked) {
  Engine measured(model(), kOptions);
  const std::size_t page_bytes = measured.kv_cache_bytes() / static_cast<std::size_t>(4096 / kBlockTokens);
  EngineOptions options = kOptions;
  options.prefix_cache_bytes = 2 * page_bytes;
  Engine engine(model(), options);
  engine.generate(prompt(300, 0, 1), greedy(5));
  EXPECT_EQ(engine.kv_cache_stats().n_cached_blocks, 2);
  EXPECT_EQ(engine.generate(prompt(300, 0, 1), greedy(5)).n_reused_tokens, 128);
}

// A preempted sequence finds its own pages when they are still there.
TEST_F(EnginePages, PreemptedSequencesBeginWithTheirOwnPages) {
  EngineOptions options = kOptions;
  options.max_context_tokens = 448;
  options.kv_cache_tokens = 448;  // seven pages
  Engine engine(model(), options);
  const auto a = engine.submit(prompt(130, 0, 1), greedy(180));
  const auto b = engine.submit(prompt(130, 0, 2), greedy(180));
  std::int64_t n_rows = 0;
  model_.faults->before_forward = [&](const Batch& batch) {
    n_rows += static_cast<std::int64_t>(batch.token_ids.size());
  };
  while (engine.has_work()) engine.step();
  model_.faults->before_forward = nullptr;
  EXPECT_GT(engine.n_preemptions(), 0);
  EXPECT_LT(n_rows, 2 * (130 + 180) + 128) << "not all of it was computed again";
  EXPECT_EQ(engine.take_result(a).value().token_ids, alone(prompt(130, 0, 1), 180));
  EXPECT_EQ(engine.take_result(b).value().token_ids, alone(prompt(130, 0, 2), 180));
}

// What a sequence published goes with it when it fails, also when it is full pages.
TEST_F(EnginePages, PagesOfASequenceThatFailedAreForgotten) {
  Engine engine(model(), kOptions);
  int n_steps = 0;
  model_.faults->before_forward = [&](const Batch&) {
    if (++n_steps == 8) fail(ErrorCode::kInternal, "fault");
  };
  EXPECT_THROW(engine.generate(prompt(200, 0, 1), greedy(50)), Error);
  model_.faults->before_forward = nullptr;
  EXPECT_EQ(engine.kv_cache_stats().n_cached_blocks, 0);
  EXPECT_EQ(engine.kv_cache_stats().n_free_blocks, engine.kv_cache_stats().n_blocks);
  EXPECT_EQ(engine.generate(prompt(200, 0, 1), greedy(5)).n_reused_tokens, 0);
}

// ---- how much of the pages is empty

// Counts only: every token is computed at once, and is 1.
class CountingModel final : public Model {
 public:
  explicit CountingModel(const Model& model) : model_(model), info_(model.info()) {
    info_.max_context_tokens = 4096;
  }
  const ModelInfo& info() const override { return info_; }
  MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const override {
    return model_.plan_media(meta, options);
  }
  Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const override {
    return model_.preprocess(frames, plan, pool);
  }
  PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                             std::span<const MediaPlan> plans) const override {
    return model_.expand_prompt(ids, plans);
  }
  TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const override {
    return model_.encode_media(cx, items);
  }
  TensorView forward(ExecContext& cx, const Batch& batch) const override {
    const TensorView logits =
        cx.empty({static_cast<std::int64_t>(batch.logit_rows.size()), info_.vocab_size});
    fill_zero(logits);
    for (std::int64_t row = 0; row < logits.dim(0); ++row) logits.row_as<float>(row)[1] = 1.0F;
    return logits;
  }
  const PartSizes& part_sizes() const override { return model_.part_sizes(); }

 private:
  const Model& model_;
  ModelInfo info_;
};

// 1000 requests, 16 at a time: prompts of 10 to 400 tokens and `picture(rng)` more, answers of 16 to 128.
double mean_fragmentation(const std::function<std::int64_t(Rng&)>& picture) {
  test::FaultyTinyModel tiny("llava");
  const auto model = LoadedModel::from_parts(make_cpu_backend({.n_threads = 1, .pin = false, .isa = {}}),
                                             std::make_unique<CountingModel>((*tiny).model()));
  Engine engine(*model, {.max_context_tokens = 4096,
                         .kv_cache_tokens = 16 * 4096,
                         .max_batch_tokens = 1024,
                         .max_sequences = 16,
                         .kv_cache_dtype = KvDType::kF16});
  Rng rng(5);
  std::int64_t n_rows = 0, n_tokens = 0;
  int n_submitted = 0, n_open = 0, n_ended = 0;
  while (n_ended < 1000) {
    for (; n_open < 16 && n_submitted < 1000; ++n_open, ++n_submitted) {
      const auto n = static_cast<std::size_t>(10 + static_cast<std::int64_t>(rng.below(391)) + picture(rng));
      PreparedRequest request;
      request.token_ids.assign(n, 1);
      request.layout = model->model().expand_prompt(request.token_ids, {});
      SamplingParams params;
      params.max_tokens = 16 + static_cast<std::int64_t>(rng.below(113));
      params.ignore_eos = true;
      engine.submit(std::move(request), params);
    }
    for (const StepOutput& out : engine.step())
      if (out.finish_reason) {
        --n_open;
        ++n_ended;
        engine.take_result(out.id);
      }
    const KvCacheStats stats = engine.kv_cache_stats();
    EXPECT_EQ(stats.n_blocks, stats.n_free_blocks + stats.n_used_blocks);
    n_rows += stats.n_used_blocks * stats.block_tokens;
    n_tokens += stats.n_used_tokens;
  }
  EXPECT_EQ(engine.kv_cache_stats().n_used_blocks, 0);
  return 1.0 - static_cast<double>(n_tokens) / static_cast<double>(n_rows);
}

TEST(Fragmentation, OfMixedRequestsIsAtMostFivePercent) {
  // LLaVA-1.5: 576 rows a picture; one request in eight has none, one in eight two.
  const double llava = mean_fragmentation([](Rng& rng) {
    const std::uint64_t kind = rng.below(8);
    return kind == 0 ? std::int64_t{0} : kind == 1 ? std::int64_t{2 * 576} : std::int64_t{576};
  });
  RecordProperty("llava", std::to_string(llava));
  EXPECT_LE(llava, 0.05);
  EXPECT_GT(llava, 0.0) << "nothing was counted";
  // Qwen2-VL: pictures of 224 to 672 pixels a side, 64 to 576 rows. Short sequences leave more of their last
  // page empty: half a page each.
  const double qwen2_vl = mean_fragmentation([](Rng& rng) {
    return static_cast<std::int64_t>(8 + rng.below(17)) * static_cast<std::int64_t>(8 + rng.below(17));
  });
  RecordProperty("qwen2_vl", std::to_string(qwen2_vl));
  EXPECT_LE(qwen2_vl, 0.08);
}

}  // namespace
}  // namespace triptych

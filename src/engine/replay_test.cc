// Replayed decode steps give the bits of steps that go through the model, for every family, format of weights
// and cache, alone and in batches whose sequences come and go.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/engine.h"
#include "models/testing/tiny_models.h"
#include "tensor/quant_format.h"

namespace triptych {
namespace {

struct Format {
  const char* weights;  // empty: bfloat16 as stored
  KvDType cache;
};
constexpr Format kFormats[] = {{"", KvDType::kF32},         {"", KvDType::kF16},
                               {"", KvDType::kInt4},        {"int8", KvDType::kInt8},
                               {"int4:g16", KvDType::kFp8}, {"int4:g16", KvDType::kF16},
                               {"int8:g16", KvDType::kBF16}};

std::unique_ptr<LoadedModel> make_model(std::string_view family, const Format& format, int n_threads,
                                        const std::function<void(Json&)>& change = {}) {
  Json config = test::tiny_files(family, test::Geometry::kSmall).config;
  if (change) change(config);
  LoadOptions options;
  options.n_threads = n_threads;
  if (*format.weights != 0) options.weight_formats.language = QuantFormat::parse(format.weights);
  return LoadedModel::with_random_weights(config, DType::kBF16, options);
}

PreparedRequest request_of(const LoadedModel& model, std::int32_t first, int n_tokens) {
  PreparedRequest out;
  for (int i = 0; i < n_tokens; ++i) out.token_ids.push_back(1 + (first + 3 * i) % 7);
  out.layout = model.model().expand_prompt(out.token_ids, {});
  return out;
}

// Logits of a prompt's answer, all steps after another.
std::vector<float> decode(LoadedModel& model, const EngineOptions& options, int n_prompt, int n_steps,
                          std::int64_t& n_replayed) {
  Engine engine(model, options);
  engine.forward_prompt(request_of(model, 1, n_prompt), nullptr);
  std::vector<float> out;
  for (int i = 0; i < n_steps; ++i) {
    const TensorView logits = engine.forward_next(1 + i % 7, nullptr);
    out.insert(out.end(), logits.cf32(), logits.cf32() + std::min<std::int64_t>(logits.numel(), 64));
  }
  n_replayed = engine.n_replayed_steps();
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_same_alone(LoadedModel& model, KvDType cache, int n_prompt, int n_steps,
                       const std::string& what) {
  EngineOptions options{.max_context_tokens = n_prompt + n_steps + 1, .kv_cache_dtype = cache};
  std::int64_t n_replayed = 0;
  const std::vector<float> replayed = decode(model, options, n_prompt, n_steps, n_replayed);
  EXPECT_EQ(n_replayed, n_steps - 1) << what;
  options.replay_steps = false;
  const std::vector<float> plain = decode(model, options, n_prompt, n_steps, n_replayed);
  EXPECT_EQ(n_replayed, 0) << what;
  EXPECT_TRUE(same_bits(replayed, plain)) << what;
}

class ReplayTest : public testing::TestWithParam<std::string_view> {};

TEST_P(ReplayTest, SameLogitsOverPagesForAllFormats) {
  const std::string family(GetParam());
  for (const Format& format : kFormats)
    for (const int n_threads : {1, 2}) {
      const auto model = make_model(family, format, n_threads);
      const int n_steps = family == "fuyu" ? 66 : 140;  // a page holds 64 tokens
      expect_same_alone(
          *model, format.cache, 5, n_steps,
          fmt::format("{} {} {} {}", family, format.weights, static_cast<int>(format.cache), n_threads));
    }
}

struct Answers {
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
  std::int64_t n_replayed = 0;
  std::int64_t n_recorded = 0;
};

// Requests of several lengths that come at different steps, in pieces of 24 rows, one of them long.
Answers serve(LoadedModel& model, KvDType cache, bool replay) {
  Engine engine(model, {.max_context_tokens = 512,
                        .kv_cache_tokens = 2048,
                        .max_batch_tokens = 24,
                        .max_sequences = 4,
                        .kv_cache_dtype = cache,
                        .replay_steps = replay});
  constexpr struct {
    int at_step, n_prompt, n_answer;
  } kRequests[] = {{0, 4, 90}, {3, 1, 20}, {4, 70, 30}, {9, 7, 5}, {30, 25, 40}, {31, 200, 10}, {50, 3, 12}};
  std::vector<Engine::RequestId> ids;
  std::size_t next = 0;
  for (int step = 0; step < 400; ++step) {
    for (; next < std::size(kRequests) && kRequests[next].at_step <= step; ++next) {
      SamplingParams params;
      params.max_tokens = kRequests[next].n_answer;
      params.ignore_eos = true;
      params.n_logprobs = 3;
      ids.push_back(engine.submit(
          request_of(model, static_cast<std::int32_t>(next), kRequests[next].n_prompt), params));
    }
    engine.step();
    if (!engine.has_work() && next == std::size(kRequests)) break;
  }
  Answers out;
  for (const Engine::RequestId id : ids) {
    const auto result = engine.take_result(id);
    if (!result) {
      ADD_FAILURE() << "no result";
      continue;
    }
    out.ids.insert(out.ids.end(), result->token_ids.begin(), result->token_ids.end());
    for (const SampledToken& token : result->tokens) {
      out.logprobs.push_back(token.logprob);
      for (const TokenLogprob& other : token.top) out.logprobs.push_back(other.logprob);
    }
  }
  out.n_replayed = engine.n_replayed_steps();
  out.n_recorded = engine.n_recorded_steps();
  return out;
}

TEST_P(ReplayTest, SameAnswersInBatchesThatChange) {
  const std::string family(GetParam());
  for (const Format& format : {kFormats[1], kFormats[3], kFormats[5]})
    for (const int n_threads : {1, 2}) {
      if (family == "fuyu" && (n_threads == 2 || *format.weights != 0)) continue;  // a large vocabulary: slow
      const auto model = make_model(family, format, n_threads);
      const Answers replayed = serve(*model, format.cache, true);
      const Answers plain = serve(*model, format.cache, false);
      EXPECT_EQ(replayed.ids, plain.ids) << family;
      EXPECT_EQ(replayed.ids.size(), 207U);
      EXPECT_TRUE(same_bits(replayed.logprobs, plain.logprobs)) << family;
      EXPECT_GT(replayed.n_replayed, 30);
      EXPECT_GE(replayed.n_recorded, 3) << "classes of one, two and more sequences";
      EXPECT_EQ(plain.n_replayed + plain.n_recorded, 0);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, ReplayTest, testing::ValuesIn(test::kFamilies),
                         [](const auto& one) { return std::string(one.param); });

// A family that is not listed here might compute on the host behind a record's back.
TEST(Replay, EveryRegisteredFamilyIsTested) {
  std::set<std::string, std::less<>> registered;
  for (const auto& family : ModelRegistry::global().families()) registered.insert(family.name);
  EXPECT_EQ(registered,
            (std::set<std::string, std::less<>>(std::begin(test::kFamilies), std::end(test::kFamilies))));
}

// What depends on the length of the prompt or of the context: bases and factors that change within an answer.
TEST(Replay, ScalingsThatDependOnTheLength) {
  const auto dynamic = make_model("llava", kFormats[0], 1, [](Json& config) {
    config["text_config"]["max_position_embeddings"] = 32;
    config["text_config"]["rope_scaling"] = {{"type", "dynamic"}, {"factor", 8.0}};
  });
  expect_same_alone(*dynamic, KvDType::kF32, 20, 100, "dynamic");
  const auto yarn = make_model("qwen2_vl", kFormats[0], 1, [](Json& config) {
    config["rope_scaling"] = {{"type", "yarn"},
                              {"factor", 4.0},
                              {"original_max_position_embeddings", 64},
                              {"mrope_section", {2, 1, 1}}};
  });
  expect_same_alone(*yarn, KvDType::kF32, 20, 100, "yarn");
  const auto qwen = make_model("qwen_vl", kFormats[0], 1, [](Json& config) { config["seq_length"] = 32; });
  expect_same_alone(*qwen, KvDType::kF32, 20, 100, "logn");
  expect_same_alone(*qwen, KvDType::kF32, 70, 30, "ntk and logn");
}

TEST(Replay, AnErrorInAReplayedStepLeavesTheEngineUsable) {
  const auto model = make_model("llava", kFormats[0], 2);
  const auto logits_after = [&](bool with_error) {
    Engine engine(*model, {.max_context_tokens = 64, .kv_cache_dtype = KvDType::kF32});
    engine.forward_prompt(request_of(*model, 1, 5), nullptr);
    for (int i = 0; i < 3; ++i) engine.forward_next(2, nullptr);
    if (with_error) {
      EXPECT_THROW(engine.forward_next(1 << 20, nullptr), Error);
    }
    const TensorView logits = engine.forward_next(3, nullptr);
    EXPECT_EQ(engine.n_replayed_steps(), with_error ? 4 : 3);
    return std::vector<float>(logits.cf32(), logits.cf32() + logits.numel());
  };
  EXPECT_TRUE(same_bits(logits_after(true), logits_after(false)));
}

// Products large enough to be shared by threads.
TEST(Replay, SameAnswersOfAModelWhoseLoopsAreShared) {
  for (const Format& format : kFormats) {
    const auto model = make_model("llava", format, 3, [](Json& config) {
      config["text_config"]["hidden_size"] = 512;
      config["text_config"]["intermediate_size"] = 1024;
      config["text_config"]["num_hidden_layers"] = 2;
      config["text_config"]["num_attention_heads"] = 8;
      config["text_config"]["num_key_value_heads"] = 4;
      config["text_config"]["vocab_size"] = 1024;
    });
    const std::int64_t before = model->backend().n_parallel_loops();
    expect_same_alone(*model, format.cache, 70, 70, format.weights);
    EXPECT_GT(model->backend().n_parallel_loops(), before + 2 * 70 * 6);
    const Answers replayed = serve(*model, format.cache, true);
    const Answers plain = serve(*model, format.cache, false);
    EXPECT_EQ(replayed.ids, plain.ids) << format.weights;
    EXPECT_TRUE(same_bits(replayed.logprobs, plain.logprobs)) << format.weights;
  }
}

// A prompt between decode steps takes more of the arena, which moves.
TEST(Replay, AnArenaThatGrowsIsRecordedAnew) {
  const auto model = make_model("llava", kFormats[0], 1, [](Json& config) {
    config["text_config"]["hidden_size"] = 64;
    config["text_config"]["intermediate_size"] = 512;
  });
  const auto run = [&](bool replay) {
    Engine engine(*model, {.max_context_tokens = 1024,
                           .kv_cache_tokens = 4096,
                           .kv_cache_dtype = KvDType::kF32,
                           .replay_steps = replay});
    SamplingParams params;
    params.max_tokens = 40;
    params.ignore_eos = true;
    params.n_logprobs = 3;
    const auto first = engine.submit(request_of(*model, 1, 4), params);
    for (int i = 0; i < 6; ++i) engine.step();
    const std::int64_t n_recorded = engine.n_recorded_steps();
    const std::int64_t before = engine.n_arena_allocations();
    params.max_tokens = 2;
    engine.submit(request_of(*model, 2, 900), params);
    while (engine.has_work()) engine.step();
    EXPECT_GT(engine.n_arena_allocations(), before);
    if (replay) {
      EXPECT_EQ(n_recorded, 1);
      EXPECT_EQ(engine.n_recorded_steps(), 3) << "two sequences, and the first class anew";
    }
    std::vector<float> out;
    const auto result = engine.take_result(first);
    for (const SampledToken& token : result.value().tokens)
      for (const TokenLogprob& one : token.top) out.push_back(one.logprob);
    return out;
  };
  EXPECT_TRUE(same_bits(run(true), run(false)));
}

class NoTaps : public ExecObserver {
 public:
  void on_tap(std::string_view, const TensorView&) override { ++n; }
  int n = 0;
};

TEST(Replay, ObserversAndChecksOfNumbersSeeTheModelItself) {
  const auto model = make_model("llava", kFormats[0], 1);
  Engine engine(*model, {.max_context_tokens = 64});
  engine.forward_prompt(request_of(*model, 1, 5), nullptr);
  for (int i = 0; i < 3; ++i) engine.forward_next(2, nullptr);
  NoTaps observer;
  engine.forward_next(2, &observer);
  EXPECT_GT(observer.n, 0);
  EXPECT_EQ(engine.n_replayed_steps(), 2);

  LoadOptions options;
  options.n_threads = 1;
  options.check_numerics = true;
  const auto checked = LoadedModel::with_random_weights(
      test::tiny_files("llava", test::Geometry::kSmall).config, DType::kBF16, options);
  Engine checking(*checked, {.max_context_tokens = 64});
  checking.forward_prompt(request_of(*checked, 1, 5), nullptr);
  for (int i = 0; i < 3; ++i) checking.forward_next(2, nullptr);
  EXPECT_EQ(checking.n_recorded_steps() + checking.n_replayed_steps(), 0);
}

}  // namespace
}  // namespace triptych

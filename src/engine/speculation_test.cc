// Answers with drafts are those without: tokens, texts, log-probabilities, reasons to end; and drafts are
// made, and right.
#include "engine/speculation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/testing/faulty_model.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "support/source_dir.h"
#include "tensor/quant_format.h"

namespace triptych {
namespace {

const std::string kScenes = test::source_path("assets/eval/scenes/");

PreparedRequest question(const LoadedModel& model, std::string text, const std::string& picture) {
  const auto file = MappedFile::open(kScenes + picture);
  ChatRequest out;
  ChatMessage message;
  message.role = "user";
  message.parts = {{ContentPart::Kind::kImage, ""}, {ContentPart::Kind::kText, std::move(text)}};
  out.messages.push_back(std::move(message));
  out.media.push_back(
      {.frames = {decode_image(file->bytes(), {}, picture)}, .is_video = false, .frames_per_s = 0});
  return model.prepare(out);
}

// Rows of a step give the bits that they give alone, so that equality is exact.
LoadedModel& trained(const std::string& name, const std::string& weights = "") {
  static std::map<std::string, std::unique_ptr<LoadedModel>> models;
  auto& out = models[name + weights];
  if (!out) {
    LoadOptions options{.n_threads = 1, .batch_invariant = true};
    if (!weights.empty()) options.weight_formats.language = QuantFormat::parse(weights);
    out = LoadedModel::open(test::source_path("assets/models/" + name), options);
  }
  return *out;
}

SpeculativeOptions ngram(int max_tokens = 5, int min_n = 1) {
  return {.method = SpeculationMethod::kNgram,
          .num_speculative_tokens = max_tokens,
          .prompt_lookup_max = 3,
          .prompt_lookup_min = min_n,
          .gate = false};
}

SpeculativeOptions self_draft(std::vector<std::int32_t> layers, int max_tokens = 4) {
  return {.method = SpeculationMethod::kSelfDraft,
          .num_speculative_tokens = max_tokens,
          .gate = false,
          .skip_layers = std::move(layers)};
}

void expect_same(const GenerationResult& with, const GenerationResult& without, const std::string& what) {
  EXPECT_EQ(with.token_ids, without.token_ids) << what;
  EXPECT_EQ(with.text, without.text) << what;
  EXPECT_EQ(with.finish_reason, without.finish_reason) << what;
  EXPECT_EQ(with.stop_string, without.stop_string) << what;
  ASSERT_EQ(with.tokens.size(), without.tokens.size()) << what;
  for (std::size_t i = 0; i < with.tokens.size(); ++i) {
    EXPECT_EQ(with.tokens[i].id, without.tokens[i].id) << what;
    EXPECT_EQ(with.tokens[i].logprob, without.tokens[i].logprob) << what << " token " << i;
    ASSERT_EQ(with.tokens[i].top.size(), without.tokens[i].top.size()) << what;
    for (std::size_t k = 0; k < with.tokens[i].top.size(); ++k) {
      EXPECT_EQ(with.tokens[i].top[k].id, without.tokens[i].top[k].id) << what;
      EXPECT_EQ(with.tokens[i].top[k].logprob, without.tokens[i].top[k].logprob) << what;
    }
  }
}

struct Setting {
  const char* model;
  const char* weights;
  KvDType cache;
};

class SpeculationTest : public testing::TestWithParam<Setting> {
 protected:
  static LoadedModel& model() { return trained(GetParam().model, GetParam().weights); }
  static EngineOptions options(SpeculativeOptions speculation) {
    return {.max_context_tokens = 512,
            .kv_cache_tokens = 4096,
            .max_sequences = 4,
            .kv_cache_dtype = GetParam().cache,
            .speculation = std::move(speculation)};
  }
};

TEST_P(SpeculationTest, AnswersAreTheSameWithAndWithout) {
  struct Case {
    std::string what;
    SamplingParams params;
  };
  std::vector<Case> cases;
  const auto add = [&](std::string what, auto change) {
    SamplingParams params;
    params.max_tokens = 90;  // more than a page
    change(params);
    cases.push_back({std::move(what), params});
  };
  add("greedy", [](SamplingParams& p) { p.n_logprobs = 2; });
  add("long", [](SamplingParams& p) { p.ignore_eos = true; });
  add("penalties", [](SamplingParams& p) {
    p.ignore_eos = true;
    p.repetition_penalty = 1.1F;
    p.frequency_penalty = 0.2F;
    p.presence_penalty = -0.2F;
    p.logit_bias = {{7, 1.5F}, {12, -3.0F}};
  });
  add("sampled", [](SamplingParams& p) {
    p.temperature = 0.8F;
    p.top_k = 20;
    p.top_p = 0.9F;
    p.min_p = 0.01F;
    p.seed = 5;
    p.ignore_eos = true;
    p.n_logprobs = 3;
  });
  add("hot", [](SamplingParams& p) {
    p.temperature = 1.3F;
    p.typical_p = 0.9F;
    p.seed = 6;
  });
  add("processors", [](SamplingParams& p) {
    p.ignore_eos = true;
    p.processors.no_repeat_ngram_size = 4;
    p.processors.min_new_tokens = 20;
  });
  add("stop string", [](SamplingParams& p) { p.stop = {" at the"}; });
  add("few tokens", [](SamplingParams& p) { p.max_tokens = 7; });
  add("constrained", [](SamplingParams& p) {
    p.constraint.regex = "(a (small|large) [a-z]+( at the [a-z ]+)?, )*(and )?a (small|large) [a-z]+";
  });

  const std::vector<std::pair<std::string, SpeculativeOptions>> drafts = {{"ngram", ngram()},
                                                                          {"self-draft", self_draft({2})}};
  const std::string text = "Describe the image.";
  std::int64_t n_accepted = 0;
  std::int64_t n_rejected = 0;
  for (const Case& one : cases) {
    Engine plain(model(), options({}));
    const auto without = plain.generate(question(model(), text, "0001.png"), one.params);
    EXPECT_EQ(without.n_drafted_tokens, 0);
    for (const auto& [name, speculation] : drafts) {
      Engine engine(model(), options(speculation));
      const auto with = engine.generate(question(model(), text, "0001.png"), one.params);
      expect_same(with, without, one.what + ", " + name);
      n_accepted += with.n_accepted_tokens;
      n_rejected += with.n_drafted_tokens - with.n_accepted_tokens;
      EXPECT_EQ(engine.speculation_counts().n_drafted, with.n_drafted_tokens);
      EXPECT_EQ(engine.speculation_counts().n_accepted, with.n_accepted_tokens);
    }
  }
  EXPECT_GT(n_accepted, 50);  // otherwise nothing was tested
  EXPECT_GT(n_rejected, 50);
}

TEST_P(SpeculationTest, SeveralSequencesThatComeAndGo) {
  const char* texts[] = {"Describe the image.",        "Which shape is orange?",
                         "Describe the image.",        "Is the triangle small or large?",
                         "How many shapes are there?", "Describe the image."};
  const auto run = [&](const SpeculativeOptions& speculation, std::size_t prefix_cache_bytes) {
    EngineOptions own = options(speculation);
    own.max_batch_tokens = 48;  // prompts come in pieces
    own.prefix_cache_bytes = prefix_cache_bytes;
    Engine engine(model(), own);
    std::vector<RequestId> ids;
    for (std::size_t i = 0; i < std::size(texts); ++i) {
      SamplingParams params;
      params.max_tokens = 40 + 10 * static_cast<std::int64_t>(i);
      params.ignore_eos = i % 2 == 0;
      params.temperature = i % 3 == 0 ? 0.0F : 0.7F;
      params.seed = i;
      ids.push_back(engine.submit(question(model(), texts[i], i < 3 ? "0000.png" : "0001.png"), params));
      if (i % 2 == 1) engine.step();
    }
    while (engine.has_work()) engine.step();
    std::vector<GenerationResult> out;
    for (const RequestId id : ids) out.push_back(*engine.take_result(id));
    const bool drafts = speculation.method != SpeculationMethod::kNone;
    EXPECT_GE(engine.speculation_counts().n_accepted, drafts ? 10 : 0);
    return out;
  };
  const auto without = run({}, 0);
  for (const auto& speculation : {ngram(), ngram(8), self_draft({1}), self_draft({1, 2}, 3)})
    for (const std::size_t prefix_cache_bytes : {std::size_t{0}, std::size_t{1} << 24}) {
      const auto with = run(speculation, prefix_cache_bytes);
      for (std::size_t i = 0; i < with.size(); ++i) expect_same(with[i], without[i], texts[i]);
    }
}

INSTANTIATE_TEST_SUITE_P(All, SpeculationTest,
                         testing::Values(Setting{"scenes-llava", "", KvDType::kF32},
                                         Setting{"scenes-llava", "int4:g32", KvDType::kInt8},
                                         Setting{"scenes-qwen2-vl", "", KvDType::kF16},
                                         Setting{"scenes-qwen2-vl", "int8", KvDType::kInt4}),
                         [](const auto& one) { return "N" + std::to_string(one.index); });

TEST(Speculation, ADrawnTokenHasTheDistributionOfPlainDecoding) {
  // Three tokens, drafted in part and right in part: 20,000 answers with drafts against as many without, all
  // of other seeds, by a chi-square test for two samples.
  LoadedModel& model = trained("scenes-llava");
  constexpr int kDraws = 20000;
  constexpr int kSequences = 50;
  SamplingParams params;
  params.temperature = 2.5F;
  params.top_k = 8;
  params.max_tokens = 3;
  params.ignore_eos = true;
  // In the middle of an answer, some of whose words may follow once more.
  ChatRequest chat;
  ChatMessage message;
  message.role = "user";
  message.parts = {{ContentPart::Kind::kText, "Describe the image."}};
  chat.messages.push_back(std::move(message));
  std::vector<std::int32_t> ids = model.prepare(chat).layout.input_ids;
  const std::vector<std::int32_t> begun = model.tokenizer().encode(
      "a small purple circle at the top left, a small orange square at the top right, a small purple",
      {.add_special_tokens = false});
  ids.insert(ids.end(), begun.begin(), begun.end());
  const auto prompt = [&] {
    PreparedRequest out;
    out.token_ids = ids;
    out.layout = model.model().expand_prompt(out.token_ids, {});
    return out;
  };
  const auto count = [&](const SpeculativeOptions& speculation, std::int64_t& n_accepted,
                         std::int64_t& n_drafted) {
    const auto n_context = static_cast<std::int64_t>(ids.size()) + params.max_tokens + 1;
    Engine engine(model, {.max_context_tokens = n_context,
                          .kv_cache_tokens = kSequences * (n_context + 64),
                          .max_sequences = kSequences,
                          .kv_cache_dtype = KvDType::kF32,
                          .speculation = speculation,
                          .prefix_cache_bytes = std::size_t{64} << 20});
    std::map<std::vector<std::int32_t>, int> out;
    for (int i = 0; i < kDraws; i += kSequences) {
      std::vector<RequestId> requests;
      for (int k = 0; k < kSequences; ++k) {
        params.seed = 1000003ULL * static_cast<std::uint64_t>(i + k) +
                      (speculation.method == SpeculationMethod::kNone ? 0 : 1);
        requests.push_back(engine.submit(prompt(), params));
      }
      while (engine.has_work()) engine.step();
      for (const RequestId id : requests) ++out[engine.take_result(id)->token_ids];
    }
    n_accepted = engine.speculation_counts().n_accepted;
    n_drafted = engine.speculation_counts().n_drafted;
    return out;
  };
  std::int64_t n_accepted = 0;
  std::int64_t n_drafted = 0;
  const auto without = count({}, n_accepted, n_drafted);
  std::int64_t n_rejected = 0;
  for (const SpeculativeOptions& speculation : {ngram(3), self_draft({1, 2}, 2)}) {
    const auto with = count(speculation, n_accepted, n_drafted);
    EXPECT_GT(n_accepted, kDraws / 50) << n_drafted;
    n_rejected += n_drafted - n_accepted;
    // Two samples of the same size: sum (a - b)^2 / (a + b) has a chi-square distribution with as many
    // degrees of freedom as there are answers, less one. Rare answers are one class.
    double chi_square = 0;
    int n_classes = 0;
    double rare_with = 0;
    double rare_without = 0;
    std::map<std::vector<std::int32_t>, std::pair<double, double>> both;
    for (const auto& [answer, n] : without) both[answer].first = n;
    for (const auto& [answer, n] : with) both[answer].second = n;
    const auto add = [&](double a, double b) {
      if (a + b == 0) return;
      chi_square += (a - b) * (a - b) / (a + b);
      ++n_classes;
    };
    for (const auto& [answer, n] : both) {
      if (n.first + n.second >= 20) {
        add(n.first, n.second);
      } else {
        rare_without += n.first;
        rare_with += n.second;
      }
    }
    add(rare_without, rare_with);
    const double freedom = n_classes - 1;
    EXPECT_GT(n_classes, 20);
    // Wilson and Hilferty 1931; 3.7 deviations are passed once in 10,000 times, and the seeds are fixed.
    const double deviations =
        (std::cbrt(chi_square / freedom) - (1 - 2 / (9 * freedom))) / std::sqrt(2 / (9 * freedom));
    EXPECT_LT(deviations, 3.7) << chi_square << " for " << freedom << " degrees of freedom";
  }
  EXPECT_GT(n_rejected, kDraws / 50);
}

TEST(Speculation, ACallbackEndsAnAnswerInsideADraftAsWithout) {
  LoadedModel& model = trained("scenes-llava");
  SamplingParams params;
  params.max_tokens = 60;
  params.ignore_eos = true;
  for (int n_wanted = 1; n_wanted < 40; n_wanted += 3)
    for (const bool by_cancel : {false, true}) {
      const auto run = [&](const SpeculativeOptions& speculation) {
        Engine engine(model, {.max_context_tokens = 512, .speculation = speculation});
        int n = 0;
        RequestId id = 0;
        id =
            engine.submit(question(model, "Describe the image.", "0000.png"), params, [&](const TokenEvent&) {
              if (++n < n_wanted) return true;
              if (by_cancel) engine.cancel(id);
              return by_cancel;
            });
        while (engine.has_work()) engine.step();
        return *engine.take_result(id);
      };
      const auto without = run({});
      EXPECT_EQ(without.token_ids.size(), static_cast<std::size_t>(n_wanted));
      expect_same(run(self_draft({2}, 6)), without, std::to_string(n_wanted));
    }
}

TEST(Speculation, APrefixThatIsKeptHoldsNothingThatWasDrafted) {
  LoadedModel& model = trained("scenes-llava");
  SamplingParams params;
  params.max_tokens = 70;
  params.ignore_eos = true;
  const auto run = [&](const SpeculativeOptions& speculation) {
    Engine engine(model, {.max_context_tokens = 512,
                          .kv_cache_tokens = 2048,
                          .kv_cache_dtype = KvDType::kF32,
                          .speculation = speculation,
                          .prefix_cache_bytes = std::size_t{64} << 20});
    PreparedRequest first = question(model, "Describe the image.", "0000.png");
    PromptLayout layout = first.layout;
    const auto one = engine.generate(std::move(first), params);
    // The conversation goes on behind the answer.
    PreparedRequest second = question(model, "Describe the image.", "0000.png");
    for (const std::int32_t id : one.token_ids) {
      second.layout.input_ids.push_back(id);
      second.layout.positions.push_back(second.layout.next_position++);
    }
    const auto n_before = static_cast<std::int64_t>(second.layout.input_ids.size());
    auto two = engine.generate(std::move(second), params);
    EXPECT_EQ(two.n_reused_tokens, n_before - 1);
    return two;
  };
  expect_same(run(self_draft({1, 2}, 5)), run({}), "second");
}

TEST(Speculation, WithFewBlocksNobodyIsPreemptedForADraft) {
  LoadedModel& model = trained("scenes-llava");
  SamplingParams params;
  params.max_tokens = 80;
  params.ignore_eos = true;
  std::int64_t n_preemptions[2] = {};
  std::vector<GenerationResult> results[2];
  for (const bool drafts : {false, true}) {
    Engine engine(model, {.max_context_tokens = 192,
                          .kv_cache_tokens = 448,
                          .max_sequences = 4,
                          .kv_cache_dtype = KvDType::kF32,
                          .speculation = drafts ? ngram() : SpeculativeOptions{}});
    std::vector<RequestId> ids;
    for (int i = 0; i < 5; ++i)
      ids.push_back(engine.submit(question(model, "Describe the image.", "0000.png"), params));
    while (engine.has_work()) engine.step();
    for (const RequestId id : ids) results[drafts].push_back(*engine.take_result(id));
    n_preemptions[drafts] = engine.n_preemptions();
  }
  for (std::size_t i = 0; i < results[0].size(); ++i)
    expect_same(results[1][i], results[0][i], std::to_string(i));
  EXPECT_LE(n_preemptions[1], n_preemptions[0] + 1);  // they fall at other steps
}

TEST(Speculation, AFaultInADraftOrItsStepEndsNoneButItsOwn) {
  test::FaultyTinyModel model("llava");
  const auto request = [&](std::int32_t first) {
    PreparedRequest out;
    for (int i = 0; i < 12; ++i) out.token_ids.push_back(1 + (first + i) % 3);
    out.layout = (*model).model().expand_prompt(out.token_ids, {});
    return out;
  };
  SamplingParams params;
  params.max_tokens = 24;
  params.ignore_eos = true;
  const auto run = [&](bool fails, FinishReason& second) {
    int n_steps = 0;
    model.faults->before_forward = [&](const Batch& batch) {
      const bool judges = batch.logit_rows.size() > batch.sequences.size();
      if (fails && judges && ++n_steps > 2 && batch.sequences.back().n_rows > 1 &&
          batch.lengths.back().n_prompt == 12 && batch.token_ids.size() > 1 && batch.sequences.size() > 1)
        fail(ErrorCode::kInternal, "a fault of the step");
    };
    Engine engine(
        *model,
        {.max_context_tokens = 128, .kv_cache_tokens = 512, .replay_steps = false, .speculation = ngram()});
    const RequestId a = engine.submit(request(0), params);
    const RequestId b = engine.submit(request(1), params);
    while (engine.has_work()) engine.step();
    second = engine.take_result(b)->finish_reason;
    return *engine.take_result(a);
  };
  FinishReason second = FinishReason::kError;
  const auto plain = run(false, second);
  EXPECT_EQ(second, FinishReason::kLength);
  // Steps of both fail, so that each is run apart, drafts and all.
  const auto apart = run(true, second);
  EXPECT_EQ(second, FinishReason::kLength);
  EXPECT_EQ(apart.token_ids, plain.token_ids);
  model.faults->before_forward = {};
}

TEST(Speculation, TheGateAllowsDraftsThatAreRight) {
  LoadedModel& model = trained("scenes-llava");
  SamplingParams params;
  params.max_tokens = 120;
  params.ignore_eos = true;
  SpeculativeOptions gated = ngram(8, 2);
  gated.gate = true;
  Engine plain(model, {.max_context_tokens = 512});
  Engine engine(model, {.max_context_tokens = 512, .speculation = gated});
  for (int i = 0; i < 3; ++i)
    expect_same(engine.generate(question(model, "Describe the image.", "0000.png"), params),
                plain.generate(question(model, "Describe the image.", "0000.png"), params), "gated");
  EXPECT_GT(engine.speculation_counts().n_drafts, 0);
}

TEST(Speculation, StepsOfOneSequenceAreReplayed) {
  LoadedModel& model = trained("scenes-llava");
  SamplingParams params;
  params.max_tokens = 120;
  params.ignore_eos = true;
  std::vector<GenerationResult> results;
  for (const bool replay : {false, true}) {
    Engine engine(model,
                  {.max_context_tokens = 512, .replay_steps = replay, .speculation = self_draft({2}, 3)});
    results.push_back(engine.generate(question(model, "Describe the image.", "0000.png"), params));
    if (!replay) continue;
    EXPECT_LT(engine.n_recorded_steps(), 8);
    EXPECT_GT(engine.n_replayed_steps(), 60);
  }
  expect_same(results[1], results[0], "replayed");
}

TEST(Speculation, OptionsAreChecked) {
  LoadedModel& model = trained("scenes-llava");
  const auto message = [&](const SpeculativeOptions& speculation) -> std::string {
    try {
      const Engine engine(model, {.speculation = speculation});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({.method = SpeculationMethod::kNgram, .num_speculative_tokens = 0}),
              testing::HasSubstr("num_speculative_tokens: expected a number in [1, 32], got 0"));
  EXPECT_THAT(message({.method = SpeculationMethod::kNgram, .prompt_lookup_max = 2, .prompt_lookup_min = 3}),
              testing::HasSubstr("prompt_lookup_min: expected a number in [1, 2], got 3"));
  EXPECT_THAT(message(self_draft({9})), testing::HasSubstr("skip_layers: expected layers in [0, 4), got 9"));
  EXPECT_THAT(message(self_draft({1, 1})), testing::HasSubstr("layer 1 is named twice"));
  EXPECT_THAT(message(self_draft({0, 1, 2, 3})), testing::HasSubstr("expected 1 to 3 of 4 layers"));
  EXPECT_THAT(message(self_draft({})), testing::HasSubstr("--self-draft"));
  EXPECT_EQ(parse_speculation_method("ngram"), SpeculationMethod::kNgram);
  EXPECT_THROW(parse_speculation_method("eagle"), Error);
}

}  // namespace
}  // namespace triptych

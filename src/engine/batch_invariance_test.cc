// With LoadOptions::batch_invariant a request gets the same bits alone and in any company: beside others that
// come and go, with its prompt cut anywhere, and with prefixes and pictures that earlier requests left in
// caches. For every format of weights and of the key/value cache, on the trained models.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "support/source_dir.h"
#include "tensor/quant_format.h"

namespace triptych {
namespace {

struct Format {
  const char* weights;  // a type of QuantFormat, or "fp32", "fp16", "bf16"
  KvDType cache;
};
// Every format of weights, with every kind of cache beside one of them.
constexpr Format kFormats[] = {
    {"fp32", KvDType::kF32},      {"fp16", KvDType::kF16},           {"bf16", KvDType::kBF16},
    {"bf16", KvDType::kInt8},     {"bf16", KvDType::kFp8},           {"bf16", KvDType::kInt4},
    {"int8", KvDType::kInt8},     {"int8:g32", KvDType::kF16},       {"int4:g32", KvDType::kInt8},
    {"int4:g32", KvDType::kInt4}, {"int4:g128:asym", KvDType::kFp8}, {"int4:channel", KvDType::kInt8},
    {"nf4:g64", KvDType::kF16}};

std::unique_ptr<LoadedModel> open_model(const std::string& name, const Format& format, bool batch_invariant) {
  LoadOptions options{.n_threads = 2, .batch_invariant = batch_invariant};
  const std::string weights = format.weights;
  if (weights == "fp32") options.weight_dtype = DType::kF32;
  if (weights == "fp16") options.weight_dtype = DType::kF16;
  if (weights == "bf16") options.weight_dtype = DType::kBF16;
  if (!options.weight_dtype) {
    options.weight_formats.language = QuantFormat::parse(weights);
    options.weight_formats.vision = options.weight_formats.lm_head = QuantFormat::parse("int8");
  }
  return LoadedModel::open(test::source_path("assets/models/" + name), options);
}

ChatRequest question(const std::string& text, const std::vector<std::string>& pictures) {
  ChatRequest out;
  ChatMessage message;
  message.role = "user";
  for (const std::string& name : pictures) {
    message.parts.push_back({ContentPart::Kind::kImage, ""});
    const auto file = MappedFile::open(test::source_path("assets/eval/scenes-mixed/" + name));
    out.media.push_back({.frames = {decode_image(file->bytes(), {}, name)}});
  }
  message.parts.push_back({ContentPart::Kind::kText, text});
  out.messages.push_back(std::move(message));
  return out;
}

// Long and short, with pictures and without; some begin alike.
std::vector<ChatRequest> questions() {
  return {
      question("Describe the image.", {"0000.png"}),
      question("Which shape is orange?", {"0000.png"}),
      question("Describe the image.", {"0003.png"}),
      question("Hello", {}),
      question("How many shapes are there? Count them, one after the other, from the left to the right.", {}),
      question("Which shape is orange?", {"0001.png"}),
      question("Is the triangle small or large?", {"0003.png"})};
}

// What depends on all logits of all steps: tokens with their log-probabilities, and those of the likeliest
// others.
struct Answer {
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;

  explicit Answer(const GenerationResult& result) : ids(result.token_ids) {
    for (const SampledToken& token : result.tokens) {
      logprobs.push_back(token.logprob);
      for (const TokenLogprob& other : token.top) logprobs.push_back(other.logprob);
    }
  }
  bool operator==(const Answer& other) const {
    return ids == other.ids && logprobs.size() == other.logprobs.size() &&
           std::memcmp(logprobs.data(), other.logprobs.data(), logprobs.size() * sizeof(float)) == 0;
  }
};

SamplingParams sampling(std::int64_t max_tokens) {
  SamplingParams out;
  out.max_tokens = max_tokens;
  out.temperature = 1.3F;  // tokens that others would not choose
  out.seed = 5;
  out.ignore_eos = true;
  out.n_logprobs = 5;
  return out;
}

std::int64_t answer_tokens(std::size_t request) { return 4 + static_cast<std::int64_t>(request) * 3 % 7; }

std::vector<Answer> alone(LoadedModel& model, KvDType cache, const std::vector<ChatRequest>& requests) {
  std::vector<Answer> out;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Engine engine(model, {.kv_cache_dtype = cache});
    out.emplace_back(engine.generate(model.prepare(requests[i]), sampling(answer_tokens(i))));
  }
  return out;
}

// The requests in a random order, submitted at random steps of one engine, `n_rounds` times.
void expect_answers(LoadedModel& model, const EngineOptions& options,
                    const std::vector<ChatRequest>& requests, const std::vector<Answer>& expected,
                    int n_rounds, unsigned seed, const std::string& what) {
  std::mt19937 random(seed);
  std::vector<std::size_t> order;
  for (int i = 0; i < n_rounds; ++i) {
    const std::size_t first = order.size();
    for (std::size_t r = 0; r < requests.size(); ++r) order.push_back(r);
    std::shuffle(order.begin() + static_cast<std::ptrdiff_t>(first), order.end(), random);
  }
  Engine engine(model, options);
  std::vector<Engine::RequestId> ids;
  while (ids.size() < order.size() || engine.has_work()) {
    if (ids.size() < order.size() && (random() % 3 == 0 || !engine.has_work())) {
      const std::size_t r = order[ids.size()];
      ids.push_back(engine.submit(model.prepare(requests[r]), sampling(answer_tokens(r))));
    }
    engine.step();
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto result = engine.take_result(ids[i]);
    ASSERT_TRUE(result.has_value());
    EXPECT_TRUE(Answer(*result) == expected[order[i]]) << what << ", request " << order[i] << ", place " << i;
  }
}

class BatchInvariantEngine : public testing::TestWithParam<const char*> {};

TEST_P(BatchInvariantEngine, AnswersAreTheSameAloneAndInAnyCompany) {
  const std::vector<ChatRequest> requests = questions();
  unsigned seed = 1;
  for (const Format& format : kFormats) {
    const auto model = open_model(GetParam(), format, true);
    const std::vector<Answer> expected = alone(*model, format.cache, requests);
    const std::string what = fmt::format("{} {}", format.weights, to_string(format.cache));
    for (const std::int64_t n_rows : {5, 33, 1024})  // of a step: where prompts are cut
      expect_answers(*model,
                     {.kv_cache_tokens = 8192,
                      .max_batch_tokens = n_rows,
                      .max_sequences = 5,
                      .kv_cache_dtype = format.cache},
                     requests, expected, 1, ++seed, fmt::format("{}, {} rows a step", what, n_rows));
    expect_answers(*model,
                   {.kv_cache_tokens = 8192,
                    .max_batch_tokens = 48,
                    .max_sequences = 3,
                    .kv_cache_dtype = format.cache,
                    .vision_embedding_cache_bytes = std::size_t{64} << 20,
                    .prefix_cache_bytes = std::size_t{64} << 20},
                   requests, expected, 3, ++seed, what + ", with caches");
    if (HasFailure()) return;
  }
}

// Logits of all rows of a prompt at once, in pieces, and token by token.
TEST_P(BatchInvariantEngine, LogitsDoNotDependOnWhereAPromptIsCut) {
  for (const Format& format : kFormats) {
    const auto model = open_model(GetParam(), format, true);
    const PreparedRequest whole = model->prepare(questions()[4]);
    const auto n = static_cast<std::int64_t>(whole.token_ids.size());
    std::vector<std::vector<float>> all;
    for (const std::int64_t first : {n, std::int64_t{1}, n / 2, std::int64_t{3}}) {
      Engine engine(*model, {.kv_cache_dtype = format.cache});
      PreparedRequest part;
      part.token_ids.assign(whole.token_ids.begin(), whole.token_ids.begin() + first);
      part.layout = model->model().expand_prompt(part.token_ids, {});
      std::vector<float>& logits = all.emplace_back();
      const auto keep = [&logits](const TensorView& rows) {
        for (std::int64_t i = 0; i < rows.dim(0); ++i) {
          const float* row = rows.row(i).cf32();
          logits.insert(logits.end(), row, row + rows.dim(1));
        }
      };
      keep(engine.forward_prompt(part, nullptr));
      std::int64_t step = 1;
      for (std::int64_t at = first; at < n; at += step) {
        step = std::min(n - at, at == first ? std::int64_t{2} : std::int64_t{1});
        keep(engine.forward_next(
            std::span(whole.token_ids).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(step)),
            nullptr));
      }
    }
    for (std::size_t i = 1; i < all.size(); ++i) {
      ASSERT_EQ(all[i].size(), all[0].size());
      EXPECT_EQ(std::memcmp(all[i].data(), all[0].data(), all[0].size() * sizeof(float)), 0)
          << format.weights << " " << to_string(format.cache) << ", cut " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BatchInvariantEngine, testing::Values("scenes-llava", "scenes-qwen2-vl"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase(name, '-');
                           return name;
                         });

// What the default trades for speed, so that the tests above mean something.
TEST(BatchInvariantEngine, IsNotTheDefault) {
  const Format format = {"int4:g32", KvDType::kF16};
  const auto model = open_model("scenes-llava", format, false);
  const std::vector<ChatRequest> requests = {questions()[0]};
  const std::vector<Answer> whole = alone(*model, format.cache, requests);
  Engine engine(*model, {.max_batch_tokens = 5, .kv_cache_dtype = format.cache});
  const Answer cut(engine.generate(model->prepare(requests[0]), sampling(answer_tokens(0))));
  EXPECT_FALSE(cut == whole[0]);
}

}  // namespace
}  // namespace triptych

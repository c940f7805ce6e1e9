#include "evaluation/eval.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/profile.h"
#include "engine/engine.h"
#include "io/checkpoint.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"

namespace triptych {
namespace {

constexpr std::size_t kChunk = 64;  // questions prepared at once

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? std::string()
                                    : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

double log_softmax_at(const float* logits, std::int64_t n, std::int32_t id) {
  const float top = *std::max_element(logits, logits + n);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(logits[i] - top));
  return static_cast<double>(logits[id] - top) - std::log(sum);
}

Image read_picture(const std::filesystem::path& file) {
  const ProfileZone zone("image decode");
  const DecodeLimits limits;
  return decode_image(MappedFile::open(file, limits.max_file_bytes)->bytes(), limits, file.string());
}

class Evaluation {
 public:
  Evaluation(LoadedModel& model, const std::filesystem::path& directory, const EvalOptions& options)
      : model_(model), directory_(directory), options_(options) {}

  // One chunk, all questions of it at once. `result` has one score a question.
  void run(std::span<const EvalQuestion> questions, std::vector<EvalScore>& scores,
           std::vector<EvalMistake>& mistakes) {
    answers_.clear();
    for (const EvalQuestion& q : questions)
      answers_.push_back(model_.tokenizer().encode(q.answer, {.add_special_tokens = false}));
    std::vector<PreparedRequest> requests = prepare(questions, false);
    if (options_.likelihood) score_likelihood(requests, scores);
    const std::vector<std::string> texts = generate(std::move(requests));
    for (std::size_t i = 0; i < questions.size(); ++i) {
      const EvalQuestion& q = questions[i];
      scores[i].n = 1;
      scores[i].n_right = texts[i] == trimmed(q.answer) ? 1 : 0;
      if (scores[i].n_right == 0) mistakes.push_back({q.id, q.question, q.answer, texts[i]});
    }
    if (!options_.control) return;
    const std::vector<std::string> blind = generate(prepare(questions, true));
    for (std::size_t i = 0; i < questions.size(); ++i)
      scores[i].n_control_right = blind[i] == trimmed(questions[i].answer) ? 1 : 0;
  }

  std::int64_t n_pictures_encoded() const {
    return n_encoded_before_ + (engine_ ? engine_->n_media_encoded() : 0);
  }

 private:
  std::vector<PreparedRequest> prepare(std::span<const EvalQuestion> questions, bool blank) {
    std::vector<PreparedRequest> out(questions.size());
    model_.media_pool().parallel_for(questions.size(), 1, [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t i = begin; i < end; ++i) out[i] = prepare_one(questions[i], blank);
    });
    return out;
  }

  PreparedRequest prepare_one(const EvalQuestion& q, bool blank) const {
    Image picture = read_picture(directory_ / q.image);
    if (blank) std::fill(picture.rgb.begin(), picture.rgb.end(), std::uint8_t{255});
    ChatRequest request;
    ChatMessage message;
    message.role = "user";
    message.parts = {{ContentPart::Kind::kImage, ""}, {ContentPart::Kind::kText, q.question}};
    request.messages.push_back(std::move(message));
    request.media.push_back({.frames = {std::move(picture)}, .is_video = false, .frames_per_s = 0});
    request.media_options = options_.media;
    return model_.prepare(request);
  }

  // An answer longer than the longest right one is wrong, whatever follows.
  std::int64_t max_answer_tokens() const {
    std::size_t longest = 0;
    for (const auto& answer : answers_) longest = std::max(longest, answer.size());
    return static_cast<std::int64_t>(longest) + 1;
  }

  // An engine for these requests; the one before when it is large enough.
  Engine& engine_for(const std::vector<PreparedRequest>& requests) {
    std::int64_t longest = 0;
    for (const PreparedRequest& request : requests)
      longest = std::max(longest, static_cast<std::int64_t>(request.layout.input_ids.size()));
    const std::int64_t need = longest + max_answer_tokens() + 1;
    if (!engine_ || engine_->max_context_tokens() < need) {
      EngineOptions options = options_.engine;
      options.max_context_tokens = std::min(need + need / 4, model_.info().max_context_tokens);
      options.kv_cache_tokens = options.max_context_tokens * (options_.n_sequences + 1);
      options.max_sequences = options_.n_sequences;
      options.kv_cache_dtype = options_.kv_cache_dtype;
      options.vision_embedding_cache_bytes = options_.vision_embedding_cache_bytes;
      options.vision_cache = options_.vision_cache;
      if (engine_) n_encoded_before_ += engine_->n_media_encoded();
      engine_ = std::make_unique<Engine>(model_, options);
    }
    return *engine_;
  }

  void score_likelihood(std::vector<PreparedRequest>& requests, std::vector<EvalScore>& scores) {
    Engine& engine = engine_for(requests);
    Engine* reference =
        options_.reference != nullptr ? &reference_engine(engine.max_context_tokens()) : nullptr;
    if (!options_.media.image_tokens.keeps_all())
      return score_behind_choices(requests, scores, engine, reference);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const std::vector<std::int32_t>& answer = answers_[i];
      const PromptLayout prompt = requests[i].layout;
      append_tokens(requests[i].layout, answer, model_.info().n_position_axes);
      const TensorView logits = engine.forward_prompt(requests[i], nullptr);
      TensorView expected;
      if (reference != nullptr) expected = reference->forward_prompt(requests[i], nullptr);
      requests[i].layout = prompt;
      scores[i].n_answer_tokens = static_cast<std::int64_t>(answer.size());
      const auto first = static_cast<std::int64_t>(prompt.input_ids.size()) - 1;
      for (std::size_t t = 0; t < answer.size(); ++t) {
        const auto at = first + static_cast<std::int64_t>(t);
        scores[i].sum_logprob += log_softmax_at(logits.row(at).cf32(), logits.dim(1), answer[t]);
        if (reference != nullptr) compare(expected.row(at), logits.row(at), scores[i]);
      }
    }
  }

  // The same where the prompt comes in pieces: the answer in a step of its own, as it comes when it is
  // generated.
  void score_behind_choices(std::vector<PreparedRequest>& requests, std::vector<EvalScore>& scores,
                            Engine& engine, Engine* reference) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const std::vector<std::int32_t>& answer = answers_[i];
      scores[i].n_answer_tokens = static_cast<std::int64_t>(answer.size());
      if (answer.empty()) continue;
      Tensor expected;
      std::int64_t first_expected = 0;
      if (reference != nullptr) {
        PreparedRequest& request = requests[i];
        const PromptLayout prompt = request.layout;
        append_tokens(request.layout, answer, model_.info().n_position_axes);
        for (MediaItem& item : request.media) item.image_tokens = {};  // with all tokens
        expected = Tensor::copy_of(reference->forward_prompt(request, nullptr));
        for (MediaItem& item : request.media) item.image_tokens = options_.media.image_tokens;
        request.layout = prompt;
        first_expected = static_cast<std::int64_t>(prompt.input_ids.size()) - 1;
      }
      const auto score = [&](const TensorView& logits, std::size_t t) {
        scores[i].sum_logprob += log_softmax_at(logits.cf32(), logits.numel(), answer[t]);
        if (reference != nullptr)
          compare(expected.view().row(first_expected + static_cast<std::int64_t>(t)), logits, scores[i]);
      };
      const TensorView prompt_logits = engine.forward_prompt(requests[i], nullptr);
      score(prompt_logits.row(prompt_logits.dim(0) - 1), 0);
      if (answer.size() == 1) continue;
      const TensorView logits = engine.forward_next(std::span(answer).first(answer.size() - 1), nullptr);
      for (std::size_t t = 1; t < answer.size(); ++t) score(logits.row(static_cast<std::int64_t>(t) - 1), t);
    }
  }

  static void compare(const TensorView& expected, const TensorView& got, EvalScore& score) {
    const std::span<const float> p(expected.cf32(), static_cast<std::size_t>(expected.numel()));
    const std::span<const float> q(got.cf32(), static_cast<std::size_t>(got.numel()));
    const double divergence = kl_divergence(p, q);
    score.sum_kl_divergence += divergence;
    score.max_kl_divergence = std::max(score.max_kl_divergence, divergence);
    const auto top = [](std::span<const float> row) {
      return std::max_element(row.begin(), row.end()) - row.begin();
    };
    score.n_same_top += top(p) == top(q) ? 1 : 0;
  }

  Engine& reference_engine(std::int64_t max_context_tokens) {
    if (!reference_ || reference_->max_context_tokens() < max_context_tokens)
      reference_ = std::make_unique<Engine>(
          *options_.reference,
          EngineOptions{.max_context_tokens = max_context_tokens,
                        .max_sequences = 1,
                        .kv_cache_dtype = KvDType::kF32,
                        .vision_embedding_cache_bytes = options_.vision_embedding_cache_bytes});
    return *reference_;
  }

  // The texts, trimmed; what did not end by itself is marked so that it equals no answer.
  std::vector<std::string> generate(std::vector<PreparedRequest> requests) {
    Engine& engine = engine_for(requests);
    SamplingParams greedy;
    greedy.max_tokens = max_answer_tokens();
    std::vector<Engine::RequestId> ids;
    for (PreparedRequest& request : requests) ids.push_back(engine.submit(std::move(request), greedy));
    while (engine.has_work()) engine.step();
    std::vector<std::string> out;
    for (const Engine::RequestId id : ids) {
      const auto result = engine.take_result(id);
      TRIPTYCH_CHECK(result.has_value());
      if (result->error) throw Error(result->error->code, result->error->message);
      out.push_back(trimmed(result->text) + (result->finish_reason == FinishReason::kStop ? "" : " ..."));
    }
    return out;
  }

  LoadedModel& model_;
  std::filesystem::path directory_;
  EvalOptions options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Engine> reference_;
  std::int64_t n_encoded_before_ = 0;               // by earlier engines
  std::vector<std::vector<std::int32_t>> answers_;  // of the chunk
};

}  // namespace

void EvalScore::add(const EvalScore& other) noexcept {
  n += other.n;
  n_right += other.n_right;
  n_control_right += other.n_control_right;
  n_answer_tokens += other.n_answer_tokens;
  sum_logprob += other.sum_logprob;
  sum_kl_divergence += other.sum_kl_divergence;
  max_kl_divergence = std::max(max_kl_divergence, other.max_kl_divergence);
  n_same_top += other.n_same_top;
}

double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  TRIPTYCH_CHECK(p_logits.size() == q_logits.size() && !p_logits.empty());
  const auto log_sum = [](std::span<const float> row) {
    const double top = static_cast<double>(*std::max_element(row.begin(), row.end()));
    double sum = 0;
    for (const float x : row) sum += std::exp(static_cast<double>(x) - top);
    return top + std::log(sum);
  };
  const double p_sum = log_sum(p_logits);
  const double q_sum = log_sum(q_logits);
  double out = 0;
  for (std::size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = static_cast<double>(p_logits[i]) - p_sum;
    out += std::exp(log_p) * (log_p - (static_cast<double>(q_logits[i]) - q_sum));
  }
  return std::max(out, 0.0);  // rounding
}

EvalScore EvalReport::total() const {
  EvalScore out;
  for (const auto& [kind, score] : kinds) out.add(score);
  return out;
}

std::vector<EvalQuestion> read_questions(const std::filesystem::path& directory) {
  const std::string text = read_text_file(directory / "questions.jsonl");
  std::vector<EvalQuestion> out;
  std::size_t n_lines = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    at = end + 1;
    ++n_lines;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("questions.jsonl:{}", n_lines);
    const Json json = parse_json(line, where);
    const JsonView view(json, where);
    const JsonView image = view.at("image");
    if (!is_plain_file_name(image.as_string())) image.fail_expected("the name of a file in the directory");
    out.push_back({view.get_string("id", where), image.as_string(), view.at("question").as_string(),
                   view.at("answer").as_string()});
  }
  if (out.empty())
    fail(ErrorCode::kInvalidFile, "{}: no questions", (directory / "questions.jsonl").string());
  return out;
}

std::string kind_of(const std::string& question) {
  std::size_t at = question.find_first_not_of(' ');
  std::string out;
  for (int word = 0; word < 2 && at != std::string::npos; ++word) {
    const std::size_t end = std::min(question.find(' ', at), question.size());
    out += (out.empty() ? "" : " ") + question.substr(at, end - at);
    at = question.find_first_not_of(' ', end);
  }
  return out;
}

void append_tokens(PromptLayout& layout, const std::vector<std::int32_t>& ids, int n_axes) {
  const std::size_t n_before = layout.input_ids.size();
  std::vector<std::int32_t> positions;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(n_axes); ++axis) {
    const auto begin = layout.positions.begin() + static_cast<std::ptrdiff_t>(axis * n_before);
    positions.insert(positions.end(), begin, begin + static_cast<std::ptrdiff_t>(n_before));
    for (std::size_t i = 0; i < ids.size(); ++i)
      positions.push_back(layout.next_position + static_cast<std::int32_t>(i));
  }
  layout.positions = std::move(positions);
  layout.input_ids.insert(layout.input_ids.end(), ids.begin(), ids.end());
  layout.next_position += static_cast<std::int32_t>(ids.size());
}

EvalReport evaluate(LoadedModel& model, const std::filesystem::path& directory,
                    const std::vector<EvalQuestion>& questions, const EvalOptions& options,
                    const std::function<void(std::int64_t)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  EvalReport out;
  Evaluation evaluation(model, directory, options);
  for (std::size_t at = 0; at < questions.size(); at += kChunk) {
    const auto chunk = std::span(questions).subspan(at, std::min(kChunk, questions.size() - at));
    std::vector<EvalScore> scores(chunk.size());
    evaluation.run(chunk, scores, out.mistakes);
    for (std::size_t i = 0; i < chunk.size(); ++i) out.kinds[kind_of(chunk[i].question)].add(scores[i]);
    if (progress) progress(static_cast<std::int64_t>(at + chunk.size()));
  }
  out.n_pictures_encoded = evaluation.n_pictures_encoded();
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace triptych

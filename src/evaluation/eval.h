// How well a model answers: questions about pictures with known answers.
//
// A data directory holds questions.jsonl, one object a line: {"id", "image" (a file beside it), "question",
// "answer"}. Each question is a conversation of its own, answered greedily; it is right when the whole answer
// is equal (blanks at its ends aside) and the model stopped by itself. Beside it the log-likelihood of the
// known answer, and a control: the same questions about a white picture of the same size, which shows whether
// the picture is used at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/load.h"
#include "engine/vision_embedding_cache.h"

namespace triptych {

struct EvalQuestion {
  std::string id, image, question, answer;
};

/// Reads questions.jsonl. Throws Error(kInvalidFile) naming the line.
std::vector<EvalQuestion> read_questions(const std::filesystem::path& directory);

/// The first two words of a question: what it asks for.
std::string kind_of(const std::string& question);

struct EvalScore {
  std::int64_t n = 0;
  std::int64_t n_right = 0;
  std::int64_t n_control_right = 0;
  std::int64_t n_answer_tokens = 0;
  double sum_logprob = 0;  // natural logarithm, over all tokens of the known answers
  // Over the same tokens, from a reference's distribution p to this model's q: sum p ln(p / q).
  double sum_kl_divergence = 0;
  double max_kl_divergence = 0;
  std::int64_t n_same_top = 0;  // tokens where both expect the same one

  double accuracy() const noexcept {
    return n > 0 ? static_cast<double>(n_right) / static_cast<double>(n) : 0;
  }
  double control_accuracy() const noexcept {
    return n > 0 ? static_cast<double>(n_control_right) / static_cast<double>(n) : 0;
  }
  double mean_logprob() const noexcept {
    return n_answer_tokens > 0 ? sum_logprob / static_cast<double>(n_answer_tokens) : 0;
  }
  double mean_kl_divergence() const noexcept {
    return n_answer_tokens > 0 ? sum_kl_divergence / static_cast<double>(n_answer_tokens) : 0;
  }
  double same_top() const noexcept {
    return n_answer_tokens > 0 ? static_cast<double>(n_same_top) / static_cast<double>(n_answer_tokens) : 0;
  }
  void add(const EvalScore& other) noexcept;
};

/// sum p ln(p / q) of two rows of logits, nats; 0 when they are equal up to a constant.
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

struct EvalMistake {
  std::string id, question, expected, got;
};

struct EvalReport {
  std::map<std::string, EvalScore> kinds;
  std::vector<EvalMistake> mistakes;
  double seconds = 0;
  std::int64_t n_pictures_encoded = 0;  // by the tower; a picture that several questions share counts once
  EvalScore total() const;
};

struct EvalOptions {
  bool likelihood = true;
  bool control = true;
  int n_sequences = 16;       // answered at once
  EngineOptions engine = {};  // what else is asked of the engine; sizes follow the questions
  MediaOptions media = {};
  KvDType kv_cache_dtype = KvDType::kF16;
  LoadedModel* reference =
      nullptr;  // to take divergences from, with float32 keys and values; needs `likelihood`
  std::size_t vision_embedding_cache_bytes = std::size_t{64} << 20;  // pictures kept from earlier questions
  VisionCacheOptions vision_cache = {};
};

/// `progress` (may be empty) is told how many questions are done.
EvalReport evaluate(LoadedModel& model, const std::filesystem::path& directory,
                    const std::vector<EvalQuestion>& questions, const EvalOptions& options,
                    const std::function<void(std::int64_t n_done)>& progress = {});

/// Adds known tokens to the end of a prompt, at the positions that generated ones would have. `n_axes` as in
/// ModelInfo.
void append_tokens(PromptLayout& layout, const std::vector<std::int32_t>& ids, int n_axes);

}  // namespace triptych

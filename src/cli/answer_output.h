// How an answer is shown: streamed for people, one JSON object for programs.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "api/public.h"
#include "cli/json_output.h"

namespace triptych::cli {

/// Prints the text of an answer while it comes and measures the time to the first token.
class AnswerPrinter {
 public:
  /// `print`: to stdout at once (escaped where stdout is a terminal), or at the end when there are `several`
  /// answers at a time.
  explicit AnswerPrinter(bool print, bool several = false);
  /// For api::Engine: false once Ctrl-C was pressed.
  bool on_token(const api::TokenEvent& event);
  /// Ends the line; several answers are printed one after another, an empty line between them.
  void finish(const api::Result& result);
  /// From construction to the first token; negative when none came.
  double first_token_ms() const noexcept { return first_token_ms_; }

 private:
  void print(const std::string& text) const;

  bool print_;
  bool several_;
  bool is_terminal_;
  std::chrono::steady_clock::time_point start_;
  double first_token_ms_ = -1;
};

/// The answer with its counts, times and log probabilities.
JsonOut answer_json(const api::Model& model, const api::Result& result, double first_token_ms);
/// [{"type": "box", "label": ..., "image": 0, "thousandths": [x1, y1, x2, y2], "pixels": [...]}, ...];
/// numbers in pairs x, y.
JsonOut regions_json(std::span<const api::Region> regions);
/// One line per region: its number, its label and its corners in pixels.
std::string region_legend(std::span<const api::Region> regions);
/// "38 prompt tokens (25 of pictures), 12 tokens in 0.12 s ..." for -v.
std::string answer_summary(const api::Result& result, double first_token_ms);
/// One line per token with its log probability and the likeliest others.
std::string logprob_table(const api::Model& model, const api::Result& result);

}  // namespace triptych::cli

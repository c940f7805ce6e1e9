// What a run of a trace came to, as tables for people and as JSON.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmark/serve_driver.h"
#include "report/json_text.h"
#include "report/percentiles.h"

namespace triptych {

/// A run and what it was made with.
struct ServeReport {
  std::string model;    // a directory or "llava-1.5-7b, random fp16 weights"
  std::string weights;  // as --weights was given, or a converted directory holds them
  std::string load;     // "16 clients in a closed loop"
  ServeOptions options;
  ServeRun run;
};

struct ServeSummary {
  std::size_t n_answered = 0, n_failed = 0;
  std::string first_error;
  double requests_per_s = 0;
  std::int64_t n_prompt_tokens = 0, n_image_tokens = 0, n_answer_tokens = 0;  // of those answered
  double prompt_tokens_per_s = 0, answer_tokens_per_s = 0;
  /// Of requests that were answered, ms: "first_token", "inter_token" (each gap by itself), "end_to_end", and
  /// the stages.
  std::vector<std::pair<std::string, Percentiles>> latencies;
  std::int64_t n_steps = 0;                  // that ran a batch
  double mean_sequences = 0, mean_rows = 0;  // of a batch
  std::int64_t most_sequences = 0, most_rows = 0;
  std::int64_t n_rows = 0, n_padded_rows = 0, n_patches = 0, n_padded_patches = 0;
  std::int64_t n_blocks = 0, most_used_blocks = 0;
  double mean_used_blocks = 0;  // over time
  std::int64_t most_running = 0, most_waiting = 0;
  double cpu_share = 0;  // of the threads' time, that the process was on a processor
};
ServeSummary summarize(const ServeRun& run);

/// What is counted, as names and values for people: "requests", "96 answered, 0 failed in 12.3 s ...".
std::vector<std::pair<std::string, std::string>> serve_facts(const ServeReport& report);
/// "first token" for "first_token".
std::string latency_title(std::string_view key);

std::string serve_text(const ServeReport& report);
JsonOut serve_json(const ServeReport& report);

}  // namespace triptych

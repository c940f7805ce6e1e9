// Speed of every stage of an answer, on a real model or on random weights of a published shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/profile.h"
#include "benchmark/bench_parts.h"
#include "engine/calibrate.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "report/cost_model.h"

namespace triptych {

struct BenchOptions {
  bool answer = true;    // a long prompt with a picture and its answer, stage by stage
  bool question = true;  // the first token after a picture and a short question
  int n_batch = 0;       // so many sequences decode at once, each after a text prompt of its own; 0: none
  int n_picture_batch =
      0;  // so many requests with a picture at once, answered within kv_cache_tokens; 0: none
  std::int64_t kv_cache_tokens = 0;   // of them together; 0: as many as they need
  std::int64_t prompt_tokens = 640;   // pictures included
  std::int64_t question_tokens = 24;  // pictures not included
  std::int64_t decode_tokens = 32;
  int n_repeats = 3;
  bool parts = false;     // as many runs more, in which every operation is timed
  bool timeline = false;  // and what each thread does is recorded
  int picture_width_px = 1920, picture_height_px = 1080;
  KvDType kv_cache_dtype = KvDType::kF16;
  bool replay_steps = true;  // see EngineOptions
  MediaOptions media = {};
};

struct BenchStage {
  std::string name;
  double ms = 0;  // median over the repeats
  double lowest_ms = 0, highest_ms = 0;
  std::int64_t n_items = 0;  // pictures, patches' rows or tokens it worked on
  std::string unit;          // what items are
  Cost cost;                 // zero where no roofline is meant
};

struct BenchReport {
  std::vector<BenchStage> stages;  // in the order in which they run
  std::int64_t n_prompt_tokens = 0;
  std::int64_t n_image_tokens = 0;
  double first_token_ms = 0;             // from the encoded picture to the first token
  double question_first_token_ms = 0;    // the same with a short question instead of a long prompt
  std::int64_t n_question_tokens = 0;    // of that prompt, the picture's included
  std::int64_t n_kept_image_tokens = 0;  // of the picture, with MediaOptions::image_tokens
  std::size_t peak_memory_bytes = 0;     // resident
  std::size_t kv_cache_bytes = 0;
  std::vector<std::pair<std::string, std::int64_t>>
      weight_bytes;                    // by part of the model, as one pass reads them
  std::vector<PartTiming> parts;       // with BenchOptions::parts
  std::vector<ProfileEvent> timeline;  // with BenchOptions::timeline
};

/// Runs all stages. The answer is greedy and never stops early. Throws Error(kInvalidArgument) when the
/// prompt is shorter than its picture.
BenchReport run_bench(LoadedModel& model, const BenchOptions& options);

/// The ranges of the tower's activations on the picture that run_bench measures with.
ActivationQuantMap calibrate_on_test_picture(LoadedModel& model, const BenchOptions& options);

double median(std::vector<double> values);

}  // namespace triptych

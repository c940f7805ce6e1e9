// Conversations to calibrate with: pictures, questions about them and answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compress/moments.h"
#include "compress/paired_moments.h"
#include "engine/load.h"

namespace triptych::compress {

/// A prompt with its answer, ready to run, and what each of its rows counts.
struct CalibrationSample {
  PreparedRequest request;
  std::vector<float> row_weights;    // [T]
  std::int64_t n_answer_tokens = 0;  // at the end of it
};

struct CalibrationData {
  std::vector<CalibrationSample> samples;
  std::int64_t n_image_tokens = 0, n_text_tokens = 0;
  std::string fingerprint;  // of pictures, questions and answers, hex
};

struct CalibrationOptions {
  std::int64_t n_samples = 128;
  /// What a row of a picture counts beside one of text. Text is about ten times as sensitive (MBQ, Li et al.
  /// 2025, section 4.2).
  float image_row_weight = 0.1F;
  std::int64_t max_answer_tokens = 64;  // where the model answers itself
};

/// `folder` holds questions.jsonl (see evaluation/eval.h), or pictures alone: the model then describes each.
/// Samples are taken evenly from all. Throws Error naming file and line.
CalibrationData read_calibration(
    LoadedModel& model, const std::filesystem::path& folder, const CalibrationOptions& options,
    const std::function<void(std::int64_t n_done, std::int64_t n)>& progress = {});

/// How many conversations the data holds. Throws Error.
std::int64_t count_conversations(const std::filesystem::path& data);

/// Pictures (by their bytes) that both folders have: a model must not be judged on what it was fitted to.
std::size_t n_shared_pictures(const std::filesystem::path& a, const std::filesystem::path& b);

/// Runs the model over all samples.
void run_calibration(LoadedModel& model, const CalibrationData& data, MomentRecorder& recorder,
                     const std::function<void(std::int64_t n_done, std::int64_t n)>& progress = {});

/// The same, and `pairs` gets the inputs of its linears in `original` beside those in `model`; every tenth
/// sample is held out.
void run_calibration(LoadedModel& original, LoadedModel& model, const CalibrationData& data,
                     MomentRecorder& recorder, std::map<LinearId, PairedMoments>& pairs);

/// Logits [n, V] in front of every token of the answers of the first n_samples, one after another.
std::vector<float> answer_logits(LoadedModel& model, const CalibrationData& data, std::size_t n_samples);

}  // namespace triptych::compress

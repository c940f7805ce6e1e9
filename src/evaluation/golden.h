// Reference values of a model: golden.json and one safetensors file per case, made by tools/make_golden.py
// with the published reference implementation. A case is one user message, its pictures, and what the
// reference made of it.
//
// golden.json: {"reference", "cases": [{"name", "parts" (texts and picture file names in order; or {"text"},
// {"image"}), "video" and "fps" (the pictures are frames of one video), "min_pixels" and "max_pixels",
// "prompt", "input_ids", "generated_ids", "margins", "text"}]}. <name>.safetensors: input.*, tap.*, logits
// [T, V], step_logits [n, V]. The older form with "content" and one golden.safetensors for all cases
// (<name>.logits, ...) is read too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"
#include "tensor/weight_table.h"

namespace triptych {

struct GoldenPart {
  bool is_picture = false;
  std::string value;  // text, or a file name in the directory
};

struct GoldenTensor {
  std::string name;  // without "input." or "tap."
  TensorView view;
};

struct GoldenCase {
  std::string name;
  std::vector<GoldenPart> parts;
  bool is_video = false;
  double frames_per_s = 0;
  MediaOptions media_options;  // limits the reference's processor was given beside the checkpoint's own
  std::optional<std::string> prompt;
  std::vector<std::int32_t> input_ids;      // placeholders expanded
  std::vector<std::int32_t> generated_ids;  // greedy
  std::vector<double> margins;              // best minus second best logit of each step; may be empty
  std::optional<std::string> text;

  std::vector<GoldenTensor> inputs;
  std::vector<GoldenTensor> taps;
  std::optional<TensorView> logits;       // [T, V] float32
  std::optional<TensorView> step_logits;  // [n, V] float32; row 0 is the last row of `logits`
};

struct GoldenSet {
  std::filesystem::path directory;
  std::string reference;
  std::vector<GoldenCase> cases;
  std::vector<WeightTable> tables;  // own the tensors
};

/// Reads a directory. Throws Error(kNotFound, kInvalidFile) naming file and field.
GoldenSet read_golden(const std::filesystem::path& directory);

/// `directory`, or its folder "golden", whichever holds golden.json. Throws Error(kNotFound) naming both.
std::filesystem::path find_golden(const std::filesystem::path& directory);

}  // namespace triptych

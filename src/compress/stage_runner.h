// Stages of a model and the passes that run over them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compress/calibration_data.h"
#include "compress/compress.h"
#include "compress/pass.h"

namespace triptych::compress {

/// What all stages share.
class StageRunner {
 public:
  /// Opens the checkpoint and reads the calibration data. Throws Error. Borrows the options.
  StageRunner(std::filesystem::path from, const CompressOptions& options);

  LoadedModel& original() noexcept { return *original_; }
  const CalibrationData& data() const noexcept { return data_; }
  const Checkpoint& source() const noexcept { return source_; }
  /// Of the original's inputs; only what is a channel's.
  const MomentRecorder& float_moments() const noexcept { return *float_moments_; }

  /// All linears that can become codes, in the order in which they run, with the formats of the recipe; those
  /// that no sample reaches behind them. `kept`: the others. `tied_head`: what the output layer becomes that
  /// is the embedding too.
  struct Plan {
    std::vector<PlannedLinear> linears;
    std::vector<PlannedLinear> unreached;
    std::vector<std::string> kept;
    std::optional<QuantFormat> tied_head;
  };
  Plan plan() const;

  /// Linears one after another that are worked on at once: those of a block, within max_gram_bytes.
  std::vector<std::span<const PlannedLinear>> stages_of(const std::vector<PlannedLinear>& linears,
                                                        bool block_by_block = true) const;

  /// Runs the passes over a stage. Without corrections: nothing that makes up for errors of what is in front,
  /// and nothing behind rounding.
  void run(std::span<const PlannedLinear> stage, WeightEdits& weights, CompressReport& report,
           bool with_corrections = true);
  /// The model as it is with these changes.
  std::unique_ptr<LoadedModel> open(std::shared_ptr<const WeightReplacements> replaced) const;
  ThreadPool& pool() noexcept { return pool_; }

 private:
  void look_at_inputs();
  std::filesystem::path from_;
  const CompressOptions& options_;
  Checkpoint source_;
  ThreadPool pool_;
  std::unique_ptr<LoadedModel> original_;
  CalibrationData data_;
  std::unique_ptr<MomentRecorder> float_moments_;
  std::vector<PassStep> steps_;
  std::vector<std::unique_ptr<Pass>> passes_;
};

}  // namespace triptych::compress

// What the inputs of linears are like on calibration data: the statistics that the passes work from.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/exec_context.h"
#include "base/thread_pool.h"
#include "weights/weights.h"

namespace triptych::compress {

/// Channel by channel over rows x [T, K]; rows count by their weights (modality balance, MBQ, Li et al.
/// 2025).
struct ChannelMoments {
  double weight = 0;  // sum of the rows' weights
  std::int64_t n_rows = 0;
  std::vector<double> mean_square;  // [K] sums of w x^2 until finish(), then means
  std::vector<double> mean;         // [K] the same of w x
  std::vector<float> max_abs;       // [K]
  double mean_row_max_square = 0;   // of the largest |x| of a row: what its int8 step comes from

  void add(const TensorView& x, std::span<const float> row_weights);
  void finish();
  /// Of inputs whose channel i is divided by scales[i]. The rows' largest values stay as they were.
  void divide_channels(std::span<const float> scales);
};

/// Sum of w x x^T over rows, [K, K]; only i <= j is filled until mirror().
class Gram {
 public:
  explicit Gram(std::int64_t k) : k_(k), values_(static_cast<std::size_t>(k * k)) {}
  void add(const TensorView& x, std::span<const float> row_weights, ThreadPool& pool);
  /// Of inputs whose channel i is divided by scales[i].
  void divide_channels(std::span<const float> scales);
  std::int64_t size() const noexcept { return k_; }
  float at(std::int64_t i, std::int64_t j) const noexcept {
    return i <= j ? values_[static_cast<std::size_t>(i * k_ + j)]
                  : values_[static_cast<std::size_t>(j * k_ + i)];
  }

 private:
  std::int64_t k_;
  std::vector<float> values_;
};

/// Looks at the inputs of linears while a model runs.
class MomentRecorder final : public ExecObserver {
 public:
  /// Sums up the Gram matrix for linears that `wants_gram` names, else only what is a channel's.
  MomentRecorder(const PartSizes& sizes, ThreadPool& pool, std::function<bool(const LinearId&)> wants_gram);

  bool wants_taps() const noexcept override { return false; }
  void on_tap(std::string_view, const TensorView&) override {}
  /// Throws Error(kInvalidArgument) naming the linear whose input is not finite.
  void on_linear(const LinearWeight& weight, const TensorView& x) override;
  void on_block_begin(const BlockName& block, const TensorView& h) override;
  void on_block_end(const BlockName& block, const TensorView& h) override;
  /// Of the rows of the language model in the next run, [T]. Rows of towers all weigh 1.
  void set_row_weights(std::vector<float> weights) { row_weights_ = std::move(weights); }
  void finish();

  /// Null: the linear was not seen.
  const ChannelMoments* channels(const LinearId& id) const;
  Gram* gram(const LinearId& id);
  void divide_channels(const LinearId& id, std::span<const float> scales);
  /// The block in which it ran; empty: in none.
  const std::string& block_of(const LinearId& id) const;

 private:
  struct Seen {
    ChannelMoments channels;
    std::unique_ptr<Gram> gram;
    std::string block;
  };
  struct Known {
    LinearId id;
    bool is_language = false;
  };
  std::unordered_map<const LinearWeight*, Known> known_;
  std::map<LinearId, Seen> seen_;
  ThreadPool& pool_;
  std::function<bool(const LinearId&)> wants_gram_;
  std::vector<float> row_weights_;
  std::string block_;  // that runs
};

}  // namespace triptych::compress

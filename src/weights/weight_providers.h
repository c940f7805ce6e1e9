// The ways to answer for weights: tensors of a checkpoint, the same converted to another type, or random
// values of a published shape. Those of a converted directory: weights/packed_weights.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/quant_codec.h"
#include "tensor/weight_table.h"
#include "weights/weights.h"

namespace triptych {

/// Tensors of a checkpoint. Borrows the table.
class TableWeights : public WeightProvider {
 public:
  explicit TableWeights(WeightTable& table) : table_(table) {}
  /// Called the first time a tensor is asked for, before it is handed out.
  void on_first_use(std::function<void(const WeightEntry&)> action) { on_first_use_ = std::move(action); }
  void rename(const std::function<std::string(std::string_view)>& rule) override;
  bool has(std::string_view name) const override;
  WeightEntry get(std::string_view name, const Shape& shape) override;
  std::vector<std::string> unused() const override;
  std::string published_name(std::string_view name) const override;

 private:
  WeightTable& table_;
  std::set<std::string, std::less<>> used_;
  std::function<void(const WeightEntry&)> on_first_use_;
  std::map<std::string, std::string, std::less<>> published_;  // of what was renamed
};

/// Weights of another provider, matrices and tables converted to one floating-point type (vectors stay as
/// they are; so do matrices that are stored quantized). Costs private memory for what changes.
class ConvertedWeights : public WeightProvider {
 public:
  ConvertedWeights(std::unique_ptr<WeightProvider> from, DType dtype)
      : from_(std::move(from)), dtype_(dtype) {}
  void rename(const std::function<std::string(std::string_view)>& rule) override { from_->rename(rule); }
  bool has(std::string_view name) const override { return from_->has(name); }
  WeightEntry get(std::string_view name, const Shape& shape) override;
  LinearSource matrix(std::string_view name, const Shape& shape) override;
  std::vector<std::string> unused() const override { return from_->unused(); }
  std::string published_name(std::string_view name) const override { return from_->published_name(name); }

 private:
  WeightEntry converted(WeightEntry entry) const;

  std::unique_ptr<WeightProvider> from_;
  DType dtype_;
};

/// What stands in for tensors of a checkpoint, by their published names.
struct WeightReplacements {
  std::map<std::string, std::shared_ptr<const Tensor>, std::less<>> tensors;  // of the same shape
  std::map<std::string, std::shared_ptr<const QuantizedMatrix>, std::less<>>
      matrices;  // count before tensors
};

/// Weights of another provider, some of them replaced.
class ReplacedWeights : public WeightProvider {
 public:
  ReplacedWeights(std::unique_ptr<WeightProvider> from, std::shared_ptr<const WeightReplacements> by)
      : from_(std::move(from)), by_(std::move(by)) {}
  void rename(const std::function<std::string(std::string_view)>& rule) override { from_->rename(rule); }
  bool has(std::string_view name) const override { return from_->has(name); }
  /// A matrix that is replaced by codes comes as the values of those.
  WeightEntry get(std::string_view name, const Shape& shape) override;
  LinearSource matrix(std::string_view name, const Shape& shape) override;
  std::vector<std::string> unused() const override { return from_->unused(); }
  std::string published_name(std::string_view name) const override { return from_->published_name(name); }

 private:
  std::unique_ptr<WeightProvider> from_;
  std::shared_ptr<const WeightReplacements> by_;
};

/// Random normal weights for whatever is asked, in memory: speed can be measured without a checkpoint. A name
/// stands for one tensor as long as somebody holds it, so that what reads a tied embedding twice has it once.
class RandomWeights : public WeightProvider {
 public:
  /// `has_head`: false for a model whose output layer is tied: as its checkpoints, these hold no lm_head
  /// then.
  RandomWeights(DType dtype, std::uint64_t seed, bool has_head = true)
      : dtype_(dtype), seed_(seed), has_head_(has_head) {}
  void rename(const std::function<std::string(std::string_view)>&) override {}
  bool has(std::string_view name) const override { return has_head_ || !name.ends_with("lm_head.weight"); }
  WeightEntry get(std::string_view name, const Shape& shape) override;
  std::vector<std::string> unused() const override { return {}; }

 private:
  DType dtype_;
  std::uint64_t seed_;
  bool has_head_;
  std::map<std::string, std::weak_ptr<Tensor>, std::less<>> made_;
};

}  // namespace triptych

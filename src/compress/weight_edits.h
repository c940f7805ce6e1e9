// Weights of a checkpoint while passes work on them: as they are stored, or as they were changed so far.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "weights/weight_providers.h"

namespace triptych::compress {

class WeightEdits {
 public:
  /// Borrows the checkpoint.
  explicit WeightEdits(const Checkpoint& source) : source_(&source) {}

  /// A tensor by its published name, in float32: as it was changed last, before it was rounded. Throws
  /// Error(kUnsupported) when the checkpoint does not hold it.
  Tensor value_of(const std::string& name) const;
  bool has(const std::string& name) const;
  void set(const std::string& name, Tensor value);

  /// Null: the matrix was not rounded.
  const QuantizedMatrix* codes_of(const std::string& name) const;
  void set_codes(const std::string& name, std::shared_ptr<const QuantizedMatrix> codes);
  /// A matrix that is not rounded any more.
  void drop_codes(const std::string& name);
  /// Forgets the float values of a matrix that was rounded.
  void drop_value(const std::string& name);

  /// All that stands in for tensors of the checkpoint now.
  std::shared_ptr<const WeightReplacements> replacements() const {
    return std::make_shared<const WeightReplacements>(replaced_);
  }
  const WeightReplacements& all() const noexcept { return replaced_; }

  /// Names that were set or rounded since the last call.
  std::set<std::string> take_changed() { return std::exchange(changed_, {}); }

 private:
  const Checkpoint* source_;
  WeightReplacements replaced_;
  std::set<std::string> changed_;
};

}  // namespace triptych::compress

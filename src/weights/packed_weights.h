// Weights of a directory that `triptych convert` wrote: what a backend multiplies is stored ready made and
// borrowed from the mapping. triptych.json lists the linears (docs/format.md); names are those the original
// checkpoint had, so a family's renaming serves both.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "tensor/packed_linear.h"
#include "tensor/weight_table.h"
#include "weights/weight_providers.h"

namespace triptych {

/// The version this program writes, and the newest it reads.
inline constexpr std::int64_t kPackedFormatVersion = 2;

/// A linear of the file: which published matrices it was made of, and its arrays.
struct StoredLinear {
  LinearId id;
  std::string format;
  std::int64_t n_out = 0, n_in = 0;
  std::vector<std::string> matrices;  // stacked along n_out
  std::vector<std::int64_t> n_rows;   // of each
  std::vector<std::string> biases;    // empty, or one per matrix ("": none)
  ActivationQuant activation_quant;   // by calibration; no step: none
  std::vector<std::string> arrays;    // stored as tensors id.text() + "." + array
  std::string tensor_name(std::string_view array) const { return fmt::format("{}.{}", id.text(), array); }
};

/// What triptych.json holds.
struct PackedIndex {
  std::int64_t version = kPackedFormatVersion;
  std::vector<StoredLinear> linears;
  std::map<std::string, std::string> checksums;  // tensor -> digest_hex of its bytes

  Json to_json() const;
  /// Throws Error(kInvalidFile) naming the field; kUnsupported for a newer version.
  static PackedIndex parse(const JsonView& json);
};

/// The linear with its arrays as `table` holds them. Throws Error(kInvalidFile) when one is not there, or the
/// format is none.
PackedLinear find_packed_linear(const WeightTable& table, const StoredLinear& stored);

/// Answers from tensors stored as they were and from packed linears. Borrows the table.
class PackedWeights final : public WeightProvider {
 public:
  /// Throws Error(kInvalidFile) when index and tensors do not belong together.
  PackedWeights(WeightTable& table, const PackedIndex& index);
  void rename(const std::function<std::string(std::string_view)>& rule) override;
  bool has(std::string_view name) const override;
  WeightEntry get(std::string_view name, const Shape& shape) override;
  std::vector<std::string> unused() const override;
  const PackedLinear* packed(const LinearKey& key) override;
  bool is_packed(std::string_view name) const override { return packed_names_.contains(name); }
  std::string published_name(std::string_view name) const override;

 private:
  struct Item {
    StoredLinear stored;
    PackedLinear linear;
    bool used = false;
  };
  void index_items();
  TableWeights plain_;
  std::vector<std::unique_ptr<Item>> items_;
  std::map<std::string, Item*, std::less<>> by_key_;
  std::set<std::string, std::less<>> packed_names_;            // matrices and biases
  std::map<std::string, std::string, std::less<>> published_;  // of those that were renamed
};

/// Takes what a model binds, in order; the other end of PackedWeights.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  /// A quantized linear, its names as published.
  virtual void linear(const StoredLinear& linear, const LinearWeight& weight) = 0;
  /// A tensor used as it is stored; may come more than once.
  virtual void tensor(const std::string& published_name, const WeightEntry& entry) = 0;
};

}  // namespace triptych

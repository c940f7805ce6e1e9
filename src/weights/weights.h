// From published tensor names to weights a model can use. A WeightProvider answers for names and shapes
// (weights/weight_providers.h: a checkpoint, or random values of a published shape); a Binder walks one scope
// of it, checks every shape and counts what each part of a model takes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/memory.h"
#include "tensor/weight_table.h"
#include "weights/linear_info.h"
#include "weights/quant_policy.h"

namespace triptych {

class WeightSink;

/// A linear by the published matrices that it is made of, stacked along its outputs.
struct LinearKey {
  std::string name;  // of the first matrix
  std::string part;  // "[begin:end]": rows of it only; "^T": it is stored transposed
  std::int64_t n_out = 0, n_in = 0;
  std::vector<std::string> matrices;
  std::vector<std::int64_t> n_rows;  // of each
  std::vector<std::string> biases;   // empty, or one per matrix ("": none)
  std::string text() const { return name + part; }
};

class WeightProvider {
 public:
  virtual ~WeightProvider() = default;
  /// Renames every tensor (to a family's canonical names); an empty result drops it. Two tensors must not end
  /// up with one name.
  virtual void rename(const std::function<std::string(std::string_view)>& rule) = 0;
  virtual bool has(std::string_view name) const = 0;
  /// The tensor, which must have this shape. Marks it used. Throws Error(kNotFound / kInvalidFile) naming
  /// tensor and shapes.
  virtual WeightEntry get(std::string_view name, const Shape& shape) = 0;
  /// Names nobody asked for.
  virtual std::vector<std::string> unused() const = 0;
  /// The matrix [N, K] in the form in which it is stored; get() is for those who need floats. Default: get().
  virtual LinearSource matrix(std::string_view name, const Shape& shape) { return get(name, shape); }
  /// The linear when it is stored ready made (and marks it used), else null. Throws Error(kInvalidFile) when
  /// it was made of something else.
  virtual const PackedLinear* packed(const LinearKey&) { return nullptr; }
  /// Whether a matrix exists as part of such a linear only.
  virtual bool is_packed(std::string_view /*name*/) const { return false; }
  /// The name a tensor had before it was renamed.
  virtual std::string published_name(std::string_view name) const { return std::string(name); }
};

/// What becomes of weights between a provider and a backend. Nothing by default: used as they are stored.
struct BindOptions {
  QuantPolicy quantize_to = {};
  /// Static quantization parameters of the inputs of linears that become int8 per channel; null: none.
  const ActivationQuantMap* activation_quants = nullptr;
  /// Takes what is prepared, and nothing is kept in memory: the model can tell its sizes, but not be run.
  WeightSink* sink = nullptr;
};

enum class Bias { kNone, kRequired };

/// Sizes of the parts of a model, filled by its binders.
struct PartSizes {
  struct Size {
    std::int64_t n_parameters = 0;
    std::int64_t n_int8_parameters = 0;  // of these, what is multiplied as 8-bit integers
    std::int64_t read_bytes = 0;
    std::int64_t owned_bytes = 0;   // private memory
    std::int64_t mapped_bytes = 0;  // used in place of the checkpoint's files
  };
  /// A prepared matrix with its published name; of stacked ones "layers.0.self_attn.q_proj+k_proj+v_proj".
  struct Linear {
    const LinearWeight* weight = nullptr;
    std::string part;
    std::string name;
    LinearId id;
    LinearTraits traits = {};
    std::vector<std::string> matrices = {};  // as published, stacked along n_out
    std::vector<std::int64_t> n_rows = {};   // of each
    bool is_embedding = false;               // its matrix is the token embedding's too
  };
  std::vector<std::pair<std::string, Size>> parts;     // in order of first use
  std::vector<Linear> linears;                         // in order of binding
  std::set<std::string, std::less<>> embeddings;       // names of matrices; a tied output layer counts once
  std::vector<EqualizationGroup> equalization_groups;  // in order of binding, names as published
  Size& part(std::string_view name);
};

class Binder {
 public:
  /// `part` is the name under which sizes are counted. All references must outlive the binder.
  Binder(WeightProvider& weights, Backend& backend, PartSizes& sizes, std::string part,
         BindOptions options = {})
      : weights_(weights),
        backend_(backend),
        sizes_(sizes),
        part_(std::move(part)),
        options_(std::move(options)) {}
  /// The same with "prefix." in front of every name.
  Binder scope(std::string_view prefix) const;
  /// The same without any prefix.
  Binder root() const;

  bool has(std::string_view name) const { return weights_.has(full(name)); }
  /// Weight `name`.weight [n_out, n_in] and, if asked for, `name`.bias [n_out].
  std::unique_ptr<LinearWeight> linear(std::string_view name, std::int64_t n_out, std::int64_t n_in,
                                       Bias bias, const LinearTraits& traits = {});
  struct StackPart {
    std::string_view name;
    std::int64_t n_out;
    Bias bias = Bias::kNone;
  };
  /// Several linears of one input, stacked along their outputs in the order given.
  std::unique_ptr<LinearWeight> linear_stack(std::span<const StackPart> parts, std::int64_t n_in);
  /// A convolution of pixels whose stride is its size, as a linear of flattened patches: the tensor `weight`
  /// [n_out, ...], and `bias` [n_out] unless that name is empty.
  std::unique_ptr<LinearWeight> patch_embedding(std::string_view weight, const Shape& shape,
                                                std::string_view bias);
  /// Rows [begin, end) of a packed weight [n_rows, n_in] and of its bias [n_rows].
  std::unique_ptr<LinearWeight> linear_rows(std::string_view weight, std::string_view bias,
                                            std::int64_t n_rows, std::int64_t n_in, std::int64_t begin,
                                            std::int64_t end);
  /// A matrix stored as [n_in, n_out], used as x @ W; without bias. Takes private memory for the transposed
  /// copy.
  std::unique_ptr<LinearWeight> linear_transposed(std::string_view weight, std::int64_t n_out,
                                                  std::int64_t n_in);
  std::unique_ptr<EmbeddingWeight> embedding(std::string_view name, std::int64_t n_rows, std::int64_t width);
  /// A small tensor (norm weights, position tables) as a float32 operand.
  Tensor tensor(std::string_view name, const Shape& shape) { return to_operand(host_tensor(name, shape)); }
  /// The same in host memory, for what is computed of it while loading, and the result of that as an operand.
  Tensor host_tensor(std::string_view name, const Shape& shape);
  Tensor to_operand(Tensor x) { return upload(backend_, std::move(x)); }

  /// States that the scale of some channels is free. Names are in this scope; those that the checkpoint does
  /// not hold (biases) are left out.
  void equalizable(EqualizationGroup group);

  std::string full(std::string_view name) const {
    return prefix_.empty() ? std::string(name) : prefix_ + std::string(name);
  }
  WeightProvider& weights() noexcept { return weights_; }
  Backend& backend() noexcept { return backend_; }
  PartSizes& sizes() noexcept { return sizes_; }
  const std::string& part() const noexcept { return part_; }

 private:
  void count(const WeightEntry& entry);
  bool is_embedding(const LinearKey& key) const;
  void count_bytes(const WeightEntry& entry);
  void report(const WeightEntry& entry);
  std::unique_ptr<LinearWeight> bind_stack(std::span<const StackPart> parts, std::int64_t n_in,
                                           const LinearTraits& traits);
  LinearId id_of(const LinearKey& key) const { return {weights_.published_name(key.name), key.part}; }
  std::optional<QuantFormat> format_of(const LinearKey& key, const LinearTraits& traits) const;
  std::unique_ptr<LinearWeight> prepare(const LinearKey& key, const LinearTraits& traits, LinearSpec& spec);
  std::unique_ptr<LinearWeight> count_linear(const LinearKey& key, const LinearTraits& traits,
                                             std::unique_ptr<LinearWeight> made, bool is_mapped);
  /// The linear as it is stored, or null.
  std::unique_ptr<LinearWeight> stored(const LinearKey& key, const LinearTraits& traits);

  WeightProvider& weights_;
  Backend& backend_;
  PartSizes& sizes_;
  std::string part_;
  std::string prefix_;
  BindOptions options_;
};

/// Throws Error(kInvalidFile) that lists what is left in the checkpoint and no part of the model took.
/// Buffers that carry no weights (`rotary_emb.inv_freq`, `position_ids`, `masked_bias`) are passed over.
void check_all_used(const WeightProvider& weights);

}  // namespace triptych

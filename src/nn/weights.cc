#include "nn/weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "base/rng.h"
#include "nn/packed_weights.h"
#include "tensor/convert.h"

namespace triptych {
namespace {

bool is_buffer_name(std::string_view name) {
  for (const std::string_view tail :
       {"rotary_emb.inv_freq", "position_ids", "masked_bias", "attn.bias", "attention.bias"})
    if (name.size() >= tail.size() && name.substr(name.size() - tail.size()) == tail)
      return tail != "attn.bias" && tail != "attention.bias";
  return false;
}

// Stands for a linear that was written away.
class SizedLinear final : public LinearWeight {
 public:
  explicit SizedLinear(const LinearWeight& like) : n_out_(like.n_out()), n_in_(like.n_in()) {}
  std::int64_t n_out() const noexcept override { return n_out_; }
  std::int64_t n_in() const noexcept override { return n_in_; }
  std::size_t owned_bytes() const noexcept override { return 0; }
  std::size_t read_bytes() const noexcept override { return 0; }

 private:
  std::int64_t n_out_, n_in_;
};

}  // namespace

void TableWeights::rename(const std::function<std::string(std::string_view)>& rule) {
  table_.erase_if([&](const WeightEntry& entry) { return rule(entry.name).empty(); });
  std::map<std::string, std::string, std::less<>> published;
  table_.rename_all([&](const std::string& name) {
    std::string renamed = rule(name);
    published.emplace(renamed, published_name(name));
    return renamed;
  });
  published_ = std::move(published);
}

bool TableWeights::has(std::string_view name) const { return table_.contains(name); }

WeightEntry TableWeights::get(std::string_view name, const Shape& shape) {
  const WeightEntry* entry = table_.find(name);
  if (entry == nullptr)
    fail(ErrorCode::kNotFound, "tensor {} is missing from the checkpoint (expected shape {})", name,
         to_string(shape));
  if (entry->view.shape() != shape)
    fail(ErrorCode::kInvalidFile, "{}: tensor {}: expected shape {}, got {}", entry->file, name,
         to_string(shape), to_string(entry->view.shape()));
  if (used_.insert(std::string(name)).second && on_first_use_) on_first_use_(*entry);
  return *entry;
}

std::string TableWeights::published_name(std::string_view name) const {
  const auto found = published_.find(name);
  return found == published_.end() ? std::string(name) : found->second;
}

std::vector<std::string> TableWeights::unused() const {
  std::vector<std::string> out;
  for (const WeightEntry& entry : table_)
    if (!used_.contains(entry.name)) out.push_back(entry.name);
  return out;
}

WeightEntry ConvertedWeights::get(std::string_view name, const Shape& shape) {
  WeightEntry entry = from_->get(name, shape);
  if (entry.view.dtype() == dtype_ || shape.rank() < 2 || !is_float(entry.view.dtype())) return entry;
  auto tensor = std::make_shared<Tensor>(dtype_, shape);
  convert(entry.view, *tensor);
  release(entry);
  entry.is_mapped = false;
  entry.view = tensor->view();
  entry.owner = std::move(tensor);
  return entry;
}

WeightEntry RandomWeights::get(std::string_view name, const Shape& shape) {
  auto tensor = std::make_shared<Tensor>(dtype_, shape);
  const std::int64_t n = shape.numel();
  // Cheap and lively: a sum of bytes is close to normal; the scale keeps activations of order one.
  const double fan_in =
      shape.rank() >= 2 ? static_cast<double>(n / std::max<std::int64_t>(1, shape.dim(0))) : 1.0;
  const float scale = static_cast<float>((shape.rank() >= 2 ? 1.0 / std::sqrt(fan_in) : 0.1) / 147.8);
  const float offset = shape.rank() >= 2 ? 0.0F : 1.0F;
  std::uint64_t state = seed_ ^ std::hash<std::string_view>{}(name) ^ 0x9E3779B97F4A7C15ULL;
  const auto next = [&] {
    state += 0x9E3779B97F4A7C15ULL;  // splitmix64
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  };
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t bits = next();
    const int sum = static_cast<int>((bits & 255U) + ((bits >> 8) & 255U) + ((bits >> 16) & 255U) +
                                     ((bits >> 24) & 255U)) -
                    510;
    const float value = offset + scale * static_cast<float>(sum);
    switch (dtype_) {
      case DType::kF32:
        tensor->view().as<float>()[i] = value;
        break;
      case DType::kF16:
        tensor->view().as<std::uint16_t>()[i] = f32_to_f16(value);
        break;
      case DType::kBF16:
        tensor->view().as<std::uint16_t>()[i] = f32_to_bf16(value);
        break;
      default:
        fail(ErrorCode::kUnsupported, "random weights of type {}", to_string(dtype_));
    }
  }
  const TensorView view = tensor->view();
  return {std::string(name), view, std::move(tensor), "random"};
}

PartSizes::Size& PartSizes::part(std::string_view name) {
  for (auto& [known, size] : parts)
    if (known == name) return size;
  parts.emplace_back(std::string(name), Size{});
  return parts.back().second;
}

Binder Binder::scope(std::string_view prefix) const {
  Binder child = *this;
  child.prefix_ = full(prefix) + ".";
  return child;
}

void Binder::count(const WeightEntry& entry) { sizes_.part(part_).n_parameters += entry.view.numel(); }

std::optional<QuantFormat> WeightProvider::format_of(std::string_view, std::string_view) const {
  return std::nullopt;
}

std::optional<QuantFormat> QuantizedWeights::format_of(std::string_view part, std::string_view name) const {
  const auto holds = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  if (holds("patch_embed") || holds("conv1")) return std::nullopt;
  // Fuyu's pixels are 8-bit integers already: int8 weights cost nothing else there, 4 bits would.
  if (holds("vision_embed_tokens"))
    return formats_.vision && formats_.vision->code == QuantCode::kInt8 ? formats_.vision : std::nullopt;
  if (part != "language") return formats_.vision;
  // A tied output layer is the embedding's table.
  if (holds("lm_head") || holds("embed_tokens") || holds("wte")) return formats_.lm_head;
  return formats_.language;
}

InputGrid QuantizedWeights::input_grid_of(std::string_view stored_name) const {
  const auto found = grids_.find(stored_name);
  return found == grids_.end() ? InputGrid{} : found->second;
}

void Binder::count_bytes(const WeightEntry& entry) {
  PartSizes::Size& size = sizes_.part(part_);
  (entry.is_mapped ? size.mapped_bytes : size.owned_bytes) +=
      static_cast<std::int64_t>(entry.view.size_bytes());
}

// For whoever writes down what a model takes.
void Binder::report(const WeightEntry& entry) {
  if (WeightSink* sink = weights_.sink()) sink->tensor(weights_.published_name(entry.name), entry);
}

namespace {

// "a.q_proj+k_proj+v_proj": the first matrix's name, and what the others' names end with.
std::string name_of(const LinearKey& key) {
  const auto stem = [](std::string_view name) {
    constexpr std::string_view kEnd = ".weight";
    return name.ends_with(kEnd) ? name.substr(0, name.size() - kEnd.size()) : name;
  };
  std::string out(stem(key.name));
  for (std::size_t i = 1; i < key.matrices.size(); ++i) {
    const std::string_view other = stem(key.matrices[i]);
    const std::size_t dot = other.rfind('.');
    out += '+';
    out += dot == std::string_view::npos ? other : other.substr(dot + 1);
  }
  return out;
}

}  // namespace

std::unique_ptr<LinearWeight> Binder::count_linear(const LinearKey& key, std::unique_ptr<LinearWeight> made,
                                                   bool is_mapped) {
  PartSizes::Size& size = sizes_.part(part_);
  if (made->multiplies_int8()) size.n_int8_parameters += made->n_out() * made->n_in();
  size.read_bytes += static_cast<std::int64_t>(made->read_bytes());
  size.owned_bytes += static_cast<std::int64_t>(made->owned_bytes());
  sizes_.linears.push_back({made.get(), part_, name_of(key), weights_.published_name(key.name) + key.part});
  (is_mapped ? size.mapped_bytes : size.owned_bytes) += static_cast<std::int64_t>(made->borrowed_bytes());
  return made;
}

std::unique_ptr<LinearWeight> Binder::stored(const LinearKey& key) {
  const PackedLinear* packed = weights_.packed(key);
  if (packed == nullptr) return nullptr;
  LinearSpec spec;
  spec.name = key.text();
  spec.packed = packed;
  PartSizes::Size& size = sizes_.part(part_);
  size.n_parameters += key.n_out * key.n_in;
  for (std::size_t i = 0; i < key.biases.size(); ++i)
    if (!key.biases[i].empty()) size.n_parameters += key.n_rows[i];
  return count_linear(key, backend_.prepare_linear(spec), true);
}

std::unique_ptr<LinearWeight> Binder::prepare(const LinearKey& key, LinearSpec& spec) {
  spec.format = weights_.format_of(part_, spec.name);
  if (spec.format && spec.format->code == QuantCode::kInt8 &&
      spec.format->group_size == QuantFormat::kWholeRow)
    spec.input_grid = weights_.input_grid_of(weights_.published_name(key.name) + key.part);
  auto made = backend_.prepare_linear(spec);
  const bool is_mapped = spec.parts.front().is_mapped;
  WeightSink* sink = weights_.sink();
  if (sink == nullptr) return count_linear(key, std::move(made), is_mapped);
  if (!spec.format) {
    // Rows, convolutions and transposed matrices were reported whole.
    for (const WeightEntry& entry : spec.parts)
      if (key.part.empty()) report(entry);
    for (const WeightEntry& entry : spec.biases)
      if (key.part.empty() && !entry.view.empty()) report(entry);
    return count_linear(key, std::move(made), is_mapped);
  }
  StoredLinear out{.name = weights_.published_name(key.name),
                   .part = key.part,
                   .format = spec.format->to_string(),
                   .n_out = key.n_out,
                   .n_in = key.n_in,
                   .matrices = {},
                   .n_rows = key.n_rows,
                   .biases = {},
                   .input_grid = spec.input_grid,
                   .arrays = {}};
  for (const std::string& name : key.matrices) out.matrices.push_back(weights_.published_name(name));
  for (const std::string& name : key.biases)
    out.biases.push_back(name.empty() ? "" : weights_.published_name(name));
  for (const PackedArray& array : made->packed()) out.arrays.push_back(array.name);
  sink->linear(out, *made);
  made = count_linear(key, std::move(made), false);
  return std::make_unique<SizedLinear>(*made);
}

std::unique_ptr<LinearWeight> Binder::linear_rows(std::string_view weight, std::string_view bias,
                                                  std::int64_t n_rows, std::int64_t n_in, std::int64_t begin,
                                                  std::int64_t end) {
  const LinearKey key{.name = full(weight),
                      .part = fmt::format("[{}:{}]", begin, end),
                      .n_out = end - begin,
                      .n_in = n_in,
                      .matrices = {full(weight)},
                      .n_rows = {end - begin},
                      .biases = {full(bias)}};
  if (auto ready = stored(key)) return ready;
  LinearSpec spec;
  spec.name = full(weight);
  WeightEntry w = weights_.get(spec.name, {n_rows, n_in});
  WeightEntry b = weights_.get(full(bias), {n_rows});
  if (!weights_.format_of(part_, spec.name)) {
    report(w);
    report(b);
  }
  w.view = w.view.rows(begin, end);
  b.view = b.view.rows(begin, end);
  count(w);
  count(b);
  spec.parts.push_back(std::move(w));
  spec.biases.push_back(std::move(b));
  return prepare(key, spec);
}

std::unique_ptr<LinearWeight> Binder::linear_transposed(std::string_view weight, std::int64_t n_out,
                                                        std::int64_t n_in) {
  const LinearKey key{.name = full(weight),
                      .part = "^T",
                      .n_out = n_out,
                      .n_in = n_in,
                      .matrices = {full(weight)},
                      .n_rows = {n_out},
                      .biases = {}};
  if (auto ready = stored(key)) return ready;
  LinearSpec spec;
  spec.name = full(weight);
  WeightEntry entry = weights_.get(spec.name, {n_in, n_out});
  count(entry);
  if (!weights_.format_of(part_, spec.name)) report(entry);
  const Tensor stored_values = to_f32(entry.view);
  release(entry);
  auto turned = std::make_shared<Tensor>(DType::kF32, Shape{n_out, n_in});
  for (std::int64_t k = 0; k < n_in; ++k)
    for (std::int64_t n = 0; n < n_out; ++n) turned->f32()[n * n_in + k] = stored_values.f32()[k * n_out + n];
  entry.view = turned->view();
  entry.owner = std::move(turned);
  entry.is_mapped = false;
  spec.parts.push_back(std::move(entry));
  return prepare(key, spec);
}

std::unique_ptr<LinearWeight> Binder::linear(std::string_view name, std::int64_t n_out, std::int64_t n_in,
                                             Bias bias) {
  const StackPart part{name, n_out, bias};
  return linear_stack({&part, 1}, n_in);
}

std::unique_ptr<LinearWeight> Binder::linear_stack(std::span<const StackPart> parts, std::int64_t n_in) {
  LinearKey key{.name = full(parts.front().name) + ".weight",
                .part = {},
                .n_out = 0,
                .n_in = n_in,
                .matrices = {},
                .n_rows = {},
                .biases = {}};
  bool any_bias = false;
  for (const StackPart& part : parts) any_bias = any_bias || part.bias == Bias::kRequired;
  for (const StackPart& part : parts) {
    key.n_out += part.n_out;
    key.matrices.push_back(full(part.name) + ".weight");
    key.n_rows.push_back(part.n_out);
    if (any_bias) key.biases.push_back(part.bias == Bias::kRequired ? full(part.name) + ".bias" : "");
  }
  if (auto ready = stored(key)) return ready;
  LinearSpec spec;
  spec.name = full(parts.front().name);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    spec.parts.push_back(weights_.get(key.matrices[i], {key.n_rows[i], n_in}));
    count(spec.parts.back());
    if (any_bias && !key.biases[i].empty()) {
      spec.biases.push_back(weights_.get(key.biases[i], {key.n_rows[i]}));
      count(spec.biases.back());
    } else if (any_bias) {
      spec.biases.emplace_back();
    }
  }
  return prepare(key, spec);
}

std::unique_ptr<LinearWeight> Binder::linear_named(std::string_view weight, const Shape& shape,
                                                   std::string_view bias, std::int64_t n_out,
                                                   std::int64_t n_in) {
  LinearKey key{.name = full(weight),
                .part = {},
                .n_out = n_out,
                .n_in = n_in,
                .matrices = {full(weight)},
                .n_rows = {n_out},
                .biases = {}};
  if (!bias.empty()) key.biases.push_back(full(bias));
  if (auto ready = stored(key)) return ready;
  LinearSpec spec;
  spec.name = full(weight);
  WeightEntry entry = weights_.get(spec.name, shape);
  count(entry);
  if (!weights_.format_of(part_, spec.name)) report(entry);
  entry.view = entry.view.reshape({n_out, n_in});
  spec.parts.push_back(std::move(entry));
  if (!bias.empty()) {
    spec.biases.push_back(weights_.get(full(bias), {n_out}));
    count(spec.biases.back());
  }
  return prepare(key, spec);
}

std::unique_ptr<EmbeddingWeight> Binder::embedding(std::string_view name, std::int64_t n_rows,
                                                   std::int64_t width) {
  const WeightEntry entry = weights_.get(full(name), {n_rows, width});
  count(entry);
  count_bytes(entry);
  report(entry);
  return backend_.prepare_embedding(entry);
}

Tensor Binder::tensor(std::string_view name, const Shape& shape) {
  const WeightEntry entry = weights_.get(full(name), shape);
  count(entry);
  sizes_.part(part_).owned_bytes += entry.view.numel() * 4;
  report(entry);
  return to_f32(entry.view);
}

void check_all_used(const WeightProvider& weights) {
  std::vector<std::string> left = weights.unused();
  std::erase_if(left, [](const std::string& name) { return is_buffer_name(name); });
  if (left.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < left.size() && i < 8; ++i) list.append(i > 0 ? ", " : "").append(left[i]);
  if (left.size() > 8) list += fmt::format(" and {} more", left.size() - 8);
  fail(ErrorCode::kInvalidFile, "the checkpoint has tensors that no part of the model takes: {}", list);
}

}  // namespace triptych

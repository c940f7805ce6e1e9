#include "nn/weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "base/rng.h"
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

}  // namespace

void TableWeights::rename(const std::function<std::string(std::string_view)>& rule) {
  table_.erase_if([&](const WeightEntry& entry) { return rule(entry.name).empty(); });
  table_.rename_all([&](const std::string& name) { return rule(name); });
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
  used_.insert(std::string(name));
  return *entry;
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

std::unique_ptr<LinearWeight> Binder::prepare(LinearSpec& spec) {
  spec.format = weights_.format_of(part_, spec.name);
  auto made = backend_.prepare_linear(spec);
  PartSizes::Size& size = sizes_.part(part_);
  if (made->multiplies_int8()) size.n_int8_parameters += made->n_out() * made->n_in();
  size.read_bytes += static_cast<std::int64_t>(made->read_bytes());
  size.owned_bytes += static_cast<std::int64_t>(made->owned_bytes());
  sizes_.linears.push_back({made.get(), part_, spec.name});
  return made;
}

std::unique_ptr<LinearWeight> Binder::linear_rows(std::string_view weight, std::string_view bias,
                                                  std::int64_t n_rows, std::int64_t n_in, std::int64_t begin,
                                                  std::int64_t end) {
  LinearSpec spec;
  spec.name = full(weight);
  WeightEntry w = weights_.get(spec.name, {n_rows, n_in});
  w.view = w.view.rows(begin, end);
  WeightEntry b = weights_.get(full(bias), {n_rows});
  b.view = b.view.rows(begin, end);
  count(w);
  count(b);
  spec.parts.push_back(std::move(w));
  spec.biases.push_back(std::move(b));
  return prepare(spec);
}

std::unique_ptr<LinearWeight> Binder::linear_transposed(std::string_view weight, std::int64_t n_out,
                                                        std::int64_t n_in) {
  LinearSpec spec;
  spec.name = full(weight);
  WeightEntry entry = weights_.get(spec.name, {n_in, n_out});
  count(entry);
  const Tensor stored = to_f32(entry.view);
  auto turned = std::make_shared<Tensor>(DType::kF32, Shape{n_out, n_in});
  for (std::int64_t k = 0; k < n_in; ++k)
    for (std::int64_t n = 0; n < n_out; ++n) turned->f32()[n * n_in + k] = stored.f32()[k * n_out + n];
  sizes_.part(part_).owned_bytes += n_out * n_in * 4;
  entry.view = turned->view();
  entry.owner = std::move(turned);
  spec.parts.push_back(std::move(entry));
  return prepare(spec);
}

std::unique_ptr<LinearWeight> Binder::linear(std::string_view name, std::int64_t n_out, std::int64_t n_in,
                                             Bias bias) {
  const StackPart part{name, n_out, bias};
  return linear_stack({&part, 1}, n_in);
}

std::unique_ptr<LinearWeight> Binder::linear_stack(std::span<const StackPart> parts, std::int64_t n_in) {
  LinearSpec spec;
  spec.name = full(parts.front().name);
  bool any_bias = false;
  for (const StackPart& part : parts) any_bias = any_bias || part.bias == Bias::kRequired;
  for (const StackPart& part : parts) {
    const std::string name = full(part.name);
    spec.parts.push_back(weights_.get(name + ".weight", {part.n_out, n_in}));
    count(spec.parts.back());
    if (part.bias == Bias::kRequired) {
      spec.biases.push_back(weights_.get(name + ".bias", {part.n_out}));
      count(spec.biases.back());
    } else if (any_bias) {
      spec.biases.emplace_back();
    }
  }
  auto made = prepare(spec);
  for (const StackPart& part : parts.subspan(1)) {
    const std::size_t dot = part.name.rfind('.');
    sizes_.linears.back().name += '+';
    sizes_.linears.back().name += dot == std::string_view::npos ? part.name : part.name.substr(dot + 1);
  }
  return made;
}

std::unique_ptr<LinearWeight> Binder::linear_named(std::string_view weight, const Shape& shape,
                                                   std::string_view bias, std::int64_t n_out,
                                                   std::int64_t n_in) {
  LinearSpec spec;
  spec.name = full(weight);
  WeightEntry entry = weights_.get(spec.name, shape);
  count(entry);
  entry.view = entry.view.reshape({n_out, n_in});
  spec.parts.push_back(std::move(entry));
  if (!bias.empty()) {
    spec.biases.push_back(weights_.get(full(bias), {n_out}));
    count(spec.biases.back());
  }
  return prepare(spec);
}

std::unique_ptr<EmbeddingWeight> Binder::embedding(std::string_view name, std::int64_t n_rows,
                                                   std::int64_t width) {
  const WeightEntry entry = weights_.get(full(name), {n_rows, width});
  count(entry);
  return backend_.prepare_embedding(entry);
}

Tensor Binder::tensor(std::string_view name, const Shape& shape) {
  const WeightEntry entry = weights_.get(full(name), shape);
  count(entry);
  sizes_.part(part_).owned_bytes += entry.view.numel() * 4;
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

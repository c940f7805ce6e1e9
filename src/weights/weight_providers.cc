#include "weights/weight_providers.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "tensor/convert.h"
#include "tensor/missing_tensor.h"

namespace triptych {

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
    fail(ErrorCode::kNotFound, "tensor {} is missing from the checkpoint (expected shape {}){}", name,
         to_string(shape), what_is_there(table_, name));
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
  return converted(from_->get(name, shape));
}

LinearSource ConvertedWeights::matrix(std::string_view name, const Shape& shape) {
  LinearSource source = from_->matrix(name, shape);
  if (auto* entry = std::get_if<WeightEntry>(&source)) return converted(std::move(*entry));
  return source;
}

WeightEntry ConvertedWeights::converted(WeightEntry entry) const {
  const Shape shape = entry.view.shape();
  if (entry.view.dtype() == dtype_ || shape.rank() < 2 || !is_float(entry.view.dtype())) return entry;
  auto tensor = std::make_shared<Tensor>(dtype_, shape);
  convert(entry.view, *tensor);
  release(entry);
  entry.is_mapped = false;
  entry.view = tensor->view();
  entry.owner = std::move(tensor);
  return entry;
}

WeightEntry ReplacedWeights::get(std::string_view name, const Shape& shape) {
  WeightEntry entry = from_->get(name, shape);  // checks the name and the shape
  std::shared_ptr<const Tensor> values;
  const std::string published = published_name(name);
  if (const auto codes = by_->matrices.find(published); codes != by_->matrices.end())
    values = std::make_shared<const Tensor>(dequantize(*codes->second));
  else if (const auto found = by_->tensors.find(published); found != by_->tensors.end())
    values = found->second;
  else
    return entry;
  TRIPTYCH_CHECK(values->view().numel() == shape.numel(), "{}: {} stands in for {}", published,
                 to_string(values->view().shape()), to_string(shape));
  release(entry);
  entry.view = values->view().reshape(shape);
  entry.owner = std::move(values);
  entry.is_mapped = false;
  return entry;
}

LinearSource ReplacedWeights::matrix(std::string_view name, const Shape& shape) {
  const auto codes = by_->matrices.find(published_name(name));
  if (codes == by_->matrices.end()) return get(name, shape);
  const WeightEntry entry = from_->get(name, shape);
  release(entry);
  TRIPTYCH_CHECK(codes->second->n == shape.dim(0) && codes->second->k == shape.dim(1),
                 "{}: codes of {} x {} stand in for {}", name, codes->second->n, codes->second->k,
                 to_string(shape));
  return QuantizedSource{.name = std::string(name), .matrix = codes->second, .file = entry.file};
}

WeightEntry RandomWeights::get(std::string_view name, const Shape& shape) {
  std::weak_ptr<Tensor>& known = made_[std::string(name)];
  if (auto held = known.lock(); held && held->view().shape() == shape)
    return {std::string(name), held->view(), held, "random"};
  auto tensor = std::make_shared<Tensor>(dtype_, shape);
  const std::int64_t n = shape.numel();
  // Cheap and lively: a sum of bytes is close to normal; the scale keeps activations of order one.
  const std::int64_t fan_in = shape.rank() >= 2 ? n / std::max<std::int64_t>(1, shape.dim(0)) : 1;
  const float scale =
      static_cast<float>((shape.rank() >= 2 ? 1.0 / std::sqrt(static_cast<double>(fan_in)) : 0.1) / 147.8);
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
  known = tensor;
  const TensorView view = tensor->view();
  return {std::string(name), view, std::move(tensor), "random"};
}

}  // namespace triptych

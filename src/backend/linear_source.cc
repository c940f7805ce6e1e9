#include "backend/linear_source.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace triptych {
namespace {

void check_size(const QuantizedSource& source, const char* array, std::size_t size, std::int64_t expected) {
  if (size != static_cast<std::size_t>(expected))
    fail(ErrorCode::kInvalidFile, "{}: {}: expected {} elements, got {}", source.name, array, expected, size);
}

void check_bytes(const QuantizedSource& source, const char* array, const Buffer& buffer,
                 std::int64_t row_bytes) {
  const std::int64_t expected = source.matrix->n * row_bytes;
  if (buffer.size_bytes() != static_cast<std::size_t>(expected))
    fail(ErrorCode::kInvalidFile, "{}: {}: expected {} bytes for [{}, {}] as {}, got {}", source.name, array,
         expected, source.matrix->n, source.matrix->k, source.matrix->format.to_string(),
         buffer.size_bytes());
}

}  // namespace

void QuantizedSource::check() const {
  TRIPTYCH_CHECK(matrix != nullptr, "{}: a quantized source without a matrix", name);
  const QuantizedMatrix& m = *matrix;
  m.format.validate();
  if (m.n < 1 || m.k < 1)
    fail(ErrorCode::kInvalidFile, "{}: expected a matrix [N, K], got [{}, {}]", name, m.n, m.k);
  const auto scale_bytes = static_cast<std::int64_t>(size_bytes(m.format.scale_dtype));
  check_bytes(*this, "codes", m.codes, m.format.row_code_bytes(m.k));
  check_bytes(*this, "scales", m.scales, m.format.n_groups(m.k) * (m.format.two_level ? 1 : scale_bytes));
  check_bytes(*this, "zero points", m.zeros, m.format.row_zero_bytes(m.k));
  check_bytes(*this, "row scales", m.row_scales, m.format.two_level ? scale_bytes : 0);
  if (!group_index.empty()) {
    check_size(*this, "group index", group_index.size(), m.k);
    for (const std::int32_t g : group_index)
      if (g < 0 || g >= m.format.n_groups(m.k))
        fail(ErrorCode::kInvalidFile, "{}: group index: group {} of {}", name, g, m.format.n_groups(m.k));
  }
  if (!permutation.empty()) {
    check_size(*this, "permutation", permutation.size(), m.k);
    std::vector<bool> seen(permutation.size());
    for (const std::int32_t k : permutation) {
      if (k < 0 || k >= m.k || seen[static_cast<std::size_t>(k)])
        fail(ErrorCode::kInvalidFile, "{}: permutation: {} is beyond the columns or occurs twice", name, k);
      seen[static_cast<std::size_t>(k)] = true;
    }
  }
  if (!input_scales.empty()) {
    check_size(*this, "input scales", input_scales.size(), m.k);
    for (const float scale : input_scales)
      if (!std::isfinite(scale)) fail(ErrorCode::kInvalidFile, "{}: input scales: one is {}", name, scale);
  }
}

void QuantizedSource::load_row(std::int64_t n, float* out) const {
  const QuantizedMatrix& m = *matrix;
  for (std::int64_t j = 0; j < m.k; ++j) {
    const auto at = static_cast<std::size_t>(j);
    const std::int64_t k = permutation.empty() ? j : permutation[at];
    const float value = group_index.empty() ? m.value(n, j) : m.value_in_group(n, j, group_index[at]);
    out[k] = input_scales.empty() ? value : value * input_scales[static_cast<std::size_t>(k)];
  }
}

const std::string& LinearPart::name() const noexcept {
  static const std::string kPacked = "packed linear";
  if (const WeightEntry* entry = dense()) return entry->name;
  if (const QuantizedSource* codes = quantized()) return codes->name;
  return kPacked;
}

std::int64_t LinearPart::n_out() const {
  if (const WeightEntry* entry = dense()) return entry->view.dim(0);
  if (const QuantizedSource* codes = quantized()) return codes->matrix->n;
  return std::get<PackedLinear>(source).n_out;
}

std::int64_t LinearPart::n_in() const {
  if (const WeightEntry* entry = dense()) return entry->view.dim(1);
  if (const QuantizedSource* codes = quantized()) return codes->matrix->k;
  return std::get<PackedLinear>(source).n_in;
}

bool LinearPart::is_mapped() const noexcept {
  if (const WeightEntry* entry = dense()) return entry->is_mapped;
  if (const QuantizedSource* codes = quantized()) return codes->is_mapped;
  return true;
}

std::optional<QuantFormat> LinearSpec::target_format() const {
  if (const PackedLinear* whole = packed()) return whole->format;
  std::optional<QuantFormat> common;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const LinearPart& part = parts[i];
    if (std::holds_alternative<PackedLinear>(part.source))
      fail(ErrorCode::kUnsupported, "{}: a packed linear cannot be stacked with other matrices", name);
    if (format) continue;
    const std::optional<QuantFormat> own =
        part.quantized() != nullptr ? std::optional(part.quantized()->matrix->format) : std::nullopt;
    if (i > 0 && own != common)
      fail(ErrorCode::kUnsupported, "{}: it is stored as {}, but {}, which is stacked with it, as {}",
           part.name(), own ? own->to_string() : "floats", parts.front().name(),
           common ? common->to_string() : "floats");
    common = own;
  }
  return format ? format : common;
}

}  // namespace triptych

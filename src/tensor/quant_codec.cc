#include "tensor/quant_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/half.h"

namespace triptych {
namespace {

// ---- scales as stored

float load_scale(const std::byte* at, DType dtype) noexcept {
  if (dtype == DType::kF32) {
    float out;
    std::memcpy(&out, at, sizeof out);
    return out;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

void store_scale(std::byte* at, DType dtype, float value) noexcept {
  if (dtype == DType::kF32) {
    std::memcpy(at, &value, sizeof value);
    return;
  }
  const std::uint16_t bits = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
  std::memcpy(at, &bits, sizeof bits);
}

float as_stored(float value, DType dtype) noexcept {
  std::byte bytes[4];
  store_scale(bytes, dtype, value);
  return load_scale(bytes, dtype);
}

// ---- one group

struct GroupParameters {
  float scale = 0;
  int zero = 0;
};

// The parameters whose range is `share` of what the group spans.
GroupParameters parameters_of(std::span<const float> w, const QuantFormat& format, float share,
                              float sign = 1) {
  float low = 0, high = 0, extreme = 0;
  for (const float x : w) {
    low = std::min(low, x);
    high = std::max(high, x);
    if (std::abs(x) > std::abs(extreme)) extreme = x;
  }
  GroupParameters out;
  switch (format.code) {
    case QuantCode::kInt8:
      out.scale = std::abs(extreme) * share / 127;
      break;
    case QuantCode::kNf4:
      out.scale = std::abs(extreme) * share;
      break;
    case QuantCode::kF8E4M3:
      out.scale = std::abs(extreme) * share / 448;
      break;
    case QuantCode::kF8E5M2:
      out.scale = std::abs(extreme) * share / 57344;
      break;
    case QuantCode::kInt4:
      switch (format.range) {
        case QuantRange::kAbsMax:
          out.scale = std::abs(extreme) * share / 7;
          break;
        case QuantRange::kHalfStep:
          out.scale = std::abs(extreme) * share / 7.5F;
          break;
        case QuantRange::kFullRange:
          out.scale = sign * extreme * share / -8;
          break;
        case QuantRange::kAsymmetric:
          out.scale = (high - low) * share / 15;
          break;
      }
      break;
  }
  out.scale = as_stored(out.scale, format.scale_dtype);
  if (format.has_zeros() && out.scale > 0)
    out.zero = std::clamp(static_cast<int>(std::nearbyint(-low * share / out.scale)), 0, 15);
  return out;
}

int nearest_nf4(float x) noexcept {
  int best = 0;
  for (int i = 1; i < 16; ++i)
    if (std::abs(x - kNf4Levels[i]) < std::abs(x - kNf4Levels[best])) best = i;
  return best;
}

int clamp_round(float x, int low, int high) noexcept {
  return static_cast<int>(std::clamp(std::nearbyint(x), static_cast<float>(low), static_cast<float>(high)));
}

int encode(float w, const GroupParameters& p, const QuantFormat& format) noexcept {
  // A scale of zero: the whole group is nothing.
  const float x = p.scale == 0 ? 0 : w / p.scale;
  switch (format.code) {
    case QuantCode::kInt8:
      return clamp_round(x, -127, 127);
    case QuantCode::kNf4:
      return nearest_nf4(x);
    case QuantCode::kF8E4M3:
      return f32_to_f8e4m3(std::clamp(x, -448.0F, 448.0F));
    case QuantCode::kF8E5M2:
      return f32_to_f8e5m2(std::clamp(x, -57344.0F, 57344.0F));
    case QuantCode::kInt4:
      if (format.range == QuantRange::kAsymmetric)
        return clamp_round(std::nearbyint(x) + static_cast<float>(p.zero), 0, 15);
      return clamp_round(x, -8, 7);
  }
  return 0;
}

float decode(int code, const GroupParameters& p, const QuantFormat& format) noexcept {
  switch (format.code) {
    case QuantCode::kInt8:
    case QuantCode::kInt4:
      return p.scale * static_cast<float>(code - p.zero);
    case QuantCode::kNf4:
      return p.scale * kNf4Levels[code];
    case QuantCode::kF8E4M3:
      return p.scale * f8e4m3_to_f32(static_cast<std::uint8_t>(code));
    case QuantCode::kF8E5M2:
      return p.scale * f8e5m2_to_f32(static_cast<std::uint8_t>(code));
  }
  return 0;
}

// Stops early once the sum exceeds `enough`.
double squared_error(std::span<const float> w, std::span<const float> importance, const GroupParameters& p,
                     const QuantFormat& format, double enough = std::numeric_limits<double>::infinity()) {
  double out = 0;
  for (std::size_t i = 0; i < w.size() && out <= enough; ++i) {
    const double d =
        static_cast<double>(w[i]) - static_cast<double>(decode(encode(w[i], p, format), p, format));
    out += d * d * (importance.empty() ? 1.0 : static_cast<double>(importance[i]));
  }
  return out;
}

GroupParameters best_parameters(std::span<const float> w, std::span<const float> importance,
                                const QuantFormat& format, float clip_to) {
  GroupParameters best = parameters_of(w, format, 1.0F);
  if (clip_to >= 1.0F) return best;
  double least = squared_error(w, importance, best, format);
  // Once the extreme element is clipped, the longer side may as well be the other one.
  const bool both_signs = format.code == QuantCode::kInt4 && format.range == QuantRange::kFullRange;
  for (int percent = 100; static_cast<float>(percent) >= clip_to * 100; --percent)
    for (const float sign : {1.0F, -1.0F}) {
      if (sign < 0 && !both_signs) continue;
      const GroupParameters p = parameters_of(w, format, static_cast<float>(percent) / 100, sign);
      const double error = squared_error(w, importance, p, format, least);
      if (error < least) {
        least = error;
        best = p;
      }
    }
  return best;
}

// ---- packing

void put_half_byte(std::byte* row, std::int64_t i, int value) noexcept {
  const auto shift = static_cast<unsigned>(i % 2) * 4;
  const auto old = std::to_integer<unsigned>(row[i / 2]) & ~(15U << shift);
  row[i / 2] = static_cast<std::byte>(old | (static_cast<unsigned>(value) << shift));
}

int half_byte(const std::byte* row, std::int64_t i) noexcept {
  return static_cast<int>((std::to_integer<unsigned>(row[i / 2]) >> (static_cast<unsigned>(i % 2) * 4)) &
                          15U);
}

bool offset_by_eight(const QuantFormat& format) noexcept {
  return format.code == QuantCode::kInt4 && format.range != QuantRange::kAsymmetric;
}

void put_code(QuantizedMatrix& m, std::int64_t row, std::int64_t col, int code) noexcept {
  std::byte* at = m.codes.data() + row * m.format.row_code_bytes(m.k);
  if (m.format.bits() == 4)
    put_half_byte(at, col, code + (offset_by_eight(m.format) ? 8 : 0));
  else
    at[col] = static_cast<std::byte>(static_cast<std::uint8_t>(code));
}

void check_finite(std::span<const float> w, std::int64_t row) {
  for (std::size_t i = 0; i < w.size(); ++i)
    if (!std::isfinite(w[i]))
      fail(ErrorCode::kInvalidArgument, "row {}, column {}: {} cannot be quantized", row, i, w[i]);
}

void check_scale(float scale, const QuantFormat& format, std::int64_t row) {
  if (!std::isfinite(scale))
    fail(ErrorCode::kInvalidArgument, "row {}: its scale is too large for {}; choose bf16 or fp32 scales",
         row, to_string(format.scale_dtype));
}

// Two levels: the row at int8 first, then groups of integers in 4 bits, with an integer scale.
struct IntegerGroup {
  int scale = 1, zero = 0;
};

int encode_integer(float x, const IntegerGroup& g, const QuantFormat& format) noexcept {
  // (q - zero) * scale has to stay an int8.
  const int reach = 127 / g.scale;
  const int low = format.has_zeros() ? std::max(0, g.zero - reach) : std::max(-8, -reach);
  const int high = format.has_zeros() ? std::min(15, g.zero + reach) : std::min(7, reach);
  return std::clamp(static_cast<int>(std::nearbyint(x / static_cast<float>(g.scale))) + g.zero, low, high);
}

IntegerGroup best_integer_group(std::span<const float> x, std::span<const float> importance,
                                const QuantFormat& format) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  IntegerGroup best;
  double least = std::numeric_limits<double>::infinity();
  for (int scale = 1; scale <= QuantFormat::kMaxGroupScale; ++scale) {
    IntegerGroup g{scale, 0};
    if (format.has_zeros())
      g.zero = std::clamp(static_cast<int>(std::nearbyint(-std::min(*low, 0.0F) / static_cast<float>(scale))),
                          0, 15);
    double error = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double d = static_cast<double>(x[i]) - (encode_integer(x[i], g, format) - g.zero) * scale;
      error += d * d * (importance.empty() ? 1.0 : static_cast<double>(importance[i]));
    }
    if (error < least) {
      least = error;
      best = g;
    }
  }
  static_cast<void>(high);
  return best;
}

void quantize_row_two_level(QuantizedMatrix& m, std::int64_t row, std::span<const float> w,
                            std::span<const float> importance) {
  // 119 of 127: the rounding of the second level may overshoot by half a step of 16 (QServe, section 4.1).
  float extreme = 0;
  for (const float x : w) extreme = std::max(extreme, std::abs(x));
  const float row_scale = as_stored(extreme / 119, m.format.scale_dtype);
  check_scale(row_scale, m.format, row);
  store_scale(m.row_scales.data() + row * static_cast<std::int64_t>(size_bytes(m.format.scale_dtype)),
              m.format.scale_dtype, row_scale);
  const std::int64_t group = m.format.group_of_row(m.k);
  const std::int64_t n_groups = m.format.n_groups(m.k);
  std::vector<float> x(w.begin(), w.end());
  for (float& v : x) v = row_scale == 0 ? 0 : std::clamp(v / row_scale, -127.0F, 127.0F);
  for (std::int64_t g = 0; g < n_groups; ++g) {
    const auto begin = static_cast<std::size_t>(g * group);
    const auto size = static_cast<std::size_t>(std::min(group, m.k - g * group));
    const std::span<const float> part(x.data() + begin, size);
    const IntegerGroup p =
        best_integer_group(part, importance.empty() ? importance : importance.subspan(begin, size), m.format);
    m.scales.data()[row * n_groups + g] = static_cast<std::byte>(p.scale);
    if (m.format.has_zeros()) put_half_byte(m.zeros.data() + row * m.format.row_zero_bytes(m.k), g, p.zero);
    for (std::size_t i = 0; i < size; ++i)
      put_code(m, row, static_cast<std::int64_t>(begin + i), encode_integer(part[i], p, m.format));
  }
}

void quantize_row(QuantizedMatrix& m, std::int64_t row, std::span<const float> w,
                  const QuantizeOptions& options) {
  const std::int64_t group = m.format.group_of_row(m.k);
  const std::int64_t n_groups = m.format.n_groups(m.k);
  const auto wide = static_cast<std::int64_t>(size_bytes(m.format.scale_dtype));
  for (std::int64_t g = 0; g < n_groups; ++g) {
    const auto begin = static_cast<std::size_t>(g * group);
    const auto size = static_cast<std::size_t>(std::min(group, m.k - g * group));
    const std::span<const float> part = w.subspan(begin, size);
    const std::span<const float> importance =
        options.importance.empty() ? options.importance : options.importance.subspan(begin, size);
    const GroupParameters p = best_parameters(part, importance, m.format, options.clip_to);
    check_scale(p.scale, m.format, row);
    store_scale(m.scales.data() + (row * n_groups + g) * wide, m.format.scale_dtype, p.scale);
    if (m.format.has_zeros()) put_half_byte(m.zeros.data() + row * m.format.row_zero_bytes(m.k), g, p.zero);
    for (std::size_t i = 0; i < size; ++i)
      put_code(m, row, static_cast<std::int64_t>(begin + i), encode(part[i], p, m.format));
  }
}

}  // namespace

int QuantizedMatrix::code(std::int64_t row, std::int64_t col) const noexcept {
  const std::byte* at = codes.data() + row * format.row_code_bytes(k);
  if (format.bits() == 4) return half_byte(at, col) - (offset_by_eight(format) ? 8 : 0);
  const auto bits = std::to_integer<std::uint8_t>(at[col]);
  return format.code == QuantCode::kInt8 ? static_cast<std::int8_t>(bits) : bits;
}

float QuantizedMatrix::scale(std::int64_t row, std::int64_t col) const noexcept {
  const auto wide = static_cast<std::int64_t>(triptych::size_bytes(format.scale_dtype));
  const std::int64_t at = row * format.n_groups(k) + col / format.group_of_row(k);
  if (format.two_level) return row_scale(row) * static_cast<float>(group_scale(row, col));
  return load_scale(scales.data() + at * wide, format.scale_dtype);
}

float QuantizedMatrix::row_scale(std::int64_t row) const noexcept {
  const auto wide = static_cast<std::int64_t>(triptych::size_bytes(format.scale_dtype));
  return load_scale(row_scales.data() + row * wide, format.scale_dtype);
}

int QuantizedMatrix::group_scale(std::int64_t row, std::int64_t col) const noexcept {
  return std::to_integer<int>(scales.data()[row * format.n_groups(k) + col / format.group_of_row(k)]);
}

int QuantizedMatrix::zero(std::int64_t row, std::int64_t col) const noexcept {
  if (!format.has_zeros()) return 0;
  return half_byte(zeros.data() + row * format.row_zero_bytes(k), col / format.group_of_row(k));
}

float QuantizedMatrix::set_nearest(std::int64_t row, std::int64_t col, float w) noexcept {
  const GroupParameters p{scale(row, col), zero(row, col)};
  const int nearest = encode(w, p, format);
  put_code(*this, row, col, nearest);
  return decode(nearest, p, format);
}

float QuantizedMatrix::value(std::int64_t row, std::int64_t col) const noexcept {
  return value_in_group(row, col, col / format.group_of_row(k));
}

float QuantizedMatrix::value_in_group(std::int64_t row, std::int64_t col, std::int64_t group) const noexcept {
  const std::int64_t first = group * format.group_of_row(k);
  return decode(code(row, col), {scale(row, first), zero(row, first)}, format);
}

QuantizedMatrix quantize(const TensorView& w, const QuantFormat& format, const QuantizeOptions& options) {
  format.validate();
  if (w.rank() != 2 || w.dtype() != DType::kF32)
    fail(ErrorCode::kInvalidArgument, "quantize: expected a float32 matrix, got {} {}", to_string(w.dtype()),
         to_string(w.shape()));
  if (!options.importance.empty() && static_cast<std::int64_t>(options.importance.size()) != w.dim(1))
    fail(ErrorCode::kInvalidArgument, "quantize: {} importances for {} columns", options.importance.size(),
         w.dim(1));
  QuantizedMatrix out;
  out.format = format;
  out.n = w.dim(0);
  out.k = w.dim(1);
  const auto rows = [&](std::int64_t row_bytes) {
    return Buffer::zeros(static_cast<std::size_t>(out.n * row_bytes));
  };
  const auto wide = static_cast<std::int64_t>(size_bytes(format.scale_dtype));
  out.codes = rows(format.row_code_bytes(out.k));
  out.scales = rows(format.n_groups(out.k) * (format.two_level ? 1 : wide));
  out.zeros = rows(format.row_zero_bytes(out.k));
  if (format.two_level) out.row_scales = rows(wide);
  for (std::int64_t row = 0; row < out.n; ++row) {
    const std::span<const float> values(w.row(row).cf32(), static_cast<std::size_t>(out.k));
    check_finite(values, row);
    if (format.two_level)
      quantize_row_two_level(out, row, values, options.importance);
    else
      quantize_row(out, row, values, options);
  }
  return out;
}

Tensor dequantize(const QuantizedMatrix& m) {
  Tensor out(DType::kF32, {m.n, m.k});
  float* y = out.view().f32();
  for (std::int64_t row = 0; row < m.n; ++row)
    for (std::int64_t col = 0; col < m.k; ++col) y[row * m.k + col] = m.value(row, col);
  return out;
}

double sqnr_db(const TensorView& w, const TensorView& approximation) {
  TRIPTYCH_CHECK(w.shape() == approximation.shape(), "sqnr of {} and {}", to_string(w.shape()),
                 to_string(approximation.shape()));
  double signal = 0, noise = 0;
  for (std::int64_t row = 0; row < w.dim(0); ++row) {
    const float* a = w.row(row).cf32();
    const float* b = approximation.row(row).cf32();
    for (std::int64_t col = 0; col < w.dim(1); ++col) {
      const double d = static_cast<double>(a[col]) - static_cast<double>(b[col]);
      signal += static_cast<double>(a[col]) * static_cast<double>(a[col]);
      noise += d * d;
    }
  }
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

}  // namespace triptych

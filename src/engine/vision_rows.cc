#include "engine/vision_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/digest.h"
#include "base/error.h"

namespace triptych {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read and written as they lie in memory");

constexpr char kMagic[8] = {'T', 'R', 'I', 'R', 'O', 'W', 'S', '\n'};
constexpr std::uint32_t kVersion = 1;
// Far beyond any picture, so that products of the two stay in range.
constexpr std::uint64_t kMaxSide = std::uint64_t{1} << 30;

// The header as it lies in the file; no gaps.
struct RawHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t dtype;
  Fingerprint key;
  std::uint64_t n_rows;
  std::uint64_t n_columns;
  std::uint64_t payload_bytes;
  double encode_ms;
  Fingerprint checksum;
};
static_assert(sizeof(RawHeader) == VisionRowsFile::kHeader_bytes);
constexpr std::size_t kChecked_bytes = offsetof(RawHeader, checksum);

// Both sides are at most kMaxSide.
std::uint64_t payload_bytes(VisionRowsDType dtype, std::uint64_t n_rows, std::uint64_t n_columns) {
  return dtype == VisionRowsDType::kF32 ? n_rows * n_columns * sizeof(float)
                                        : n_rows * (sizeof(float) + n_columns);
}

Fingerprint checksum_of(std::span<const std::byte> header, std::span<const std::byte> payload) {
  Digest digest;
  digest.add(header.first(kChecked_bytes));
  digest.add(payload);
  return digest.finish();
}

bool all_finite(const float* values, std::size_t n) {
  return std::all_of(values, values + n, [](float v) { return std::isfinite(v); });
}

}  // namespace

std::string_view to_string(VisionRowsDType dtype) noexcept {
  return dtype == VisionRowsDType::kF32 ? "fp32" : "int8";
}

VisionRowsDType parse_vision_rows_dtype(std::string_view word) {
  for (const VisionRowsDType dtype : {VisionRowsDType::kF32, VisionRowsDType::kInt8})
    if (word == to_string(dtype)) return dtype;
  fail(ErrorCode::kInvalidArgument, "type of cached rows of pictures: expected fp32 or int8, got \"{}\"",
       word);
}

std::optional<VisionRows> VisionRows::pack(const TensorView& rows, VisionRowsDType dtype) {
  TRIPTYCH_CHECK(rows.rank() == 2 && rows.dtype() == DType::kF32, "rows of a picture are float32 [n, W]");
  VisionRows out;
  out.n_rows_ = rows.dim(0);
  out.n_columns_ = rows.dim(1);
  out.dtype_ = dtype;
  const auto n = static_cast<std::size_t>(out.n_rows_);
  const auto width = static_cast<std::size_t>(out.n_columns_);
  out.payload_ = Tensor(DType::kU8, {static_cast<std::int64_t>(payload_bytes(dtype, n, width))});
  std::byte* to = out.payload_.view().data();
  const bool exact = dtype == VisionRowsDType::kF32;
  std::byte* integers = to + n * sizeof(float);
  for (std::size_t i = 0; i < n; ++i) {
    const float* row = rows.row(static_cast<std::int64_t>(i)).cf32();
    if (!all_finite(row, width)) return std::nullopt;
    if (exact) {
      std::memcpy(to + i * width * sizeof(float), row, width * sizeof(float));
      continue;
    }
    float most = 0;
    for (std::size_t k = 0; k < width; ++k) most = std::max(most, std::fabs(row[k]));
    float scale = most / 127.0F;
    if (scale < std::numeric_limits<float>::min()) scale = 0;  // its inverse would not be finite
    const float inverse = scale > 0 ? 1.0F / scale : 0.0F;
    std::memcpy(to + i * sizeof(float), &scale, sizeof scale);
    auto* q = reinterpret_cast<std::int8_t*>(integers + i * width);
    for (std::size_t k = 0; k < width; ++k)
      q[k] = static_cast<std::int8_t>(std::nearbyint(std::clamp(row[k] * inverse, -127.0F, 127.0F)));
  }
  return out;
}

void VisionRows::unpack(const TensorView& to) const {
  TRIPTYCH_CHECK(to.rank() == 2 && to.dim(0) == n_rows_ && to.dim(1) == n_columns_, "rows [{}, {}]", n_rows_,
                 n_columns_);
  const auto width = static_cast<std::size_t>(n_columns_);
  const std::byte* from = payload_.view().data();
  const std::byte* integers = from + static_cast<std::size_t>(n_rows_) * sizeof(float);
  for (std::int64_t i = 0; i < n_rows_; ++i) {
    const auto at = static_cast<std::size_t>(i);
    float* row = to.row(i).f32();
    if (dtype_ == VisionRowsDType::kF32) {
      std::memcpy(row, from + at * width * sizeof(float), width * sizeof(float));
      continue;
    }
    float scale = 0;
    std::memcpy(&scale, from + at * sizeof(float), sizeof scale);
    const auto* q = reinterpret_cast<const std::int8_t*>(integers + at * width);
    for (std::size_t k = 0; k < width; ++k) row[k] = scale * static_cast<float>(q[k]);
  }
}

VisionRowsFile::Header VisionRowsFile::header_of(const Fingerprint& key, const VisionRows& rows,
                                                 double encode_ms) {
  RawHeader raw{};
  std::memcpy(raw.magic, kMagic, sizeof kMagic);
  raw.version = kVersion;
  raw.dtype = static_cast<std::uint32_t>(rows.dtype());
  raw.key = key;
  raw.n_rows = static_cast<std::uint64_t>(rows.n_rows());
  raw.n_columns = static_cast<std::uint64_t>(rows.n_columns());
  raw.payload_bytes = rows.size_bytes();
  raw.encode_ms = encode_ms;
  Header out;
  std::memcpy(out.data(), &raw, sizeof raw);
  raw.checksum = checksum_of(out, rows.payload());
  std::memcpy(out.data(), &raw, sizeof raw);
  return out;
}

VisionRowsFile::VisionRowsFile(const Header& header, std::uint64_t file_bytes,
                               const ExpectedVisionRows& expected)
    : header_(header) {
  RawHeader raw;
  std::memcpy(&raw, header.data(), sizeof raw);
  if (std::memcmp(raw.magic, kMagic, sizeof kMagic) != 0)
    fail(ErrorCode::kInvalidFile, "expected a file of rows of a picture, it begins otherwise");
  if (raw.version != kVersion)
    fail(ErrorCode::kInvalidFile, "expected version {} of the format, got {}", kVersion, raw.version);
  if (raw.dtype != static_cast<std::uint32_t>(expected.dtype))
    fail(ErrorCode::kInvalidFile, "expected rows as {}, got type {}", to_string(expected.dtype), raw.dtype);
  if (raw.key != expected.key)
    fail(ErrorCode::kInvalidFile, "expected key {}, got {}", to_hex(expected.key), to_hex(raw.key));
  if (expected.n_rows < 0 || raw.n_rows != static_cast<std::uint64_t>(expected.n_rows) ||
      raw.n_rows > kMaxSide)
    fail(ErrorCode::kInvalidFile, "expected {} rows, got {}", expected.n_rows, raw.n_rows);
  if (raw.n_columns == 0 || raw.n_columns > kMaxSide)
    fail(ErrorCode::kInvalidFile, "expected 1 to {} columns, got {}", kMaxSide, raw.n_columns);
  const std::uint64_t needed = payload_bytes(expected.dtype, raw.n_rows, raw.n_columns);
  if (raw.payload_bytes != needed)
    fail(ErrorCode::kInvalidFile, "expected a payload of {} bytes for [{}, {}], got {}", needed, raw.n_rows,
         raw.n_columns, raw.payload_bytes);
  if (file_bytes < kHeader_bytes || file_bytes - kHeader_bytes != needed)
    fail(ErrorCode::kInvalidFile, "expected {} bytes, the file has {}", needed + kHeader_bytes, file_bytes);
  if (!std::isfinite(raw.encode_ms) || raw.encode_ms < 0)
    fail(ErrorCode::kInvalidFile, "expected a time of the tower, got {} ms", raw.encode_ms);
  encode_ms_ = raw.encode_ms;
  rows_.n_rows_ = expected.n_rows;
  rows_.n_columns_ = static_cast<std::int64_t>(raw.n_columns);
  rows_.dtype_ = expected.dtype;
  rows_.payload_ = Tensor(DType::kU8, {static_cast<std::int64_t>(needed)});
}

VisionRows VisionRowsFile::take_rows() && {
  RawHeader raw;
  std::memcpy(&raw, header_.data(), sizeof raw);
  if (checksum_of(header_, rows_.payload()) != raw.checksum)
    fail(ErrorCode::kInvalidFile, "the checksum does not fit the contents");
  // Of int8 the scales; memory of a tensor is aligned.
  const auto n_floats = static_cast<std::size_t>(
      rows_.dtype_ == VisionRowsDType::kF32 ? rows_.n_rows_ * rows_.n_columns_ : rows_.n_rows_);
  if (!all_finite(reinterpret_cast<const float*>(rows_.payload().data()), n_floats))
    fail(ErrorCode::kInvalidFile, "a value is not finite");
  return std::move(rows_);
}

Fingerprint vision_rows_checksum(std::span<const std::byte> file) {
  return checksum_of(file.first(VisionRowsFile::kHeader_bytes), file.subspan(VisionRowsFile::kHeader_bytes));
}

VisionRows parse_vision_rows(std::span<const std::byte> file, const ExpectedVisionRows& expected) {
  VisionRowsFile::Header header{};
  if (file.size() < header.size())
    fail(ErrorCode::kInvalidFile, "expected at least {} bytes, the file has {}", header.size(), file.size());
  std::memcpy(header.data(), file.data(), header.size());
  VisionRowsFile out(header, file.size(), expected);
  const std::span<const std::byte> payload = file.subspan(header.size());
  if (!payload.empty()) std::memcpy(out.payload().data(), payload.data(), payload.size());
  return std::move(out).take_rows();
}

}  // namespace triptych

// What the tower made of one picture, as a cache keeps it: rows in host memory, exact or rounded to int8, and
// the same as the bytes of a file.
//
// A file is a header of 112 bytes and the payload, numbers little-endian:
//   0  char[8]  "TRIROWS\n"          56  uint64   columns
//   8  uint32   version, 1           64  uint64   bytes of the payload
//  12  uint32   type of the rows     72  float64  milliseconds that the tower took
//  16  byte[32] the picture's key    80  byte[32] BLAKE2b-256 of the bytes [0, 80) and the payload
//  48  uint64   rows
// Payload of fp32: the rows. Payload of int8: a float32 scale a row, then the rows; value = scale * integer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/fingerprint.h"
#include "tensor/tensor.h"

namespace triptych {

enum class VisionRowsDType : std::uint32_t { kF32 = 0, kInt8 = 1 };

/// "fp32", "int8".
std::string_view to_string(VisionRowsDType dtype) noexcept;
/// Throws Error(kInvalidArgument) that names the words.
VisionRowsDType parse_vision_rows_dtype(std::string_view word);

/// Rows [n_rows, n_columns] of one picture.
class VisionRows {
 public:
  /// A copy of float32 rows [n, W] in host memory: with kInt8 each is rounded to nearest with the scale
  /// max|x| / 127. Nothing when a value is not finite: such rows are not kept. Throws Error(kOutOfMemory).
  static std::optional<VisionRows> pack(const TensorView& rows, VisionRowsDType dtype);

  /// Writes all rows to `to`, float32 [n_rows, n_columns] in host memory.
  void unpack(const TensorView& to) const;

  std::int64_t n_rows() const noexcept { return n_rows_; }
  std::int64_t n_columns() const noexcept { return n_columns_; }
  VisionRowsDType dtype() const noexcept { return dtype_; }
  std::size_t size_bytes() const noexcept { return payload_.view().size_bytes(); }
  std::span<const std::byte> payload() const noexcept { return {payload_.view().data(), size_bytes()}; }

 private:
  friend class VisionRowsFile;
  std::int64_t n_rows_ = 0;
  std::int64_t n_columns_ = 0;
  VisionRowsDType dtype_ = VisionRowsDType::kF32;
  Tensor payload_;  // uint8
};

/// What a reader expects of a file.
struct ExpectedVisionRows {
  Fingerprint key;
  std::int64_t n_rows = 0;
  VisionRowsDType dtype = VisionRowsDType::kF32;
};

/// A file of rows while it is read: the header first, so that nothing is taken for a payload that cannot be
/// right.
class VisionRowsFile {
 public:
  static constexpr std::size_t kHeader_bytes = 112;
  using Header = std::array<std::byte, kHeader_bytes>;

  /// The header of a file of these rows.
  static Header header_of(const Fingerprint& key, const VisionRows& rows, double encode_ms);

  /// Checks the header of a file of `file_bytes` and takes memory for its payload. Throws Error(kInvalidFile)
  /// that says what was expected and what was found, Error(kOutOfMemory).
  VisionRowsFile(const Header& header, std::uint64_t file_bytes, const ExpectedVisionRows& expected);
  /// Where the payload is to be read to.
  std::span<std::byte> payload() noexcept { return {rows_.payload_.view().data(), rows_.size_bytes()}; }
  /// The rows, when the checksum is right and every value is finite. Throws Error(kInvalidFile).
  VisionRows take_rows() &&;
  double encode_ms() const noexcept { return encode_ms_; }

 private:
  Header header_;
  VisionRows rows_;
  double encode_ms_ = 0;
};

/// The checksum that belongs into a file of at least kHeader_bytes.
Fingerprint vision_rows_checksum(std::span<const std::byte> file);

/// A whole file. Throws as VisionRowsFile.
VisionRows parse_vision_rows(std::span<const std::byte> file, const ExpectedVisionRows& expected);

}  // namespace triptych

// The safetensors format (huggingface/safetensors, README "Format"): 8 bytes little-endian header length N, N
// bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {string: string}},
// then the data. As in the reference, tensors cover the data without gap or overlap. Every number is checked
// before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/weight_table.h"

namespace triptych {

/// Larger headers are refused (the reference allows 100 MB; real ones stay below 1 MB).
inline constexpr std::uint64_t kMaxSafetensorsHeader_bytes = std::uint64_t{32} << 20;

struct SafetensorsTensor {
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t begin_bytes = 0;  // within the file
  std::uint64_t end_bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // by offset
  std::map<std::string, std::string> metadata;
};

/// Parses and checks a header. `bytes` begins at the start of the file and holds at least the header;
/// `file_bytes` is the size of the file. Throws Error(kInvalidFile) naming `source` and the tensor.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                           std::string_view source);

/// Maps a file. Views point into the mapping; a tensor that is not aligned for its type is copied instead.
WeightTable read_safetensors(const std::filesystem::path& path);
/// The same, and the metadata.
WeightTable read_safetensors(const std::filesystem::path& path, std::map<std::string, std::string>& metadata);
/// The same for a whole file in memory that lives as long as `owner`. `source` goes into errors and entries.
WeightTable read_safetensors(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner,
                             std::string_view source, std::map<std::string, std::string>* metadata = nullptr);

struct TensorSpec {
  std::string name;
  DType dtype;
  Shape shape;
};

/// Writes a file tensor by tensor, so that a whole model need not be in memory. The file appears under its
/// name only by finish(); without it nothing is left behind.
class SafetensorsWriter {
 public:
  /// Writes the header. Data is padded to begin at a multiple of 64 bytes. Throws Error(kIo),
  /// kInvalidArgument for a name that occurs twice or is "__metadata__".
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// The next tensor in the order given; dtype and shape must be those announced.
  void append(const TensorView& tensor);
  /// Flushes and renames. Throws when tensors are missing.
  void finish();

 private:
  void write(const void* data, std::size_t size_bytes);
  void discard() noexcept;
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::vector<TensorSpec> tensors_;
  std::size_t next_ = 0;
  std::FILE* file_ = nullptr;
};

struct NamedTensor {
  std::string name;
  TensorView view;
};

/// All at once; tensors are put in an order that aligns them.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace triptych

// Writing a safetensors file whose tensors are not known beforehand: room for the header is kept at the
// beginning and filled at the end (the format allows spaces after it). Data begins at a multiple of 4096
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tensor/tensor.h"

namespace triptych {

class SafetensorsStream {
 public:
  /// `header_room_bytes` must be enough for all that will be appended: see header_bytes_of. Throws
  /// Error(kIo).
  SafetensorsStream(std::filesystem::path path, std::size_t header_room_bytes);
  ~SafetensorsStream();
  SafetensorsStream(const SafetensorsStream&) = delete;
  SafetensorsStream& operator=(const SafetensorsStream&) = delete;

  /// What one tensor takes of the header at most.
  static std::size_t header_bytes_of(std::string_view name);

  /// Throws Error(kIo) that says why the file cannot be written; kInvalidArgument for a name that occurs
  /// twice.
  void append(const std::string& name, const TensorView& tensor);
  /// Bytes of data so far: where the next tensor begins.
  std::uint64_t data_bytes() const noexcept { return data_bytes_; }
  /// name -> digest_hex of the tensor's bytes.
  const std::map<std::string, std::string>& checksums() const noexcept { return checksums_; }
  /// Writes the header, flushes and closes. Gives the checksum of the header: of its length and its text.
  std::string finish();

 private:
  void write(const void* data, std::size_t size_bytes);
  std::filesystem::path path_;
  std::size_t room_bytes_;
  std::string header_ = "{";
  std::uint64_t data_bytes_ = 0;
  std::map<std::string, std::string> checksums_;
  std::FILE* file_ = nullptr;
};

/// The checksum of a file's header as finish() gives it. Throws Error(kIo / kInvalidFile).
std::string safetensors_header_digest(const std::filesystem::path& path);

}  // namespace triptych

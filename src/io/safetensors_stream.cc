#include "io/safetensors_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "io/untrusted_text.h"

namespace triptych {
namespace {

constexpr std::size_t kPage_bytes = 4096;

}  // namespace

SafetensorsStream::SafetensorsStream(std::filesystem::path path, std::size_t header_room_bytes)
    : path_(std::move(path)), room_bytes_((header_room_bytes + 8 + kPage_bytes) / kPage_bytes * kPage_bytes) {
  if (room_bytes_ > kMaxSafetensorsHeader_bytes)
    fail(ErrorCode::kInvalidArgument, "{}: a header of {} bytes", path_.string(), room_bytes_);
  file_ = std::fopen(path_.c_str(), "wbxe");
  if (file_ == nullptr) fail(ErrorCode::kIo, "{}: cannot create: {}", path_.string(), std::strerror(errno));
  const std::string zeros(room_bytes_, '\0');
  try {
    write(zeros.data(), zeros.size());
  } catch (...) {
    std::fclose(file_);  // the destructor does not run
    throw;
  }
}

std::size_t SafetensorsStream::header_bytes_of(std::string_view name) {
  return Json(std::string(name)).dump(-1, ' ', false, Json::error_handler_t::replace).size() + 200;
}

SafetensorsStream::~SafetensorsStream() {
  if (file_ != nullptr) std::fclose(file_);
}

void SafetensorsStream::write(const void* data, std::size_t size_bytes) {
  if (size_bytes != 0 && std::fwrite(data, 1, size_bytes, file_) != size_bytes)
    fail(ErrorCode::kIo, "{}: cannot write: {}", path_.string(), std::strerror(errno));
}

void SafetensorsStream::append(const std::string& name, const TensorView& tensor) {
  TRIPTYCH_CHECK(file_ != nullptr && tensor.is_contiguous(), "{}: a closed file, or a view with gaps", name);
  if (!is_utf8(name) || name == "__metadata__" || checksums_.contains(name))
    fail(ErrorCode::kInvalidArgument, "{}: {} is no tensor name, or occurs twice", path_.string(),
         show_name(name));
  const std::uint64_t end = data_bytes_ + tensor.size_bytes();
  header_ += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                         header_.size() > 1 ? "," : "", Json(name).dump(), to_string(tensor.dtype()),
                         to_string(tensor.shape()), data_bytes_, end);
  const auto* bytes = static_cast<const std::byte*>(tensor.cdata());
  // Digested while it is still in a cache.
  Digest digest;
  constexpr std::size_t kPiece_bytes = std::size_t{1} << 20;
  for (std::size_t at = 0; at < tensor.size_bytes(); at += kPiece_bytes) {
    const std::size_t n = std::min(kPiece_bytes, tensor.size_bytes() - at);
    digest.add({bytes + at, n});
    write(bytes + at, n);
  }
  checksums_.emplace(name, digest.finish_hex());
  data_bytes_ = end;
}

std::string SafetensorsStream::finish() {
  TRIPTYCH_CHECK(file_ != nullptr, "{}: finished twice", path_.string());
  header_ += "}";
  TRIPTYCH_CHECK(header_.size() + 8 <= room_bytes_, "{}: a header of {} bytes, {} were kept", path_.string(),
                 header_.size(), room_bytes_);
  header_.append(room_bytes_ - 8 - header_.size(), ' ');
  const std::uint64_t header_bytes = header_.size();
  Digest digest;
  digest.add(std::as_bytes(std::span(&header_bytes, 1)));
  digest.add(std::as_bytes(std::span(header_)));
  const bool at_start = std::fseek(file_, 0, SEEK_SET) == 0;
  if (at_start) {
    write(&header_bytes, sizeof header_bytes);
    write(header_.data(), header_.size());
  }
  const bool is_flushed = at_start && std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
  const int error = errno;
  // What a writer leaves in the cache are small pages: see cache_in_huge_pages.
  if (is_flushed) static_cast<void>(::posix_fadvise(::fileno(file_), 0, 0, POSIX_FADV_DONTNEED));
  if (std::fclose(std::exchange(file_, nullptr)) != 0 || !is_flushed)
    fail(ErrorCode::kIo, "{}: cannot write: {}", path_.string(), std::strerror(is_flushed ? errno : error));
  return digest.finish_hex();
}

std::string safetensors_header_digest(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  std::uint64_t header_bytes = 0;
  if (file->size_bytes() < sizeof header_bytes)
    fail(ErrorCode::kInvalidFile, "{}: it has only {} bytes", path.string(), file->size_bytes());
  std::memcpy(&header_bytes, file->data(), sizeof header_bytes);
  if (header_bytes > file->size_bytes() - sizeof header_bytes || header_bytes > kMaxSafetensorsHeader_bytes)
    fail(ErrorCode::kInvalidFile, "{}: header of {} bytes in a file of {}", path.string(), header_bytes,
         file->size_bytes());
  return digest_hex(file->bytes().first(static_cast<std::size_t>(header_bytes) + sizeof header_bytes));
}

}  // namespace triptych

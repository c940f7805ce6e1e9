#include "io/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "io/mapped_file.h"
#include "io/untrusted_text.h"

namespace triptych {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

constexpr std::uint64_t kLengthBytes = 8;
constexpr const char* kMetadataKey = "__metadata__";

std::uint64_t exact_integer(const JsonView& view) {
  if (!view.is_integer()) view.fail_expected("an integer");
  return static_cast<std::uint64_t>(view.as_int(0));
}

Shape read_shape(const JsonView& view) {
  const std::vector<JsonView> items = view.items();
  if (items.size() > static_cast<std::size_t>(Shape::kMaxRank))
    fail(ErrorCode::kInvalidFile, "{}: expected at most {} dimensions, got {}", view.path(), Shape::kMaxRank,
         items.size());
  std::vector<std::int64_t> dims;
  dims.reserve(items.size());
  for (const JsonView& item : items) dims.push_back(static_cast<std::int64_t>(exact_integer(item)));
  try {
    return Shape(dims);
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidFile, "{}: {}", view.path(), error.what());
  }
}

SafetensorsTensor read_tensor(const std::string& name, const Json& value, std::string_view source,
                              std::uint64_t header_end, std::uint64_t data_bytes) {
  const JsonView view(value, fmt::format("{}: tensor {}", source, show_name(name)));
  const std::string dtype_name = view.at("dtype").as_string();
  const auto dtype = dtype_from_safetensors(dtype_name);
  if (!dtype)
    fail(ErrorCode::kUnsupported, "{}: the dtype {} is not known", view.path(), show_name(dtype_name));
  const JsonView offsets = view.at("data_offsets");
  const std::vector<JsonView> range = offsets.items();
  if (range.size() != 2) offsets.fail_expected("an array of 2");
  SafetensorsTensor out{name, *dtype, read_shape(view.at("shape")), exact_integer(range[0]),
                        exact_integer(range[1])};
  if (out.begin_bytes > out.end_bytes || out.end_bytes > data_bytes)
    fail(ErrorCode::kInvalidFile, "{}: expected a range within [0, {}], got [{}, {}]", offsets.path(),
         data_bytes, out.begin_bytes, out.end_bytes);
  // numel < 2^63 and an element has at most 8 bytes: compare by division, the product could overflow.
  const auto numel = static_cast<std::uint64_t>(out.shape.numel());
  const std::uint64_t range_bytes = out.end_bytes - out.begin_bytes;
  if (range_bytes % size_bytes(*dtype) != 0 || range_bytes / size_bytes(*dtype) != numel)
    fail(ErrorCode::kInvalidFile, "{}: shape {} of {} does not fill its {} bytes", view.path(),
         to_string(out.shape), dtype_name, range_bytes);
  out.begin_bytes += header_end;
  out.end_bytes += header_end;
  return out;
}

std::map<std::string, std::string> read_metadata(const Json& value, std::string_view source) {
  if (!value.is_object()) fail(ErrorCode::kInvalidFile, "{}: {} is not an object", source, kMetadataKey);
  std::map<std::string, std::string> out;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      fail(ErrorCode::kInvalidFile, "{}: {}: the value of {} is not a string", source, kMetadataKey,
           show_name(key));
    out.emplace(key, text.get<std::string>());
  }
  return out;
}

// As in the reference implementation: every byte of the data belongs to one tensor.
void check_coverage(const std::vector<SafetensorsTensor>& tensors, std::string_view source,
                    std::uint64_t begin, std::uint64_t end) {
  std::uint64_t expected = begin;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.begin_bytes != expected)
      fail(ErrorCode::kInvalidFile, "{}: tensor {} {}", source, show_name(tensor.name),
           tensor.begin_bytes < expected ? "overlaps the one before it" : "leaves a gap before it");
    expected = tensor.end_bytes;
  }
  if (expected != end)
    fail(ErrorCode::kInvalidFile, "{}: {} bytes at the end belong to no tensor", source, end - expected);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                           std::string_view source) {
  if (file_bytes < kLengthBytes || bytes.size() < kLengthBytes)
    fail(ErrorCode::kInvalidFile, "{}: expected a safetensors file, it has only {} bytes", source,
         file_bytes);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (header_bytes > file_bytes - kLengthBytes)
    fail(ErrorCode::kInvalidFile, "{}: header of {} bytes in a file of {} (cut short, or not safetensors)",
         source, header_bytes, file_bytes);
  if (header_bytes > kMaxSafetensorsHeader_bytes)
    fail(ErrorCode::kInvalidFile, "{}: header of {} bytes, expected at most {}", source, header_bytes,
         kMaxSafetensorsHeader_bytes);
  TRIPTYCH_CHECK(bytes.size() - kLengthBytes >= header_bytes, "{}: part of the header", source);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                              static_cast<std::size_t>(header_bytes));
  if (text.empty() || text.front() != '{')
    fail(ErrorCode::kInvalidFile, "{}: the header is not a JSON object", source);
  const Json json = parse_json_unique_keys(text, source);
  const std::uint64_t header_end = kLengthBytes + header_bytes;

  SafetensorsHeader out;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      out.metadata = read_metadata(value, source);
    } else {
      out.tensors.push_back(read_tensor(name, value, source, header_end, file_bytes - header_end));
    }
  }
  std::sort(
      out.tensors.begin(), out.tensors.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
        return std::tie(a.begin_bytes, a.end_bytes, a.name) < std::tie(b.begin_bytes, b.end_bytes, b.name);
      });
  check_coverage(out.tensors, source, header_end, file_bytes);
  return out;
}

WeightTable read_safetensors(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner,
                             std::string_view source, std::map<std::string, std::string>* metadata) {
  SafetensorsHeader header = parse_safetensors_header(bytes, bytes.size(), source);
  WeightTable out;
  for (SafetensorsTensor& tensor : header.tensors) {
    const std::byte* data = bytes.data() + tensor.begin_bytes;
    WeightEntry entry{std::move(tensor.name), TensorView::of_const(data, tensor.dtype, tensor.shape), owner,
                      std::string(source)};
    if (reinterpret_cast<std::uintptr_t>(data) % size_bytes(tensor.dtype) != 0) {
      Buffer copy = Buffer::allocate(static_cast<std::size_t>(tensor.end_bytes - tensor.begin_bytes));
      if (copy.size_bytes() != 0) std::memcpy(copy.data(), data, copy.size_bytes());
      entry.view = TensorView(copy.data(), tensor.dtype, tensor.shape);
      entry.owner = copy.owner();
    }
    out.add(std::move(entry));
  }
  if (metadata != nullptr) *metadata = std::move(header.metadata);
  return out;
}

WeightTable read_safetensors(const std::filesystem::path& path,
                             std::map<std::string, std::string>& metadata) {
  const auto file = MappedFile::open(path);
  return read_safetensors(file->bytes(), file, path.string(), &metadata);
}

WeightTable read_safetensors(const std::filesystem::path& path) {
  std::map<std::string, std::string> metadata;
  return read_safetensors(path, metadata);
}

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)), tensors_(std::move(tensors)) {
  std::string header = "{";
  if (!metadata.empty()) header += fmt::format("\"{}\":{},", kMetadataKey, Json(metadata).dump());
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors_) {
    if (tensor.name == kMetadataKey || !is_utf8(tensor.name) || !names.insert(tensor.name).second)
      fail(ErrorCode::kInvalidArgument, "{}: {} is no tensor name, or occurs twice", path_.string(),
           show_name(tensor.name));
    const std::uint64_t end =
        offset + static_cast<std::uint64_t>(tensor.shape.numel()) * size_bytes(tensor.dtype);
    header +=
        fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}},",
                    Json(tensor.name).dump(), to_string(tensor.dtype), to_string(tensor.shape), offset, end);
    offset = end;
  }
  if (header.size() > 1) header.pop_back();
  header += "}";
  header.append(64 - (kLengthBytes + header.size()) % 64, ' ');
  const std::uint64_t header_bytes = header.size();
  if (header_bytes > kMaxSafetensorsHeader_bytes)
    fail(ErrorCode::kInvalidArgument, "{}: header of {} bytes", path_.string(), header_bytes);

  check_replaceable(path_);
  TemporaryFile temporary = create_temporary_beside(path_);
  temporary_ = std::move(temporary.path);
  file_ = ::fdopen(temporary.descriptor, "wb");
  if (file_ == nullptr) {
    const int error = errno;
    ::close(temporary.descriptor);
    ::unlink(temporary_.c_str());
    fail(ErrorCode::kIo, "{}: cannot create: {}", path_.string(), std::strerror(error));
  }
  try {
    write(&header_bytes, kLengthBytes);
    write(header.data(), header.size());
  } catch (...) {
    discard();  // the destructor does not run
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() { discard(); }

void SafetensorsWriter::discard() noexcept {
  if (file_ == nullptr) return;
  std::fclose(std::exchange(file_, nullptr));
  ::unlink(temporary_.c_str());
}

void SafetensorsWriter::write(const void* data, std::size_t size_bytes) {
  if (size_bytes != 0 && std::fwrite(data, 1, size_bytes, file_) != size_bytes)
    fail(ErrorCode::kIo, "{}: cannot write: {}", path_.string(), std::strerror(errno));
}

void SafetensorsWriter::append(const TensorView& tensor) {
  TRIPTYCH_CHECK(file_ != nullptr && next_ < tensors_.size(), "{}: no tensor is left to write",
                 path_.string());
  const TensorSpec& spec = tensors_[next_];
  TRIPTYCH_CHECK(tensor.dtype() == spec.dtype && tensor.shape() == spec.shape,
                 "{}: tensor {}: announced {} {}, got {} {}", path_.string(), spec.name,
                 to_string(spec.dtype), to_string(spec.shape), to_string(tensor.dtype()),
                 to_string(tensor.shape()));
  if (tensor.is_contiguous()) {
    write(tensor.cdata(), tensor.size_bytes());
  } else {
    const Tensor dense = Tensor::copy_of(tensor);
    write(dense.view().cdata(), dense.view().size_bytes());
  }
  ++next_;
}

void SafetensorsWriter::finish() {
  TRIPTYCH_CHECK(file_ != nullptr && next_ == tensors_.size(), "{}: {} of {} tensors were written",
                 path_.string(), next_, tensors_.size());
  const bool is_flushed = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
  const int flush_error = errno;
  const bool is_closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (is_flushed && is_closed && ::rename(temporary_.c_str(), path_.c_str()) == 0) return;
  const int error = is_flushed ? errno : flush_error;
  ::unlink(temporary_.c_str());
  fail(ErrorCode::kIo, "{}: cannot write: {}", path_.string(), std::strerror(error));
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const NamedTensor*> ordered;
  ordered.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) ordered.push_back(&tensor);
  std::stable_sort(ordered.begin(), ordered.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return size_bytes(a->view.dtype()) > size_bytes(b->view.dtype());
  });
  std::vector<TensorSpec> specs;
  specs.reserve(ordered.size());
  for (const NamedTensor* tensor : ordered)
    specs.push_back({tensor->name, tensor->view.dtype(), tensor->view.shape()});
  SafetensorsWriter writer(path, std::move(specs), metadata);
  for (const NamedTensor* tensor : ordered) writer.append(tensor->view);
  writer.finish();
}

}  // namespace triptych

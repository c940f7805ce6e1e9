// Small files for the tests of this folder: a scratch folder, and safetensors, zip and pickle bytes written
// by hand, so that the tests can also write what no program would.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace triptych::test {

/// A new folder that goes away with the object.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "triptych-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = std::filesystem::canonical(pattern);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

template <typename T>
std::string little_endian(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

inline std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// A safetensors file; `header_bytes` may lie.
inline std::string safetensors(std::string_view header, std::string_view data = {}) {
  return little_endian(static_cast<std::uint64_t>(header.size())) + std::string(header) + std::string(data);
}

/// One F32 tensor [1] called `name`.
inline std::string one_tensor(const std::string& name, float value = 1) {
  return safetensors("{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                     floats({value}));
}

struct ZipMember {
  std::string name;
  std::string bytes;
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
};

/// A zip archive; with `zip64` all sizes and offsets stand in zip64 records, as for files beyond 4 GiB.
inline std::string zip(const std::vector<ZipMember>& members, bool zip64 = false,
                       const std::string& comment = "") {
  const auto u16 = [](std::size_t v) { return little_endian(static_cast<std::uint16_t>(v)); };
  const auto u32 = [](std::size_t v) { return little_endian(static_cast<std::uint32_t>(v)); };
  const auto u64 = [](std::size_t v) { return little_endian(static_cast<std::uint64_t>(v)); };
  const auto in64 = [&](std::size_t v) { return zip64 ? u32(0xffffffff) : u32(v); };
  std::string out;
  std::string directory;
  for (const ZipMember& m : members) {
    const std::string head = u16(45) + u16(m.flags) + u16(m.method) + u32(0) + u32(0);  // version .. crc
    const std::string extra =
        zip64 ? u16(1) + u16(24) + u64(m.bytes.size()) + u64(m.bytes.size()) + u64(out.size()) : "";
    directory += u32(0x02014b50) + u16(45) + head + in64(m.bytes.size()) + in64(m.bytes.size()) +
                 u16(m.name.size()) + u16(extra.size()) + u16(0) + u16(0) + u16(0) + u32(0) +
                 in64(out.size()) + m.name + extra;
    out += u32(0x04034b50) + head + u32(m.bytes.size()) + u32(m.bytes.size()) + u16(m.name.size()) + u16(0) +
           m.name + m.bytes;
  }
  const std::size_t begin = out.size();
  out += directory;
  if (zip64) {
    const std::size_t end64 = out.size();
    out += u32(0x06064b50) + u64(44) + u16(45) + u16(45) + u32(0) + u32(0) + u64(members.size()) +
           u64(members.size()) + u64(directory.size()) + u64(begin);
    out += u32(0x07064b50) + u32(0) + u64(end64) + u32(1);
  }
  out += u32(0x06054b50) + u16(0) + u16(0) + (zip64 ? u16(0xffff) : u16(members.size())) +
         (zip64 ? u16(0xffff) : u16(members.size())) + in64(directory.size()) + in64(begin) +
         u16(comment.size()) + comment;
  return out;
}

/// Message of the Error that `action` throws; fails when it throws none or one with another code.
inline std::string error_of(const std::function<void()>& action, ErrorCode code = ErrorCode::kInvalidFile) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace triptych::test

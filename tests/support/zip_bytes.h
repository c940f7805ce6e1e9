// Zip archives for tests and fuzz targets, written by hand so that they can also be wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace triptych::test {

template <typename T>
std::string little_endian(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
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

}  // namespace triptych::test

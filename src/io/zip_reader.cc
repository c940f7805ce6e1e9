#include "io/zip_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "io/untrusted_text.h"

namespace triptych {
namespace {

constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kEnd64LocatorSignature = 0x07064b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kEnd64Bytes = 56;
constexpr std::uint64_t kEnd64LocatorBytes = 20;
constexpr std::uint64_t kCentralBytes = 46;
constexpr std::uint64_t kLocalBytes = 30;
constexpr std::uint64_t kMaxComment = 0xffff;
constexpr std::uint64_t kIn64 = 0xffffffff;  // the real value is in a zip64 record

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> archive, std::string_view source)
      : archive_(archive), source_(source) {}

  std::map<std::string_view, std::span<const std::byte>> read() {
    const Directory directory = find_directory();
    std::map<std::string_view, std::span<const std::byte>> out;
    std::uint64_t at = directory.offset;
    for (std::uint64_t i = 0; i < directory.count; ++i) {
      check(at, kCentralBytes, "central directory");
      if (get<std::uint32_t>(at) != kCentralSignature) fail_at("central directory", at);
      const std::uint64_t name_bytes = get<std::uint16_t>(at + 28);
      const std::uint64_t extra_bytes = get<std::uint16_t>(at + 30);
      const std::uint64_t comment_bytes = get<std::uint16_t>(at + 32);
      check(at + kCentralBytes, name_bytes + extra_bytes + comment_bytes, "central directory");
      const std::string_view name = text(at + kCentralBytes, name_bytes);
      if (!out.emplace(name, member(at, name, extra_bytes)).second)
        fail(ErrorCode::kInvalidFile, "{}: zip member {} occurs twice", source_, show_name(name));
      at += kCentralBytes + name_bytes + extra_bytes + comment_bytes;
    }
    return out;
  }

 private:
  struct Directory {
    std::uint64_t offset;
    std::uint64_t count;
  };

  // All reads below go through check(): the range lies in the archive.
  void check(std::uint64_t offset, std::uint64_t size, const char* what) const {
    if (offset > archive_.size() || size > archive_.size() - offset) fail_at(what, offset);
  }
  [[noreturn]] void fail_at(const char* what, std::uint64_t offset) const {
    fail(ErrorCode::kInvalidFile, "{}: broken zip archive: {} at byte {} of {} (cut short?)", source_, what,
         offset, archive_.size());
  }
  template <typename T>
  T get(std::uint64_t offset) const {
    T value;
    std::memcpy(&value, archive_.data() + offset, sizeof(T));
    return value;
  }
  std::string_view text(std::uint64_t offset, std::uint64_t size) const {
    return {reinterpret_cast<const char*>(archive_.data()) + offset, static_cast<std::size_t>(size)};
  }

  Directory find_directory() const {
    const std::uint64_t size = archive_.size();
    if (size < kEndBytes) fail_at("end record", 0);
    // The end record is last but for a comment, whose length it gives.
    const std::uint64_t last = size - kEndBytes;
    const std::uint64_t first = last - std::min(last, kMaxComment);
    std::uint64_t end = last + 1;
    do {
      --end;
      if (get<std::uint32_t>(end) == kEndSignature && end + kEndBytes + get<std::uint16_t>(end + 20) == size)
        break;
      if (end == first) fail_at("no end record", size);
    } while (true);
    Directory out{get<std::uint32_t>(end + 16), get<std::uint16_t>(end + 10)};
    std::uint64_t directory_bytes = get<std::uint32_t>(end + 12);
    if (end >= kEnd64LocatorBytes && get<std::uint32_t>(end - kEnd64LocatorBytes) == kEnd64LocatorSignature) {
      const auto end64 = get<std::uint64_t>(end - kEnd64LocatorBytes + 8);
      check(end64, kEnd64Bytes, "zip64 end record");
      if (get<std::uint32_t>(end64) != kEnd64Signature) fail_at("zip64 end record", end64);
      out = {get<std::uint64_t>(end64 + 48), get<std::uint64_t>(end64 + 32)};
      directory_bytes = get<std::uint64_t>(end64 + 40);
    }
    check(out.offset, directory_bytes, "central directory");
    if (out.count > directory_bytes / kCentralBytes) fail_at("more members than fit", out.offset);
    return out;
  }

  // The bytes of the member whose central record is at `at`.
  std::span<const std::byte> member(std::uint64_t at, std::string_view name,
                                    std::uint64_t extra_bytes) const {
    if ((get<std::uint16_t>(at + 8) & 1u) != 0)
      fail(ErrorCode::kUnsupported, "{}: zip member {} is encrypted", source_, show_name(name));
    if (get<std::uint16_t>(at + 10) != 0)
      fail(ErrorCode::kUnsupported,
           "{}: zip member {} is compressed; expected stored members, as PyTorch writes them", source_,
           show_name(name));
    std::uint64_t stored = get<std::uint32_t>(at + 20);
    std::uint64_t size = get<std::uint32_t>(at + 24);
    std::uint64_t local = get<std::uint32_t>(at + 42);
    read_zip64_extra(at + kCentralBytes + name.size(), extra_bytes, size, stored, local);
    if (stored != size) fail_at("member sizes differ", at);
    check(local, kLocalBytes, "member");
    if (get<std::uint32_t>(local) != kLocalSignature) fail_at("member", local);
    const std::uint64_t local_name_bytes = get<std::uint16_t>(local + 26);
    const std::uint64_t begin = kLocalBytes + local_name_bytes + get<std::uint16_t>(local + 28);
    check(local, begin, "member");
    if (text(local + kLocalBytes, local_name_bytes) != name) fail_at("member with two names", local);
    check(local + begin, size, "member");
    return archive_.subspan(static_cast<std::size_t>(local + begin), static_cast<std::size_t>(size));
  }

  // Replaces the values that are "in zip64", in the order that APPNOTE 4.5.3 gives.
  void read_zip64_extra(std::uint64_t at, std::uint64_t bytes, std::uint64_t& size, std::uint64_t& stored,
                        std::uint64_t& local) const {
    while (bytes >= 4) {
      const std::uint16_t id = get<std::uint16_t>(at);
      const std::uint64_t field_bytes = get<std::uint16_t>(at + 2);
      if (field_bytes > bytes - 4) fail_at("extra field", at);
      if (id == 1) {
        std::uint64_t next = at + 4;
        for (std::uint64_t* value : {&size, &stored, &local}) {
          if (*value != kIn64) continue;
          if (next + 8 > at + 4 + field_bytes) fail_at("zip64 extra field", at);
          *value = get<std::uint64_t>(next);
          next += 8;
        }
        return;
      }
      at += 4 + field_bytes;
      bytes -= 4 + field_bytes;
    }
  }

  std::span<const std::byte> archive_;
  std::string_view source_;
};

}  // namespace

std::map<std::string_view, std::span<const std::byte>> read_zip(std::span<const std::byte> archive,
                                                                std::string_view source) {
  return ZipReader(archive, source).read();
}

}  // namespace triptych

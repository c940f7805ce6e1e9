// Reads integers from untrusted bytes. Every read is checked; one past the end throws OutOfBytes, which the
// decoders turn into an error that names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace triptych::codec {

struct OutOfBytes {};

class Bytes {
 public:
  explicit Bytes(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  std::size_t size() const noexcept { return bytes_.size(); }
  bool has(std::uint64_t offset, std::uint64_t n) const noexcept {
    return offset <= bytes_.size() && n <= bytes_.size() - offset;
  }
  std::span<const std::byte> part(std::uint64_t offset, std::uint64_t n) const {
    if (!has(offset, n)) throw OutOfBytes{};
    return bytes_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(n));
  }
  bool starts_with(std::uint64_t offset, std::string_view text) const noexcept {
    if (!has(offset, text.size())) return false;
    for (std::size_t i = 0; i < text.size(); ++i)
      if (bytes_[static_cast<std::size_t>(offset) + i] != static_cast<std::byte>(text[i])) return false;
    return true;
  }

  std::uint8_t u8(std::uint64_t offset) const { return static_cast<std::uint8_t>(integer(offset, 1, false)); }
  std::uint16_t u16(std::uint64_t offset, bool is_big) const {
    return static_cast<std::uint16_t>(integer(offset, 2, is_big));
  }
  std::uint32_t u32(std::uint64_t offset, bool is_big) const { return integer(offset, 4, is_big); }

 private:
  std::uint32_t integer(std::uint64_t offset, std::size_t n, bool is_big) const {
    const auto from = part(offset, n);
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < n; ++i)
      value = value << 8 | std::to_integer<std::uint32_t>(from[is_big ? i : n - 1 - i]);
    return value;
  }

  std::span<const std::byte> bytes_;
};

}  // namespace triptych::codec

// The table of a model's tokens: content -> id and id -> content. Ids may leave gaps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

class Vocab {
 public:
  struct Entry {
    std::string content;
    std::int32_t id = -1;
  };

  Vocab() = default;
  /// Throws Error(kInvalidFile) for ids out of range or used twice. Of two entries with the same content the
  /// later wins.
  Vocab(const std::vector<Entry>& entries, std::string_view where);

  /// The id, or -1.
  std::int32_t find(std::string_view content) const noexcept;
  /// The content; empty for an id without token.
  std::string_view content(std::int32_t id) const noexcept;
  bool has_id(std::int32_t id) const noexcept;
  /// One more than the largest id.
  std::int32_t id_limit() const noexcept { return static_cast<std::int32_t>(spans_.size()); }
  /// Number of tokens.
  std::size_t size() const noexcept { return size_; }
  std::size_t max_content_bytes() const noexcept { return max_content_bytes_; }

 private:
  struct Span {
    std::uint32_t begin = 0;
    std::uint32_t length = kNone;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  std::string text_;
  std::vector<Span> spans_;          // by id
  std::vector<std::int32_t> slots_;  // open addressing, -1 is free; size a power of two
  std::size_t size_ = 0;
  std::size_t max_content_bytes_ = 0;
};

}  // namespace triptych

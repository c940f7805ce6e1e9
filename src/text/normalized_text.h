// The text between two added tokens while it is being prepared: one string, on request with the byte of the
// input that each byte came from (needed to tell user text from template text after normalisation, and for
// Metaspace "first").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

struct NormalizedText {
  std::string text;
  std::vector<std::uint32_t> origin;  // per byte of text, when tracked
  bool tracked = false;
  std::size_t max_bytes = 0;  // a normalizer that expands further is refused

  /// `text` stands at byte `offset` of the input.
  static NormalizedText of(std::string_view text, std::size_t offset, bool tracked);
};

/// Builds the next state of a NormalizedText piece by piece.
class NormalizedBuilder {
 public:
  explicit NormalizedBuilder(NormalizedText& target) : target_(target) { text_.reserve(target.text.size()); }
  /// Copies bytes [begin, end) of the old text.
  void keep(std::size_t begin, std::size_t end);
  /// Adds new bytes that stand for the old byte at `at` (clamped into the old text). Throws
  /// Error(kInvalidFile) when the text outgrows its limit: a file can chain replacements that double it each
  /// time.
  void insert(std::string_view bytes, std::size_t at);
  /// Replaces the target's text by what was built.
  void finish();

 private:
  NormalizedText& target_;
  std::string text_;
  std::vector<std::uint32_t> origin_;
};

}  // namespace triptych

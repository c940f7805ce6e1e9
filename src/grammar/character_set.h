// Sets of Unicode characters as ranges, and their UTF-8 as ranges of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

namespace triptych {

/// Both ends are in it.
struct CharacterRange {
  char32_t first = 0;
  char32_t last = 0;
  friend bool operator==(const CharacterRange&, const CharacterRange&) = default;
};

/// Characters that UTF-8 can encode: surrogates are never in a set.
class CharacterSet {
 public:
  CharacterSet() = default;
  CharacterSet(std::initializer_list<CharacterRange> ranges);
  static CharacterSet all() { return {{0, 0x10FFFF}}; }

  /// Nothing when last < first.
  void add(char32_t first, char32_t last);
  void add(char32_t character) { add(character, character); }
  void add(const CharacterSet& other);
  CharacterSet complement() const;
  /// What is in both.
  CharacterSet intersection(const CharacterSet& other) const;
  bool contains(char32_t character) const;
  bool empty() const { return ranges().empty(); }
  /// Sorted, with gaps between them.
  std::span<const CharacterRange> ranges() const;

 private:
  mutable std::vector<CharacterRange> ranges_;
  mutable bool is_sorted_ = true;
};

/// A byte of each position lies in the range there.
struct ByteRange8 {
  std::uint8_t first = 0;
  std::uint8_t last = 0;
};

/// Calls `take` with the ranges of bytes, one a position, that together are the UTF-8 of a range. The range
/// holds no surrogates.
void for_each_utf8_sequence(CharacterRange range,
                            const std::function<void(std::span<const ByteRange8>)>& take);

}  // namespace triptych

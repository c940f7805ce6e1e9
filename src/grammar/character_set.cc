#include "grammar/character_set.h"

#include <algorithm>
#include <array>

#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr char32_t kLastCharacter = 0x10FFFF;
constexpr CharacterRange kSurrogates = {0xD800, 0xDFFF};

void take_range(CharacterRange range, const std::function<void(std::span<const ByteRange8>)>& take) {
  // Encodings of different length.
  for (const char32_t last : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xFFFF}})
    if (range.first <= last && last < range.last) {
      take_range({range.first, last}, take);
      take_range({last + 1, range.last}, take);
      return;
    }
  // Within a length the bytes behind the first that differs must run through all they can be.
  if (range.last > 0x7F)
    for (int n = 1; n < 4; ++n) {
      const char32_t low_bits = (char32_t{1} << (6 * n)) - 1;
      if ((range.first & ~low_bits) == (range.last & ~low_bits)) continue;
      if ((range.first & low_bits) != 0) {
        take_range({range.first, range.first | low_bits}, take);
        take_range({(range.first | low_bits) + 1, range.last}, take);
        return;
      }
      if ((range.last & low_bits) != low_bits) {
        take_range({range.first, (range.last & ~low_bits) - 1}, take);
        take_range({range.last & ~low_bits, range.last}, take);
        return;
      }
    }
  const std::string first = utf8::from_code_point(range.first);
  const std::string last = utf8::from_code_point(range.last);
  std::array<ByteRange8, 4> sequence;
  for (std::size_t i = 0; i < first.size(); ++i)
    sequence[i] = {static_cast<std::uint8_t>(first[i]), static_cast<std::uint8_t>(last[i])};
  take(std::span(sequence).first(first.size()));
}

}  // namespace

CharacterSet::CharacterSet(std::initializer_list<CharacterRange> list) {
  for (const CharacterRange& range : list) add(range.first, range.last);
  static_cast<void>(ranges());  // sorted now: constants are shared between threads
}

void CharacterSet::add(char32_t first, char32_t last) {
  last = std::min(last, kLastCharacter);
  if (last < first) return;
  if (first < kSurrogates.first && last > kSurrogates.last) {
    add(first, kSurrogates.first - 1);
    add(kSurrogates.last + 1, last);
    return;
  }
  if (first >= kSurrogates.first && first <= kSurrogates.last) first = kSurrogates.last + 1;
  if (last >= kSurrogates.first && last <= kSurrogates.last) last = kSurrogates.first - 1;
  if (last < first) return;
  ranges_.push_back({first, last});
  is_sorted_ = false;
}

void CharacterSet::add(const CharacterSet& other) {
  for (const CharacterRange& range : other.ranges()) add(range.first, range.last);
}

std::span<const CharacterRange> CharacterSet::ranges() const {
  if (is_sorted_) return ranges_;
  std::sort(ranges_.begin(), ranges_.end(),
            [](const CharacterRange& a, const CharacterRange& b) { return a.first < b.first; });
  std::size_t n = 0;
  for (const CharacterRange& range : ranges_)
    if (n > 0 && range.first <= ranges_[n - 1].last + 1)
      ranges_[n - 1].last = std::max(ranges_[n - 1].last, range.last);
    else
      ranges_[n++] = range;
  ranges_.resize(n);
  is_sorted_ = true;
  return ranges_;
}

CharacterSet CharacterSet::complement() const {
  CharacterSet out;
  char32_t next = 0;
  for (const CharacterRange& range : ranges()) {
    if (range.first > next) out.add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastCharacter) out.add(next, kLastCharacter);
  return out;
}

CharacterSet CharacterSet::intersection(const CharacterSet& other) const {
  CharacterSet out;
  const auto a = ranges();
  const auto b = other.ranges();
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    out.add(std::max(a[i].first, b[k].first), std::min(a[i].last, b[k].last));
    if (a[i].last < b[k].last)
      ++i;
    else
      ++k;
  }
  return out;
}

bool CharacterSet::contains(char32_t character) const {
  const auto all = ranges();
  const auto behind =
      std::upper_bound(all.begin(), all.end(), character,
                       [](char32_t c, const CharacterRange& range) { return c < range.first; });
  return behind != all.begin() && character <= (behind - 1)->last;
}

void for_each_utf8_sequence(CharacterRange range,
                            const std::function<void(std::span<const ByteRange8>)>& take) {
  take_range(range, take);
}

}  // namespace triptych

// SentencePiece's precompiled character map: a Darts-clone double array over the bytes of what is replaced,
// and a blob of replacements, each ended by a zero byte. Layout (little endian): u32 size of the array in
// bytes, the array, the blob. Source: sentencepiece 0.1.97 src/normalizer.cc (DecodePrecompiledCharsMap,
// NormalizePrefix); darts-clone's unit format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

class Charsmap {
 public:
  /// Takes the blob apart; every later look-up is bounds-checked. Throws Error(kInvalidFile).
  Charsmap(std::string_view blob, std::string_view where);

  /// What the *shortest* key that is a prefix of `text` is replaced by, if any (the reference's transform).
  std::optional<std::string_view> shortest(std::string_view text) const;
  /// The longest such key, as SentencePiece itself uses it; `consumed` is its length.
  std::optional<std::string_view> longest(std::string_view text, std::size_t& consumed) const;

 private:
  std::optional<std::string_view> find(std::string_view text, bool longest, std::size_t& consumed) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace triptych

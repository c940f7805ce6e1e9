// What words gave before in the same encode call. Direct-mapped: a new word takes the place of an old one, so
// no choice of words makes it slow, and its memory is bounded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/hash.h"

namespace triptych {

class WordCache {
 public:
  /// Appends the ids and returns true when the word is known.
  bool find(std::string_view word, std::vector<std::int32_t>& out) const {
    if (slots_.empty()) return false;
    const Slot& slot = slots_[hash_bytes(word, seed_) & (slots_.size() - 1)];
    if (slot.word != word) return false;
    out.insert(out.end(), slot.ids.begin(), slot.ids.end());
    return true;
  }

  void insert(std::string_view word, std::span<const std::int32_t> ids) {
    if (++inserted_ < kWarmUp) return;  // a short prompt is not worth the table
    if (slots_.empty()) slots_.resize(kSlots);
    Slot& slot = slots_[hash_bytes(word, seed_) & (kSlots - 1)];
    slot.word = word;
    slot.ids.assign(ids.begin(), ids.end());
  }

 private:
  struct Slot {
    std::string word;
    std::vector<std::int32_t> ids;
  };
  static constexpr std::size_t kSlots = 1 << 14;
  static constexpr std::size_t kWarmUp = 64;

  std::uint64_t seed_ = hash_seed();
  std::vector<Slot> slots_;
  std::size_t inserted_ = 0;
};

}  // namespace triptych

// The two look-up tables of a BPE: merges by pair, and pairs of characters that merges can join.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "text/bpe.h"
#include "text/hash.h"
#include "unicode/utf8.h"

namespace triptych {

// (left, right) -> (rank, product), open addressing.
class MergeTable {
 public:
  static constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
  struct Hit {
    std::uint32_t rank = kNoRank;
    std::int32_t product = -1;
  };

  explicit MergeTable(const std::vector<BpeMerge>& merges) : seed_(hash_seed()) {
    std::size_t capacity = 16;
    while (capacity < 2 * merges.size()) capacity *= 2;
    slots_.resize(capacity);
    for (const BpeMerge& m : merges) {
      Slot& slot = slots_[place(key_of(m.left, m.right))];
      slot.key = key_of(m.left, m.right);
      slot.hit = {m.rank, m.product};
    }
  }

  Hit find(std::int32_t left, std::int32_t right) const noexcept {
    return slots_[place(key_of(left, right))].hit;
  }

 private:
  struct Slot {
    std::uint64_t key = kFree;
    Hit hit;
  };
  static constexpr std::uint64_t kFree = ~0ULL;

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) noexcept {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
           static_cast<std::uint32_t>(right);
  }
  std::size_t place(std::uint64_t key) const noexcept {
    std::size_t slot = hash_u64(key, seed_) & (slots_.size() - 1);
    while (slots_[slot].key != key && slots_[slot].key != kFree) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  std::uint64_t seed_;
  std::vector<Slot> slots_;
};

// Pairs of neighbouring characters that occur inside some merge's product. Between two characters that are no
// such pair no merge can ever reach across, so a text may be cut there without changing its ids.
class CharacterPairs {
 public:
  void add(std::string_view token) {
    for (std::size_t i = 0; i < token.size();) {
      const char32_t left = utf8::next(token, i);
      if (i >= token.size()) return;
      std::size_t after = i;
      insert(left, utf8::next(token, after));
    }
  }
  bool contains(char32_t left, char32_t right) const noexcept {
    if (left < 128 && right < 128) return ascii_[left * 128 + right];
    if (slots_.empty()) return false;
    const std::uint64_t key = key_of(left, right);
    std::size_t slot = hash_u64(key, seed_) & (slots_.size() - 1);
    while (slots_[slot] != 0) {
      if (slots_[slot] == key) return true;
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return false;
  }

 private:
  static std::uint64_t key_of(char32_t left, char32_t right) noexcept {
    return (static_cast<std::uint64_t>(left) << 32 | right) + 1;
  }
  void insert(char32_t left, char32_t right) {
    if (left < 128 && right < 128) {
      ascii_[left * 128 + right] = true;
      return;
    }
    if (2 * (size_ + 1) > slots_.size()) grow();
    put(key_of(left, right));
  }
  void put(std::uint64_t key) {
    std::size_t slot = hash_u64(key, seed_) & (slots_.size() - 1);
    while (slots_[slot] != 0 && slots_[slot] != key) slot = (slot + 1) & (slots_.size() - 1);
    if (slots_[slot] == 0) ++size_;
    slots_[slot] = key;
  }
  void grow() {
    std::vector<std::uint64_t> old(std::max<std::size_t>(64, slots_.size() * 2), 0);
    old.swap(slots_);
    size_ = 0;
    for (const std::uint64_t key : old)
      if (key != 0) put(key);
  }

  std::uint64_t seed_ = hash_seed();
  std::vector<std::uint64_t> slots_;
  std::size_t size_ = 0;
  std::array<bool, 128 * 128> ascii_{};
};

}  // namespace triptych

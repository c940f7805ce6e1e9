#include "tensor/weight_table.h"

#include <sys/mman.h>
#include <unistd.h>

#include <iterator>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tensor/missing_tensor.h"

namespace triptych {

void release_rows(const WeightEntry& entry, std::int64_t begin, std::int64_t end) noexcept {
  if (!entry.is_mapped || entry.view.rank() == 0 || begin >= end) return;
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto row_bytes =
      static_cast<std::uintptr_t>(entry.view.row_stride()) * size_bytes(entry.view.dtype());
  const auto data = reinterpret_cast<std::uintptr_t>(entry.view.cdata());
  const std::uintptr_t first = data + static_cast<std::uintptr_t>(begin) * row_bytes;
  const std::uintptr_t last = entry.view.rank() == 1 ? data + entry.view.size_bytes()
                                                     : data + static_cast<std::uintptr_t>(end) * row_bytes;
  // Outwards: the edge pages of a row that was read are read again at worst.
  const std::uintptr_t from = first / page * page;
  const std::uintptr_t to = (last + page - 1) / page * page;
  ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

void advise(const WeightEntry& entry, ReadPattern pattern) noexcept {
  if (!entry.is_mapped) return;
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto data = reinterpret_cast<std::uintptr_t>(entry.view.cdata());
  // Inwards: neighbours keep theirs.
  const std::uintptr_t from = (data + page - 1) / page * page;
  const std::uintptr_t to = (data + entry.view.size_bytes()) / page * page;
  if (from >= to) return;
  auto* const begin = reinterpret_cast<void*>(from);
  const bool whole = pattern == ReadPattern::kWhole;
  ::madvise(begin, to - from, whole ? MADV_NORMAL : MADV_RANDOM);
#if defined(MADV_HUGEPAGE)
  ::madvise(begin, to - from, whole ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif
}

void release(const WeightEntry& entry) noexcept {
  if (entry.view.rank() > 0) release_rows(entry, 0, entry.view.dim(0));
}

void WeightTable::mark_mapped(std::span<const std::byte> mapping) noexcept {
  for (WeightEntry& entry : entries_) {
    const auto* data = static_cast<const std::byte*>(entry.view.cdata());
    entry.is_mapped =
        data >= mapping.data() && data + entry.view.size_bytes() <= mapping.data() + mapping.size();
  }
}

const WeightEntry& WeightTable::add(WeightEntry entry) {
  if (const WeightEntry* known = find(entry.name))
    fail(ErrorCode::kInvalidFile, "tensor \"{}\" occurs twice: in {} and in {}", entry.name, known->file,
         entry.file);
  entries_.push_back(std::move(entry));
  const auto place = std::prev(entries_.end());
  index_.emplace(place->name, place);
  return *place;
}

void WeightTable::merge(WeightTable other) {
  for (const WeightEntry& entry : other.entries_)
    if (const WeightEntry* known = find(entry.name))
      fail(ErrorCode::kInvalidFile, "tensor \"{}\" occurs twice: in {} and in {}", entry.name, known->file,
           entry.file);
  index_.merge(other.index_);  // list nodes and map nodes move; keys and iterators stay valid
  entries_.splice(entries_.end(), other.entries_);
}

const WeightEntry* WeightTable::find(std::string_view name) const noexcept {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &*it->second;
}

const WeightEntry& WeightTable::at(std::string_view name) const {
  const WeightEntry* entry = find(name);
  if (entry == nullptr)
    fail(ErrorCode::kNotFound, "tensor \"{}\" is missing from the checkpoint{}", name,
         what_is_there(*this, name));
  return *entry;
}

void WeightTable::rename(std::string_view from, std::string to) {
  const auto it = index_.find(from);
  if (it == index_.end()) fail(ErrorCode::kNotFound, "tensor \"{}\" is missing from the checkpoint", from);
  if (from == to) return;
  if (contains(to))
    fail(ErrorCode::kInvalidFile, "tensor \"{}\" renamed to \"{}\", which exists already", from, to);
  const auto place = it->second;
  index_.erase(it);
  place->name = std::move(to);
  index_.emplace(place->name, place);
}

void WeightTable::rename_all(FunctionRef<std::string(const std::string& name)> new_name) {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  std::unordered_set<std::string_view> seen;
  for (const WeightEntry& entry : entries_) names.push_back(new_name(entry.name));
  auto name = names.cbegin();
  for (const WeightEntry& entry : entries_) {
    if (!seen.insert(*name).second)
      fail(ErrorCode::kInvalidFile, "tensor \"{}\" renamed to \"{}\", which exists already", entry.name,
           *name);
    ++name;
  }
  index_.clear();
  auto next = names.begin();
  for (auto place = entries_.begin(); place != entries_.end(); ++place, ++next) {
    place->name = std::move(*next);
    index_.emplace(place->name, place);
  }
}

bool WeightTable::erase(std::string_view name) {
  const auto it = index_.find(name);
  if (it == index_.end()) return false;
  const auto place = it->second;
  index_.erase(it);
  entries_.erase(place);
  return true;
}

std::size_t WeightTable::erase_if(FunctionRef<bool(const WeightEntry&)> predicate) {
  std::size_t n_erased = 0;
  for (auto place = entries_.begin(); place != entries_.end();) {
    if (!predicate(*place)) {
      ++place;
      continue;
    }
    index_.erase(place->name);
    place = entries_.erase(place);
    ++n_erased;
  }
  return n_erased;
}

std::size_t WeightTable::total_bytes() const noexcept {
  std::size_t total = 0;
  for (const WeightEntry& entry : entries_) total += entry.view.size_bytes();
  return total;
}

}  // namespace triptych

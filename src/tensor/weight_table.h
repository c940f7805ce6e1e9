// The tensors of a checkpoint by name. It knows no model: names are as published until someone renames them.
// Iteration is in file order. References to entries stay valid until that entry is erased.
#pragma once

#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/function_ref.h"
#include "tensor/tensor.h"

namespace triptych {

struct WeightEntry {
  std::string name;
  TensorView view;                    // read-only memory
  std::shared_ptr<const void> owner;  // keeps the memory of `view` alive
  std::string file;                   // where it came from, for messages
  bool is_mapped = false;             // `view` lies in a private mapping of a file, read-only
};

/// How a mapped tensor will be read; a hint, which the last word decides.
enum class ReadPattern {
  kWhole,          // from end to end, again and again: huge pages, read ahead
  kScatteredRows,  // rows here and there: the pages between them need not become resident
};
/// Nothing happens to a tensor that does not lie in a mapping. Pages shared with neighbours keep their
/// pattern.
void advise(const WeightEntry& entry, ReadPattern pattern) noexcept;

/// Rows [begin, end) were read and are not needed soon: when they lie in a mapping, their pages leave this
/// process's memory. They stay readable. Pages shared with neighbouring rows may stay.
void release_rows(const WeightEntry& entry, std::int64_t begin, std::int64_t end) noexcept;
/// The same for all rows.
void release(const WeightEntry& entry) noexcept;

class WeightTable {
 public:
  WeightTable() = default;
  WeightTable(WeightTable&&) = default;
  WeightTable& operator=(WeightTable&&) = default;

  /// Throws Error(kInvalidFile) that names both files when the name is taken.
  const WeightEntry& add(WeightEntry entry);
  /// Moves all entries of `other` to the end.
  void merge(WeightTable other);

  /// Sets is_mapped of the entries that lie in `mapping`.
  void mark_mapped(std::span<const std::byte> mapping) noexcept;

  /// nullptr when absent.
  const WeightEntry* find(std::string_view name) const noexcept;
  /// Throws Error(kNotFound) that names the tensor.
  const WeightEntry& at(std::string_view name) const;
  bool contains(std::string_view name) const noexcept { return find(name) != nullptr; }

  /// Throws when `from` is absent (kNotFound) or `to` is taken (kInvalidFile).
  void rename(std::string_view from, std::string to);
  /// Renames every entry to new_name(old name). Throws Error(kInvalidFile) when two names become one; nothing
  /// changes then.
  void rename_all(FunctionRef<std::string(const std::string& name)> new_name);
  /// False when absent.
  bool erase(std::string_view name);
  /// Number of entries erased.
  std::size_t erase_if(FunctionRef<bool(const WeightEntry&)> predicate);

  std::size_t size() const noexcept { return entries_.size(); }
  bool empty() const noexcept { return entries_.empty(); }
  std::list<WeightEntry>::const_iterator begin() const noexcept { return entries_.begin(); }
  std::list<WeightEntry>::const_iterator end() const noexcept { return entries_.end(); }
  /// Bytes of all elements.
  std::size_t total_bytes() const noexcept;

 private:
  std::list<WeightEntry> entries_;
  std::unordered_map<std::string_view, std::list<WeightEntry>::iterator> index_;  // keys point into entries_
};

}  // namespace triptych

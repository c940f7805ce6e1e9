#include "text/vocab.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "text/hash.h"

namespace triptych {
namespace {

// Ids are indexes: a file of a few tokens must not ask for a table of billions.
constexpr std::int64_t kIdFloor = 1 << 20;
constexpr std::int64_t kIdsPerToken = 8;

}  // namespace

Vocab::Vocab(const std::vector<Entry>& entries, std::string_view where) {
  const std::int64_t limit =
      std::min<std::int64_t>(std::max(kIdFloor, kIdsPerToken * static_cast<std::int64_t>(entries.size())),
                             std::numeric_limits<std::int32_t>::max());
  std::int32_t most = -1;
  std::size_t bytes = 0;
  for (const Entry& entry : entries) {
    if (entry.id < 0 || entry.id >= limit)
      fail(ErrorCode::kInvalidFile, "{}: token \"{}\" has id {}, expected one in [0, {})", where,
           entry.content, entry.id, limit);
    most = std::max(most, entry.id);
    bytes += entry.content.size();
  }
  if (bytes >= kNone) fail(ErrorCode::kInvalidFile, "{}: a vocabulary of {} bytes", where, bytes);
  std::size_t capacity = 16;
  while (capacity < 2 * entries.size()) capacity *= 2;
  slots_.assign(capacity, -1);
  spans_.resize(static_cast<std::size_t>(most + 1));
  text_.reserve(bytes);
  const std::uint64_t seed = hash_seed();
  for (const Entry& entry : entries) {
    auto& span = spans_[static_cast<std::size_t>(entry.id)];
    if (span.length != kNone) {
      if (content(entry.id) == entry.content) continue;
      fail(ErrorCode::kInvalidFile, "{}: tokens \"{}\" and \"{}\" both have id {}", where, content(entry.id),
           entry.content, entry.id);
    }
    std::size_t slot = hash_bytes(entry.content, seed) & (capacity - 1);
    while (slots_[slot] >= 0 && content(slots_[slot]) != entry.content) slot = (slot + 1) & (capacity - 1);
    if (slots_[slot] < 0) ++size_;
    span = {static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(entry.content.size())};
    text_.append(entry.content);
    slots_[slot] = entry.id;
    max_content_bytes_ = std::max(max_content_bytes_, entry.content.size());
  }
}

std::int32_t Vocab::find(std::string_view wanted) const noexcept {
  if (slots_.empty()) return -1;
  std::size_t slot = hash_bytes(wanted, hash_seed()) & (slots_.size() - 1);
  while (slots_[slot] >= 0) {
    if (content(slots_[slot]) == wanted) return slots_[slot];
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return -1;
}

std::string_view Vocab::content(std::int32_t id) const noexcept {
  if (!has_id(id)) return {};
  const Span span = spans_[static_cast<std::size_t>(id)];
  return std::string_view(text_).substr(span.begin, span.length);
}

bool Vocab::has_id(std::int32_t id) const noexcept {
  return id >= 0 && static_cast<std::size_t>(id) < spans_.size() &&
         spans_[static_cast<std::size_t>(id)].length != kNone;
}

}  // namespace triptych

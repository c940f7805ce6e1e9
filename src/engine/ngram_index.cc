#include "engine/ngram_index.h"

#include <algorithm>

#include "base/error.h"

namespace triptych {
namespace {

constexpr std::size_t kFirstBuckets = 256;

}  // namespace

NgramIndex::NgramIndex(int min_n, int max_n) : min_n_(min_n), max_n_(max_n), latest_(kFirstBuckets, -1) {
  TRIPTYCH_CHECK(1 <= min_n && min_n <= max_n, "[ngram_index] {} to {} tokens", min_n, max_n);
}

void NgramIndex::reserve(std::size_t n_tokens) {
  tokens_.reserve(n_tokens);
  previous_.reserve(n_tokens);
}

bool NgramIndex::holds_ngram(std::int64_t last) const {
  if (last + 1 < min_n_) return false;
  const auto end = tokens_.begin() + last + 1;
  return std::find(end - min_n_, end, kNoToken) == end;
}

// FNV-1a over the ids (Fowler, Noll, Vo), spread over the upper bits, of which the bucket takes the lowest.
std::size_t NgramIndex::bucket_of(std::int64_t last) const {
  std::uint64_t hash = 14695981039346656037ULL;
  for (std::int64_t i = last + 1 - min_n_; i <= last; ++i) {
    hash ^= static_cast<std::uint32_t>(tokens_[static_cast<std::size_t>(i)]);
    hash *= 1099511628211ULL;
  }
  hash ^= hash >> 32;
  return static_cast<std::size_t>(hash) & (latest_.size() - 1);
}

void NgramIndex::note(std::int64_t last) {
  std::int32_t before = -1;
  if (holds_ngram(last)) {
    std::int32_t& head = latest_[bucket_of(last)];
    before = head;
    head = static_cast<std::int32_t>(last);
  }
  previous_[static_cast<std::size_t>(last)] = before;
}

void NgramIndex::grow() {
  latest_.assign(latest_.size() * 2, -1);
  for (std::int64_t i = 0; i + 1 < size(); ++i) note(i);
}

// The last tokens themselves are noted when another follows, so that a lookup does not find them.
void NgramIndex::append(std::int32_t id) {
  const std::int64_t before = size() - 1;
  tokens_.push_back(id < 0 ? kNoToken : id);
  previous_.push_back(-1);
  if (before >= 0) note(before);
  if (tokens_.size() > latest_.size()) grow();
}

NgramIndex::Match NgramIndex::find() const {
  const std::int64_t last = size() - 1;
  Match out;
  if (last < 0 || !holds_ngram(last)) return out;
  std::int32_t place = latest_[bucket_of(last)];
  for (int i = 0; i < kMaxPlaces && place >= 0; ++i, place = previous_[static_cast<std::size_t>(place)]) {
    int n = 0;
    while (n < max_n_ && n <= place) {
      const std::int32_t id = tokens_[static_cast<std::size_t>(last - n)];
      if (id == kNoToken || id != tokens_[static_cast<std::size_t>(place - n)]) break;
      ++n;
    }
    if (n < min_n_ || n <= out.n) continue;
    out = {n, std::int64_t{place} + 1};
    if (n == max_n_) break;
  }
  return out;
}

void NgramIndex::continuation(const Match& match, int n_tokens, std::vector<std::int32_t>& out) const {
  if (match.n == 0) return;
  const std::int64_t period = size() - match.following;
  for (int i = 0; i < n_tokens; ++i) {
    const std::int32_t id = tokens_[static_cast<std::size_t>(match.following + i % period)];
    if (id == kNoToken) return;
    out.push_back(id);
  }
}

}  // namespace triptych

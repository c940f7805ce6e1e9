#include "engine/vision_embedding_cache.h"

#include <utility>

#include "backend/memory.h"
#include "base/digest.h"
#include "base/error.h"

namespace triptych {
namespace {

// What the rows depend on: the item, and the text that a Q-Former reads with it.
Fingerprint key_of(const MediaItem& item) {
  if (item.fingerprint.empty() || item.text_ids.empty()) return item.fingerprint;
  Digest digest;
  digest.add_value(item.fingerprint);
  digest.add(std::as_bytes(std::span(item.text_ids)));
  return digest.finish();
}

Tensor as_operand(Backend& backend, const VisionRows& rows) {
  Tensor out(DType::kF32, {rows.n_rows(), rows.n_columns()});
  rows.unpack(out);
  return upload(backend, std::move(out));
}

std::optional<VisionRows> pack_operand(Backend& backend, const TensorView& rows, VisionRowsDType dtype) {
  if (rows.kind() == MemoryKind::kHost) return VisionRows::pack(rows, dtype);
  Tensor host(rows.dtype(), rows.shape());
  TensorView to = host;
  backend.download(rows, to);
  return VisionRows::pack(host, dtype);
}

}  // namespace

VisionEmbeddingCache::VisionEmbeddingCache(Backend& backend, std::size_t max_bytes,
                                           const VisionCacheOptions& options)
    : backend_(backend), max_bytes_(max_bytes), options_(options) {
  if (options_.max_items < 1)
    fail(ErrorCode::kInvalidArgument, "visual cache: expected room for a picture, got {}",
         options_.max_items);
  if (!options_.directory.empty())
    disk_ = std::make_unique<VisionRowsDirectory>(VisionRowsDirectoryOptions{
        .directory = options_.directory, .max_bytes = options_.directory_max_bytes});
}

bool VisionEmbeddingCache::contains(const MediaItem& item) const {
  const Fingerprint key = key_of(item);
  if (key.empty() || !enabled()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (by_key_.contains(key)) return true;
  }
  return disk_ != nullptr && disk_->contains(key, options_.dtype);
}

std::optional<VisionEmbeddingCache::Entry> VisionEmbeddingCache::look_up(const Fingerprint& key,
                                                                         std::int64_t n_rows) {
  {
    const std::lock_guard lock(mutex_);
    ++stats_.n_queries;
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      ++stats_.n_hits_memory;
      stats_.saved_ms += entries_.front().encode_ms;
      return entries_.front();
    }
  }
  if (disk_ == nullptr) return std::nullopt;
  auto read = disk_->find({.key = key, .n_rows = n_rows, .dtype = options_.dtype});
  if (!read) return std::nullopt;
  Entry entry{key, std::make_shared<const VisionRows>(std::move(read->rows)), read->encode_ms};
  const std::lock_guard lock(mutex_);
  ++stats_.n_hits_disk;
  stats_.saved_ms += entry.encode_ms;
  keep(entry);
  return entry;
}

std::optional<Tensor> VisionEmbeddingCache::find(const MediaItem& item) {
  const Fingerprint key = key_of(item);
  if (key.empty() || !enabled()) return std::nullopt;
  const auto entry = look_up(key, item.plan.n_tokens);
  if (!entry) return std::nullopt;
  return as_operand(backend_, *entry->rows);
}

void VisionEmbeddingCache::put(const MediaItem& item, const TensorView& rows, double encode_ms) {
  const Fingerprint key = key_of(item);
  if (key.empty() || !enabled()) return;
  {
    const std::lock_guard lock(mutex_);
    if (by_key_.contains(key)) return;
  }
  // Without a place to go there is no need to copy.
  if (disk_ == nullptr && options_.dtype == VisionRowsDType::kF32 && rows.size_bytes() > max_bytes_) return;
  std::optional<VisionRows> packed = pack_operand(backend_, rows, options_.dtype);
  if (!packed) return;
  Entry entry{key, std::make_shared<const VisionRows>(std::move(*packed)), encode_ms};
  if (disk_ != nullptr) disk_->put(key, entry.rows, encode_ms);
  const std::lock_guard lock(mutex_);
  keep(std::move(entry));
}

// Under the lock.
void VisionEmbeddingCache::keep(Entry entry) {
  const std::size_t n_bytes = entry.rows->size_bytes();
  if (n_bytes > max_bytes_ || by_key_.contains(entry.key)) return;
  while (stats_.memory_bytes + n_bytes > max_bytes_ || stats_.n_items >= options_.max_items) {
    stats_.memory_bytes -= entries_.back().rows->size_bytes();
    --stats_.n_items;
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
  entries_.push_front(std::move(entry));
  try {
    by_key_[entries_.front().key] = entries_.begin();
  } catch (...) {
    entries_.pop_front();
    throw;
  }
  stats_.memory_bytes += n_bytes;
  ++stats_.n_items;
}

std::size_t VisionEmbeddingCache::size_bytes() const {
  const std::lock_guard lock(mutex_);
  return stats_.memory_bytes;
}

VisionCacheStats VisionEmbeddingCache::stats() const {
  std::unique_lock lock(mutex_);
  VisionCacheStats out = stats_;
  lock.unlock();
  if (disk_ != nullptr) out.disk = disk_->stats();
  return out;
}

void VisionEmbeddingCache::flush() {
  if (disk_ != nullptr) disk_->flush();
}

}  // namespace triptych

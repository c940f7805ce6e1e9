// What the tower made of pictures seen before, so that the next question about one need not encode it again:
// in memory, and, with a folder, on a disk for the next start of the program (the visual cache).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "engine/vision_rows.h"
#include "engine/vision_rows_directory.h"
#include "models/model.h"
#include "tensor/tensor.h"

namespace triptych {

struct VisionCacheOptions {
  std::int64_t max_items = 2048;  // pictures in memory
  VisionRowsDType dtype = VisionRowsDType::kF32;
  std::filesystem::path directory = {};  // empty: nothing on a disk
  std::uint64_t directory_max_bytes = std::uint64_t{4} << 30;
};

/// Counted since the cache was made, but for what it holds now.
struct VisionCacheStats {
  std::int64_t n_queries = 0;  // pictures whose rows were wanted
  std::int64_t n_hits_memory = 0;
  std::int64_t n_hits_disk = 0;
  double saved_ms = 0;  // that the tower took for the rows that were found
  std::int64_t n_items = 0;
  std::size_t memory_bytes = 0;
  VisionRowsDirectory::Stats disk;
};

/// A query comes from the engine's thread, contains() from any.
class VisionEmbeddingCache {
 public:
  /// Holds at most max_bytes of rows in memory; 0 keeps nothing there. Borrows the backend, whose operands
  /// rows are. Throws Error for a folder that cannot be used.
  VisionEmbeddingCache(Backend& backend, std::size_t max_bytes, const VisionCacheOptions& options = {});

  /// Rows [n_tokens, W] of an item with this content, an operand. Nothing when there are none.
  std::optional<Tensor> find(const MediaItem& item);
  /// Whether find() is likely to give something. Counts as no query.
  bool contains(const MediaItem& item) const;
  /// Keeps a copy of rows that are operands, which took the tower `encode_ms`; the ones not used for longest
  /// make room. Items without a fingerprint are not kept.
  void put(const MediaItem& item, const TensorView& rows, double encode_ms = 0);

  bool enabled() const noexcept { return max_bytes_ > 0 || disk_ != nullptr; }
  std::size_t size_bytes() const;
  VisionCacheStats stats() const;
  /// Waits until everything is on the disk that is to be there.
  void flush();

 private:
  struct Entry {
    Fingerprint key;
    std::shared_ptr<const VisionRows> rows;
    double encode_ms = 0;
  };
  void keep(Entry entry);
  std::optional<Entry> look_up(const Fingerprint& key, std::int64_t n_rows);

  Backend& backend_;
  std::size_t max_bytes_;
  VisionCacheOptions options_;
  std::unique_ptr<VisionRowsDirectory> disk_;
  mutable std::mutex mutex_;  // of what follows
  std::list<Entry> entries_;  // used last first
  std::unordered_map<Fingerprint, std::list<Entry>::iterator, FingerprintHash> by_key_;
  VisionCacheStats stats_;  // disk: left empty
};

}  // namespace triptych

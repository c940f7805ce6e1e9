// Rows by content: what is found, who makes room, and what is there after a restart.
#include "engine/vision_embedding_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

MediaItem item(std::uint64_t content, std::vector<std::int32_t> text_ids = {}) {
  MediaItem out;
  out.plan.n_tokens = 2;
  out.fingerprint = {content, 0};
  out.text_ids = std::move(text_ids);
  return out;
}

Tensor rows(float value) {
  Tensor out(DType::kF32, {2, 2});
  std::fill(out.f32(), out.f32() + 4, value);
  return out;
}

class VisionEmbeddingCacheTest : public testing::Test {
 protected:
  VisionEmbeddingCacheTest() {
    std::string name = (fs::temp_directory_path() / "triptych-rows-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
  }
  ~VisionEmbeddingCacheTest() override { fs::remove_all(folder_); }

  Backend& backend() { return *backend_; }
  VisionCacheOptions on_disk(VisionRowsDType dtype = VisionRowsDType::kF32) const {
    return {.dtype = dtype, .directory = folder_};
  }
  // The value of all rows, or nothing.
  static std::optional<float> value(VisionEmbeddingCache& cache, const MediaItem& wanted) {
    const auto found = cache.find(wanted);
    if (!found) return std::nullopt;
    EXPECT_EQ(found->shape(), (Shape{2, 2}));
    for (int i = 1; i < 4; ++i) EXPECT_EQ(found->f32()[i], found->f32()[0]);
    return found->f32()[0];
  }

  fs::path folder_;
  std::unique_ptr<Backend> backend_ = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
};

TEST_F(VisionEmbeddingCacheTest, FindsRowsByPictureAndText) {
  VisionEmbeddingCache cache(backend(), 64);
  cache.put(item(1, {7}), rows(1).view());
  EXPECT_EQ(value(cache, item(1, {7})), 1.0F);
  EXPECT_EQ(value(cache, item(1, {8})), std::nullopt) << "a Q-Former reads the text";
  EXPECT_EQ(value(cache, item(2, {7})), std::nullopt);
  EXPECT_TRUE(cache.contains(item(1, {7})));
  EXPECT_FALSE(cache.contains(item(1)));
  cache.put(MediaItem(), rows(2).view());
  EXPECT_EQ(cache.find(MediaItem()), std::nullopt) << "unknown content equals nothing";
  EXPECT_EQ(cache.stats().n_queries, 3);
}

// Two contents whose first 128 bits are the same are two contents.
TEST_F(VisionEmbeddingCacheTest, TellsPicturesApartByAllBits) {
  VisionEmbeddingCache cache(backend(), 64);
  MediaItem other = item(1);
  other.fingerprint.upper_high = 1;
  cache.put(item(1), rows(1).view());
  cache.put(other, rows(2).view());
  EXPECT_EQ(value(cache, item(1)), 1.0F);
  EXPECT_EQ(value(cache, other), 2.0F);
}

TEST_F(VisionEmbeddingCacheTest, TheRowsNotUsedForLongestMakeRoom) {
  VisionEmbeddingCache cache(backend(), 2 * 16);
  cache.put(item(1), rows(1).view());
  cache.put(item(2), rows(2).view());
  EXPECT_EQ(value(cache, item(1)), 1.0F);
  cache.put(item(3), rows(3).view());
  EXPECT_EQ(value(cache, item(1)), 1.0F);
  EXPECT_EQ(value(cache, item(2)), std::nullopt);
  EXPECT_EQ(cache.size_bytes(), 32U);
  VisionEmbeddingCache small(backend(), 15);
  small.put(item(1), rows(1).view());
  EXPECT_EQ(small.size_bytes(), 0U);
}

TEST_F(VisionEmbeddingCacheTest, HoldsNoMorePicturesThanAskedFor) {
  VisionEmbeddingCache cache(backend(), 1 << 20, {.max_items = 2});
  for (int i = 1; i <= 3; ++i)
    cache.put(item(static_cast<std::uint64_t>(i)), rows(static_cast<float>(i)).view());
  EXPECT_EQ(cache.stats().n_items, 2);
  EXPECT_EQ(value(cache, item(1)), std::nullopt);
  EXPECT_EQ(value(cache, item(3)), 3.0F);
  EXPECT_THROW(VisionEmbeddingCache(backend(), 1, {.max_items = 0}), Error);
}

TEST_F(VisionEmbeddingCacheTest, AnotherCacheFindsOnTheDiskWhatThisOneMade) {
  for (const VisionRowsDType dtype : {VisionRowsDType::kF32, VisionRowsDType::kInt8}) {
    {
      VisionEmbeddingCache cache(backend(), 64, on_disk(dtype));
      cache.put(item(1), rows(2).view(), 30.0);
    }
    VisionEmbeddingCache later(backend(), 64, on_disk(dtype));
    EXPECT_TRUE(later.contains(item(1)));
    EXPECT_EQ(value(later, item(1)), 2.0F);
    EXPECT_EQ(value(later, item(1)), 2.0F) << "now from memory";
    EXPECT_EQ(value(later, item(2)), std::nullopt);
    const VisionCacheStats stats = later.stats();
    EXPECT_EQ(stats.n_queries, 3);
    EXPECT_EQ(stats.n_hits_disk, 1);
    EXPECT_EQ(stats.n_hits_memory, 1);
    EXPECT_EQ(stats.saved_ms, 60.0);
    EXPECT_GT(stats.disk.read_bytes, 112U);
  }
}

TEST_F(VisionEmbeddingCacheTest, WithoutMemoryTheDiskIsEnough) {
  VisionEmbeddingCache cache(backend(), 0, on_disk());
  cache.put(item(1), rows(2).view());
  cache.flush();
  EXPECT_EQ(value(cache, item(1)), 2.0F);
  EXPECT_EQ(cache.size_bytes(), 0U);
}

TEST_F(VisionEmbeddingCacheTest, ADamagedFileIsEncodedAgainAndReplaced) {
  VisionEmbeddingCache cache(backend(), 0, on_disk());
  cache.put(item(1), rows(2).view());
  cache.flush();
  const fs::path file = fs::directory_iterator(folder_)->path();
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(120).put('x');
  EXPECT_EQ(value(cache, item(1)), std::nullopt);
  EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(cache.stats().disk.n_refused, 1);
  cache.put(item(1), rows(2).view());
  cache.flush();
  EXPECT_EQ(value(cache, item(1)), 2.0F);
}

}  // namespace
}  // namespace triptych

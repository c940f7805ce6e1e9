// Rows by content: what is found, and who makes room.
#include "engine/vision_embedding_cache.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"

namespace triptych {
namespace {

MediaItem item(std::uint64_t content, std::vector<std::int32_t> text_ids = {}) {
  MediaItem out;
  out.fingerprint = {content, 0};
  out.text_ids = std::move(text_ids);
  return out;
}

Tensor rows(float value) {
  Tensor out(DType::kF32, {2, 2});
  std::fill(out.f32(), out.f32() + 4, value);
  return out;
}

TEST(VisionEmbeddingCache, FindsRowsByPictureAndText) {
  const auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  VisionEmbeddingCache cache(*backend, 64);
  cache.put(item(1, {7}), rows(1).view());
  ASSERT_NE(cache.find(item(1, {7})), nullptr);
  EXPECT_EQ(cache.find(item(1, {7}))->f32()[3], 1.0F);
  EXPECT_EQ(cache.find(item(1, {8})), nullptr) << "a Q-Former reads the text";
  EXPECT_EQ(cache.find(item(2, {7})), nullptr);
  cache.put(MediaItem(), rows(2).view());
  EXPECT_EQ(cache.find(MediaItem()), nullptr) << "unknown content equals nothing";
}

TEST(VisionEmbeddingCache, TheRowsNotUsedForLongestMakeRoom) {
  const auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  VisionEmbeddingCache cache(*backend, 2 * 16);
  cache.put(item(1), rows(1).view());
  cache.put(item(2), rows(2).view());
  EXPECT_NE(cache.find(item(1)), nullptr);
  cache.put(item(3), rows(3).view());
  EXPECT_NE(cache.find(item(1)), nullptr);
  EXPECT_EQ(cache.find(item(2)), nullptr);
  EXPECT_EQ(cache.size_bytes(), 32U);
  VisionEmbeddingCache small(*backend, 15);
  small.put(item(1), rows(1).view());
  EXPECT_EQ(small.size_bytes(), 0U);
}

}  // namespace
}  // namespace triptych

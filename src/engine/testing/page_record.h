// A key/value cache without keys and values, which notes what is done with its pages.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "engine/block_pool.h"

namespace triptych::test {

class PageRecord final : public KvCache {
 public:
  explicit PageRecord(int n_pages)
      : geometry_{
            .n_layers = 1, .n_kv_heads = 1, .head_dim = 1, .page_tokens = kBlockTokens, .n_pages = n_pages} {}

  const KvGeometry& geometry() const noexcept override { return geometry_; }
  std::size_t bytes() const noexcept override { return 0; }
  void release_pages(std::span<const std::int32_t> pages) noexcept override {
    released.insert(released.end(), pages.begin(), pages.end());
  }
  void copy_page(std::int32_t from, std::int32_t to) override {
    if (fails_to_copy) fail(ErrorCode::kOutOfMemory, "no memory for page {}", to);
    copied.emplace_back(from, to);
  }

  std::size_t page_bytes() const noexcept override { return 1; }
  void read_page(std::int32_t, int, std::span<std::byte>) const override {}
  void write_page(std::int32_t, std::span<const std::byte>) override {}

  std::vector<std::int32_t> released;
  std::vector<std::pair<std::int32_t, std::int32_t>> copied;
  bool fails_to_copy = false;

 private:
  KvGeometry geometry_;
};

}  // namespace triptych::test

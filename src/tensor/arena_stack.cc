#include "tensor/arena_stack.h"

#include <algorithm>
#include <utility>

#include "base/allocation_trace.h"
#include "base/asan.h"
#include "base/error.h"

namespace triptych {
namespace {

constexpr std::size_t kAlign = Buffer::kAlignment_bytes;

// Rounded up to the alignment; at least one unit, so that two tensors never share an address.
std::size_t rounded(std::size_t size_bytes) {
  if (size_bytes > SIZE_MAX - kAlign)
    fail(ErrorCode::kOutOfMemory, "arena: no memory for {} bytes", size_bytes);
  return std::max<std::size_t>((size_bytes + kAlign - 1) / kAlign * kAlign, kAlign);
}

// What the sanitizer says of a device's memory is nobody's business.
void poison(const Buffer& chunk, std::size_t kept_bytes) {
  if (chunk.kind() == MemoryKind::kHost)
    TRIPTYCH_POISON(chunk.data() + kept_bytes, chunk.size_bytes() - kept_bytes);
}

void unpoison(const Buffer& chunk, std::byte* data, std::size_t size_bytes) {
  if (chunk.kind() == MemoryKind::kHost) TRIPTYCH_UNPOISON(data, size_bytes);
}

}  // namespace

ArenaStack::ArenaStack(std::size_t min_chunk_bytes, Allocator allocate)
    : min_chunk_bytes_(std::max<std::size_t>(min_chunk_bytes, kAlign)), allocate_(std::move(allocate)) {}

ArenaStack::~ArenaStack() { release(); }

void ArenaStack::add_chunk(std::size_t size_bytes) {
  // The list grows first: should its own growth fail, no chunk is lost.
  chunks_.reserve(chunks_.size() + 1);
  const AllocationScope scope(AllocationKind::kChunk);
  Buffer chunk = allocate_(size_bytes);
  TRIPTYCH_CHECK(
      chunk.size_bytes() >= size_bytes && reinterpret_cast<std::uintptr_t>(chunk.data()) % kAlign == 0,
      "arena: the allocator gave {} of {} bytes", chunk.size_bytes(), size_bytes);
  poison(chunk, 0);
  chunks_.push_back(std::move(chunk));
  ++n_chunk_allocations_;
}

std::byte* ArenaStack::make_bytes(std::size_t size_bytes) {
  const std::size_t size = rounded(size_bytes);
  if (chunks_.empty()) add_chunk(std::max(size, min_chunk_bytes_));
  if (chunks_[chunk_].size_bytes() - offset_bytes_ < size) {
    std::size_t next = chunk_ + 1;
    while (next < chunks_.size() && chunks_[next].size_bytes() < size) ++next;
    if (next == chunks_.size()) add_chunk(std::max({size, min_chunk_bytes_, chunks_.back().size_bytes()}));
    chunk_ = next;
    offset_bytes_ = 0;
  }
  std::byte* out = chunks_[chunk_].data() + offset_bytes_;
  offset_bytes_ += size;
  in_use_bytes_ += size;
  high_bytes_ = std::max(high_bytes_, in_use_bytes_);
  peak_bytes_ = std::max(peak_bytes_, high_bytes_);
  unpoison(chunks_[chunk_], out, size_bytes);
  note_allocated(AllocationKind::kTensor, reinterpret_cast<std::uintptr_t>(out), size_bytes);
  return out;
}

std::byte* ArenaStack::make_array(std::size_t n, std::size_t element_bytes) {
  if (n > SIZE_MAX / 2 / element_bytes)
    fail(ErrorCode::kOutOfMemory, "arena: no memory for {} elements of {} bytes", n, element_bytes);
  return make_bytes(n * element_bytes);
}

ArenaStack::Mark ArenaStack::mark() const noexcept { return {chunk_, offset_bytes_, in_use_bytes_}; }

void ArenaStack::rewind(const Mark& mark) noexcept {
  for (std::size_t i = mark.chunk; i < chunks_.size() && i <= chunk_; ++i) {
    const std::size_t kept = i == mark.chunk ? mark.offset_bytes : 0;
    if (kept == chunks_[i].size_bytes()) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(chunks_[i].data());
    note_released(AllocationKind::kTensor, begin + kept, begin + chunks_[i].size_bytes() - 1);
    poison(chunks_[i], kept);
  }
  chunk_ = mark.chunk;
  offset_bytes_ = mark.offset_bytes;
  in_use_bytes_ = mark.in_use_bytes;
}

void ArenaStack::reset() {
  rewind({});
  high_bytes_ = 0;
  if (chunks_.size() <= 1) return;
  const std::size_t size = std::max(peak_bytes_, min_chunk_bytes_);
  release();
  add_chunk(size);
}

void ArenaStack::release() noexcept {
  rewind({});
  for (const Buffer& chunk : chunks_) unpoison(chunk, chunk.data(), chunk.size_bytes());
  if (!chunks_.empty()) ++generation_;
  chunks_.clear();
  chunk_ = 0;
  offset_bytes_ = 0;
  in_use_bytes_ = 0;
}

std::size_t ArenaStack::reserved_bytes() const noexcept {
  std::size_t total = 0;
  for (const Buffer& chunk : chunks_) total += chunk.size_bytes();
  return total;
}

}  // namespace triptych

#include "engine/memory_budget.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "backend/exec_context.h"
#include "backend/memory.h"
#include "base/error.h"
#include "engine/batch_builder.h"
#include "engine/block_pool.h"

namespace triptych {
namespace {

constexpr int kSide_px = 448;  // of the picture by which the tower is measured

double gib(double bytes) { return bytes / static_cast<double>(std::size_t{1} << 30); }
double gib(std::size_t bytes) { return gib(static_cast<double>(bytes)); }

// Records what `forward` asks for, and forgets it.
template <typename Forward>
std::size_t scratch_bytes(Backend& backend, Forward&& forward) {
  Arena arena = make_arena(backend);
  if (!backend.begin_recording())
    fail(ErrorCode::kUnsupported, "memory_limit: this backend cannot say what a step takes");
  struct End {
    Backend& backend;
    ~End() { backend.end_recording(); }
  } const end{backend};
  ExecContext cx(backend, arena);
  forward(cx);
  const Arena::Extent extent = arena.high();
  return extent.tensor_bytes + extent.host_bytes;
}

std::unique_ptr<KvCache> make_cache(Backend& backend, const ModelInfo& info, std::int64_t n_blocks,
                                    KvDType dtype) {
  return backend.make_kv_cache({.n_layers = info.n_layers,
                                .n_kv_heads = info.n_kv_heads,
                                .head_dim = info.head_dim,
                                .page_tokens = kBlockTokens,
                                .n_pages = static_cast<int>(n_blocks),
                                .dtype = dtype});
}

// One prompt of as many rows as a step has; logits of as many as there are sequences.
std::size_t bytes_of_step(const Model& model, Backend& backend, const EngineSizes& sizes) {
  const ModelInfo& info = model.info();
  const std::int64_t n_rows = std::min(sizes.n_step_rows, info.max_context_tokens);
  const auto n = static_cast<std::size_t>(n_rows);
  const std::vector<std::int32_t> ids(n, 0);
  const std::vector<std::int32_t> positions(n * static_cast<std::size_t>(info.n_position_axes), 0);
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(blocks_for(n_rows)));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<std::int32_t> logit_rows(static_cast<std::size_t>(std::min(n_rows, sizes.n_sequences)));
  std::iota(logit_rows.begin(), logit_rows.end(), 0);
  const auto cache = make_cache(backend, info, blocks_for(n_rows), sizes.kv_dtype);
  BatchBuilder builder(info.n_position_axes, kBlockTokens, n, 1);
  const SequenceRows rows{.token_ids = ids,
                          .positions = positions,
                          .n_prompt = n_rows,
                          .blocks = blocks,
                          .logit_rows = logit_rows};
  const Batch batch = builder.build({&rows, 1}, cache.get());
  return scratch_bytes(backend, [&](ExecContext& cx) { cx.download(model.forward(cx, batch)); });
}

MediaItem blank_picture(const Model& model) {
  Image image{kSide_px, kSide_px, {}};
  image.rgb.resize(std::size_t{3} * kSide_px * kSide_px);
  MediaItem out;
  out.plan = model.plan_media({.width_px = kSide_px, .height_px = kSide_px}, {});
  out.pixels = model.preprocess({&image, 1}, out.plan, nullptr);
  if (!model.info().media_text_tokenizer.empty()) out.text_ids = {0};
  return out;
}

}  // namespace

MemoryBudget::MemoryBudget(std::size_t limit_bytes, const Model& model, Backend& backend,
                           const EngineSizes& sizes)
    : limit_bytes_(limit_bytes), sizes_(sizes) {
  for (const auto& [name, part] : model.part_sizes().parts)
    weights_bytes_ += static_cast<std::size_t>(part.owned_bytes + part.mapped_bytes);
  step_bytes_ = bytes_of_step(model, backend, sizes);
  const MediaItem picture = blank_picture(model);
  const std::size_t bytes = scratch_bytes(backend, [&](ExecContext& cx) {
    media_width_ = model.encode_media(cx, {&picture, 1}).dim(1);
  });
  patch_bytes_ = static_cast<double>(bytes) / static_cast<double>(picture.plan.n_patches);
  block_bytes_ = make_cache(backend, model.info(), 1, sizes.kv_dtype)->bytes();
  const std::size_t taken = weights_bytes_ + step_bytes_ + pass_bytes();
  n_blocks_ = limit_bytes_ > taken ? static_cast<std::int64_t>((limit_bytes_ - taken) / block_bytes_) : 0;
  if (n_blocks_ < 1)
    fail(ErrorCode::kOutOfMemory,
         "the memory limit of {:.3f} GiB leaves nothing for keys and values: weights take {:.3f}, scratch "
         "memory of a "
         "step of {} tokens {:.3f}, of {} patches in the tower {:.3f}, a block of {} tokens {:.6f}",
         gib(limit_bytes_), gib(weights_bytes_), sizes.n_step_rows, gib(step_bytes_), sizes.n_pass_patches,
         gib(pass_bytes()), kBlockTokens, gib(block_bytes_));
}

std::int64_t MemoryBudget::picture_blocks(std::span<const MediaItem> media) const {
  if (!is_limited() || media.empty()) return 0;
  double bytes = 0;
  std::int64_t largest = 0;
  for (const MediaItem& item : media) {
    bytes +=
        static_cast<double>(item.pixels.view().numel() + item.plan.n_tokens * media_width_) * sizeof(float);
    largest = std::max(largest, item.plan.n_patches);
  }
  bytes += patch_bytes_ * static_cast<double>(std::max<std::int64_t>(0, largest - sizes_.n_pass_patches));
  return static_cast<std::int64_t>(bytes / static_cast<double>(block_bytes_)) + 1;
}

void MemoryBudget::check(std::int64_t n_prompt, std::span<const MediaItem> media) const {
  if (!is_limited()) return;
  const std::int64_t n_pictures = picture_blocks(media);
  const std::int64_t n_tokens = blocks_for(n_prompt + 1);
  if (n_tokens + n_pictures <= n_blocks_) return;
  const auto of = [&](std::int64_t n) {
    return gib(static_cast<double>(n) * static_cast<double>(block_bytes_));
  };
  fail(ErrorCode::kOutOfMemory,
       "the request can never fit: keys and values of {} tokens take {:.3f} GiB and its {} pictures {:.3f}, "
       "and the memory "
       "limit of {:.3f} leaves {:.3f} beside weights ({:.3f}) and scratch memory ({:.3f})",
       n_prompt + 1, of(n_tokens), media.size(), of(n_pictures), gib(limit_bytes_), of(n_blocks_),
       gib(weights_bytes_), gib(step_bytes_ + pass_bytes()));
}

}  // namespace triptych

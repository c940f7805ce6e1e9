// Sequences whose pictures keep only some of their tokens: where the choice is made and the others go.
#include <algorithm>
#include <numeric>
#include <utility>

#include "backend/memory.h"
#include "base/error.h"
#include "base/profile.h"
#include "engine/engine.h"
#include "engine/image_token_keep.h"
#include "engine/sequence.h"
#include "engine/token_selection.h"

namespace triptych {
namespace {

// Slots of tokens that lie in these blocks.
std::vector<std::int32_t> slots_of(std::span<const std::int32_t> tokens,
                                   std::span<const std::int32_t> blocks) {
  std::vector<std::int32_t> out;
  out.reserve(tokens.size());
  for (const std::int32_t t : tokens)
    out.push_back(blocks[static_cast<std::size_t>(t / kBlockTokens)] * kBlockTokens + t % kBlockTokens);
  return out;
}

// The norms of a picture's keys, each as a multiple of its head's mean over the picture, so that heads and
// layers of large keys do not decide alone: the sum over all.
std::vector<double> relative_key_norms(Backend& backend, const KvCache& cache,
                                       std::span<const std::int32_t> slots) {
  const KvGeometry& g = cache.geometry();
  const auto n_heads = static_cast<std::size_t>(g.n_kv_heads);
  std::vector<double> out(slots.size(), 0.0);
  std::vector<float> norms(slots.size() * n_heads);
  for (int layer = 0; layer < g.n_layers; ++layer) {
    backend.key_norms(cache, layer, slots, norms);
    for (std::size_t h = 0; h < n_heads; ++h) {
      double sum = 0;
      for (std::size_t i = 0; i < slots.size(); ++i) sum += static_cast<double>(norms[i * n_heads + h]);
      if (!(sum > 0)) continue;
      for (std::size_t i = 0; i < slots.size(); ++i)
        out[i] += static_cast<double>(norms[i * n_heads + h]) / sum * static_cast<double>(slots.size());
    }
  }
  return out;
}

// Rows of an operand as another operand.
Tensor gathered(Backend& backend, const TensorView& rows, std::span<const std::int32_t> kept) {
  Tensor out = make_operand(backend, rows.dtype(), {static_cast<std::int64_t>(kept.size()), rows.dim(1)});
  TensorView to = out.view();
  backend.gather_rows(rows, kept, to);
  return out;
}

std::vector<std::int32_t> choose_diverse(Backend& backend, const TensorView& rows, std::int64_t width,
                                         std::int64_t k) {
  const TensorView seen = rows.cols(0, std::min(width, rows.dim(1)));  // what replaces token embeddings
  Tensor host(DType::kF32, {seen.dim(0), seen.dim(1)});
  TensorView to = host.view();
  backend.download(seen, to);
  return select_diverse(to, k);
}

}  // namespace

// Media that were encoded lose the rows that diversity does not choose, before their tokens are computed.
void Engine::drop_encoded_rows(Sequence& s) {
  ImageTokenKeep& keep = *s.keep;
  std::vector<std::size_t> dropped;
  for (std::size_t i = 0; i < s.media.size(); ++i) {
    if (!keep.chooses_rows(i) || s.media[i].image_tokens.keeps_all() || s.media_rows[i].view().empty())
      continue;
    const TensorView rows = s.media_rows[i].view();
    if (rows.dim(0) == keep.n_kept_rows(i)) continue;  // done before
    TRIPTYCH_CHECK(rows.dim(0) == keep.n_rows(i),
                   "{} rows of a medium stand in the prompt, and the tower gave {}", keep.n_rows(i),
                   rows.dim(0));
    if (!keep.is_chosen(i)) {
      const ProfileZone zone("image tokens");
      keep.choose_rows(
          i, choose_diverse(model_.backend(), rows, model_.info().hidden_size, keep.n_kept_rows(i)));
      image_token_choices_.put(s.media[i], keep.kept_rows(i));
    }
    s.media_rows[i] = gathered(model_.backend(), rows, keep.kept_rows(i));
    dropped.push_back(i);
  }
  if (!dropped.empty()) {
    keep.drop(dropped, s);
    rename_pages(s, s.n_computed);
  }
  s.result.n_dropped_image_tokens = s.n_dropped;
}

// The same for all that run and have rows by now. False: one failed.
bool Engine::drop_encoded_rows() {
  bool all = true;
  for (const auto& s : running_) {
    if (!s->keep || s->finished() || s->n_computed >= s->n_prompt) continue;
    try {
      drop_encoded_rows(*s);
    } catch (...) {
      fail_sequence(*s, std::current_exception());
      all = false;
    }
  }
  return all;
}

// What was chosen of a picture before is known without its rows.
void Engine::drop_known_rows(Sequence& s) {
  std::vector<std::size_t> dropped;
  for (std::size_t i = 0; i < s.media.size(); ++i) {
    if (!s.keep->chooses_rows(i) || s.media[i].image_tokens.keeps_all()) continue;
    const std::vector<std::int32_t>* kept = image_token_choices_.find(s.media[i]);
    if (kept == nullptr || static_cast<std::int64_t>(kept->size()) != s.keep->n_kept_rows(i)) continue;
    s.keep->choose_rows(i, *kept);
    dropped.push_back(i);
  }
  if (!dropped.empty()) {
    s.keep->drop(dropped, s);
    rename_pages(s, s.n_computed);
  }
  s.result.n_dropped_image_tokens = s.n_dropped;
}

// The cache holds the tokens up to a cut: those that were not chosen go, the others move together, and blocks
// that nothing is left in are free.
void Engine::drop_cached_tokens(Sequence& s) {
  ImageTokenKeep& keep = *s.keep;
  const std::vector<std::size_t> items = keep.due(s.n_computed);
  if (items.empty()) return;
  const ProfileZone zone("image tokens");
  KvCache& cache = runner_->kv_cache();
  for (const std::size_t i : items) {
    if (keep.is_chosen(i)) continue;
    std::vector<double> scores;
    ImageTokenSelection by = keep.selection(i);
    if (by == ImageTokenSelection::kAttention) {
      scores = keep.received_by(i);
      // No text stands behind it.
      if (std::none_of(scores.begin(), scores.end(), [](double x) { return x > 0; }))
        by = ImageTokenSelection::kKeyNormLow;
    }
    if (by != ImageTokenSelection::kAttention)
      scores = relative_key_norms(model_.backend(), cache, slots_of(keep.tokens_of(i), s.blocks));
    if (by == ImageTokenSelection::kKeyNormLow)
      for (double& score : scores) score = -score;
    keep.choose(i, scores);
  }
  const std::vector<std::int32_t> left = keep.tokens_left(items, s.n_computed);
  const auto n_left = static_cast<std::int64_t>(left.size());
  std::int64_t first = 0;  // that moves
  while (first < n_left && left[static_cast<std::size_t>(first)] == first) ++first;
  own_blocks(s, first, n_left);
  std::vector<std::int32_t> to(static_cast<std::size_t>(n_left - first));
  std::iota(to.begin(), to.end(), static_cast<std::int32_t>(first));
  model_.backend().move_cached_tokens(
      cache, slots_of(std::span(left).subspan(static_cast<std::size_t>(first)), s.blocks),
      slots_of(to, s.blocks));
  const auto n_blocks = static_cast<std::size_t>(blocks_for(n_left));
  pool_->release(std::span(s.blocks).subspan(n_blocks));
  s.blocks.resize(n_blocks);
  keep.drop(items, s);
  rename_pages(s, first);
  s.n_computed = n_left;
  s.result.n_dropped_image_tokens = s.n_dropped;
}

// Blocks of tokens [first, end), of which others may hold a reference too, become the sequence's own.
void Engine::own_blocks(Sequence& s, std::int64_t first, std::int64_t end) {
  for (std::int64_t b = first / kBlockTokens; b * kBlockTokens < end; ++b) {
    std::int32_t& block = s.blocks[static_cast<std::size_t>(b)];
    if (pool_->n_references(block) == 1) continue;
    if (pool_->n_free() == 0 && !prefix_cache_->evict_one() && pool_->n_users(block) == 1)
      prefix_cache_->forget(s.prefix.parent(static_cast<std::size_t>(b) + 1), block);
    if (pool_->n_references(block) == 1) continue;
    const std::int32_t shared = block;
    block = pool_->copy(shared);
    pool_->release({&shared, 1});
  }
}

// Who hears of the attention of these rows of the step; null: nobody.
CacheAttentionListener* Engine::listener_for(std::size_t first, std::size_t n) {
  received_attention_.clear();
  for (std::size_t i = first; i < first + n; ++i)
    if (Sequence& s = *in_batch_[i].sequence; s.keep)
      received_attention_.add(i - first, s, in_batch_[i].n_rows);
  return received_attention_.empty() ? nullptr : &received_attention_;
}

}  // namespace triptych

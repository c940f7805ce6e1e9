#include "engine/media_encoder.h"

#include <algorithm>
#include <utility>

#include "backend/memory.h"
#include "base/error.h"

namespace triptych {
namespace {

bool is_same(const MediaItem& a, const MediaItem& b) {
  return !a.fingerprint.empty() && a.fingerprint == b.fingerprint && a.text_ids == b.text_ids &&
         a.plan.n_tokens == b.plan.n_tokens;
}

}  // namespace

bool MediaEncoder::is_on_its_way(const Sequence& s, std::size_t medium) const {
  const auto is_this = [&](const Target& t) { return t.sequence == &s && t.medium == medium; };
  return std::any_of(targets_.begin(), targets_.end(), is_this) ||
         std::any_of(apart_.begin(), apart_.end(), [&](const Work& work) {
           return std::any_of(work.targets.begin(), work.targets.end(), is_this);
         });
}

bool MediaEncoder::take_from_cache(Sequence& s, std::size_t medium) {
  MediaItem& item = s.media[medium];
  std::optional<Tensor> rows = cache_.find(item);
  if (!rows) return false;
  TRIPTYCH_CHECK(rows->view().dim(0) == item.plan.n_tokens, "the cache has {} rows, the plan says {}",
                 rows->view().dim(0), item.plan.n_tokens);
  s.media_rows[medium] = std::move(*rows);
  item.pixels = Tensor();
  item.frames.reset();
  ++s.result.n_cached_media;
  monitor_.looked_for_media(1, 1, s.media[medium].plan.n_tokens);
  return true;
}

// The sequence wants what one of these items is.
bool MediaEncoder::join(std::span<const MediaItem> items, std::vector<Target>& targets, Sequence& s,
                        std::size_t medium) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!is_same(items[i], s.media[medium])) continue;
    targets.push_back({&s, medium, i});
    return true;
  }
  return false;
}

void MediaEncoder::gather(std::span<const std::unique_ptr<Sequence>> sequences) {
  Work next;
  std::int64_t n_patches = 0;
  bool full = has_work();
  for (const auto& one : sequences) {
    Sequence& s = *one;
    if (s.finished() || s.media.empty() || s.n_computed >= s.n_prompt) continue;
    for (std::size_t m = 0; m < s.media.size(); ++m) {
      if (!s.must_encode(m) || is_on_its_way(s, m) || take_from_cache(s, m)) continue;
      if (pass_ != nullptr && join(pass_->items(), targets_, s, m)) continue;
      if (join(next.items, next.targets, s, m)) continue;
      MediaItem& item = s.media[m];
      if (full || (!next.items.empty() && n_patches + item.plan.n_patches > max_patches_)) {
        full = true;  // those behind do not slip past
        continue;
      }
      if (cache_.enabled()) monitor_.looked_for_media(1, 0, 0);
      n_patches += item.plan.n_patches;
      next.targets.push_back({&s, m, next.items.size()});
      next.items.push_back({item.plan, std::move(item.pixels), item.text_ids, item.fingerprint,
                            item.image_tokens, std::move(item.frames)});
    }
  }
  if (!next.items.empty()) begin(std::move(next));
}

void MediaEncoder::begin(Work work) {
  targets_ = std::move(work.targets);
  pass_ = runner_.begin_encoding(std::move(work.items), clock_);
  ++n_passes_;
}

void MediaEncoder::run(double budget_ms, const std::atomic<bool>& interrupt, std::vector<Failure>& failures) {
  if (pass_ == nullptr) {
    if (apart_.empty()) return;
    Work work = std::move(apart_.front());
    apart_.pop_front();
    begin(std::move(work));
  }
  try {
    ++n_stretches_;
    for (MediaItem& item : pass_->items()) {
      if (item.frames == nullptr) continue;  // the cache had its rows when the request was made
      make_pixels_(item);
      item.frames.reset();
    }
    if (pass_->run(budget_ms, interrupt)) deliver();
  } catch (...) {
    retreat(std::current_exception(), failures);
  }
}

// Each sequence has rows of its own: they go when it has read them.
void MediaEncoder::deliver() {
  const TensorView rows = pass_->rows();
  const std::vector<MediaItem>& items = pass_->items();
  const double ms_a_row = pass_->active_ms() / static_cast<double>(std::max<std::int64_t>(rows.dim(0), 1));
  std::int64_t first = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::int64_t end = first + items[i].plan.n_tokens;
    TRIPTYCH_CHECK(end <= rows.dim(0), "the tower gave {} rows, the plans say more", rows.dim(0));
    for (const Target& target : targets_) {
      if (target.item != i) continue;
      target.sequence->media_rows[target.medium] = copy_operand(backend_, rows.rows(first, end));
      target.sequence->media[target.medium].pixels = Tensor();  // of its own, where it joined another's
      target.sequence->media[target.medium].frames.reset();
    }
    cache_.put(items[i], rows.rows(first, end), ms_a_row * static_cast<double>(end - first));
    first = end;
  }
  TRIPTYCH_CHECK(first == rows.dim(0), "the tower gave {} rows, the plans say {}", rows.dim(0), first);
  std::vector<Sequence*> waited;
  for (const Target& target : targets_)
    if (std::find(waited.begin(), waited.end(), target.sequence) == waited.end()) {
      waited.push_back(target.sequence);
      target.sequence->result.timings.encode_ms += pass_->active_ms();
    }
  monitor_.encoded(static_cast<std::int64_t>(items.size()), rows.dim(0), pass_->patch_rows(),
                   pass_->active_ms());
  n_padded_patches_ += pass_->n_padded_patches();
  pass_.reset();
  targets_.clear();
}

void MediaEncoder::retreat(std::exception_ptr error, std::vector<Failure>& failures) {
  std::vector<MediaItem> items = std::move(pass_->items());
  const std::vector<Target> targets = std::exchange(targets_, {});
  pass_.reset();
  if (items.size() == 1) {
    for (const Target& target : targets)
      if (std::none_of(failures.begin(), failures.end(),
                       [&](const Failure& f) { return f.sequence == target.sequence; }))
        failures.push_back({target.sequence, error});
    return;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    Work work;
    for (const Target& target : targets)
      if (target.item == i) work.targets.push_back({target.sequence, target.medium, 0});
    if (work.targets.empty()) continue;
    work.items.push_back(std::move(items[i]));
    apart_.push_back(std::move(work));
  }
}

void MediaEncoder::forget(const Sequence& sequence) {
  const auto is_its = [&](const Target& t) { return t.sequence == &sequence; };
  std::erase_if(targets_, is_its);
  if (targets_.empty()) pass_.reset();
  for (Work& work : apart_) std::erase_if(work.targets, is_its);
  std::erase_if(apart_, [](const Work& work) { return work.targets.empty(); });
}

}  // namespace triptych

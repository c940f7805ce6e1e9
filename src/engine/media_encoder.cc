#include "engine/media_encoder.h"

#include <algorithm>
#include <new>
#include <utility>

#include "backend/memory.h"
#include "base/error.h"
#include "base/log.h"
#include "base/make_room.h"

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
  std::optional<Tensor> rows;
  try {
    rows = cache_.find(item);
  } catch (const std::bad_alloc&) {  // as if it were not there: what it takes is the request's own affair
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
  }
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

// What nothing came of, to whoever wanted it, for another attempt.
void MediaEncoder::give_back(std::vector<MediaItem>& items, std::span<const Target> targets) noexcept {
  for (const Target& target : targets) {
    MediaItem& item = items[target.item];
    MediaItem& own = target.sequence->media[target.medium];
    if (own.pixels.view().empty()) own.pixels = std::move(item.pixels);
    if (own.frames == nullptr) own.frames = std::move(item.frames);
  }
}

void MediaEncoder::gather(std::span<const std::unique_ptr<Sequence>> sequences) {
  Work next;
  try {
    gather(sequences, next);
    if (!next.items.empty()) begin(next);
  } catch (...) {
    give_back(next.items, next.targets);
    throw;
  }
}

void MediaEncoder::gather(std::span<const std::unique_ptr<Sequence>> sequences, Work& next) {
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
      make_room(next.targets, 1);
      MediaItem& taken = next.items.emplace_back();
      next.targets.push_back({&s, m, next.items.size() - 1});
      taken.plan = item.plan;
      taken.text_ids = item.text_ids;
      taken.fingerprint = item.fingerprint;
      taken.image_tokens = item.image_tokens;
      taken.pixels = std::move(item.pixels);
      taken.frames = std::move(item.frames);
    }
  }
}

// When it throws, `work` is as it was.
void MediaEncoder::begin(Work& work) {
  pass_ = runner_.begin_encoding(std::move(work.items), clock_);
  targets_ = std::move(work.targets);
  ++n_passes_;
}

void MediaEncoder::run(double budget_ms, const std::atomic<bool>& interrupt, std::vector<Failure>& failures) {
  if (pass_ == nullptr) {
    if (apart_.empty()) return;
    begin(apart_.front());
    apart_.pop_front();
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

// Each sequence has rows of its own: they go when it has read them. All or nothing: when it throws, nobody
// has any.
void MediaEncoder::deliver() {
  const TensorView rows = pass_->rows();
  const std::vector<MediaItem>& items = pass_->items();
  const double ms_a_row = pass_->active_ms() / static_cast<double>(std::max<std::int64_t>(rows.dim(0), 1));
  std::vector<std::int64_t> begins = {0};  // of the items' rows, and the end of the last
  for (const MediaItem& item : items) begins.push_back(begins.back() + item.plan.n_tokens);
  TRIPTYCH_CHECK(begins.back() == rows.dim(0), "the tower gave {} rows, the plans say {}", rows.dim(0),
                 begins.back());
  std::vector<Tensor> copies;  // one a target
  for (const Target& target : targets_)
    copies.push_back(copy_operand(backend_, rows.rows(begins[target.item], begins[target.item + 1])));
  std::vector<Sequence*> waited;
  waited.reserve(targets_.size());
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const Target& target = targets_[i];
    target.sequence->media_rows[target.medium] = std::move(copies[i]);
    target.sequence->media[target.medium].pixels = Tensor();  // of its own, where it joined another's
    target.sequence->media[target.medium].frames.reset();
  }
  for (std::size_t i = 0; i < items.size(); ++i) try {
      cache_.put(items[i], rows.rows(begins[i], begins[i + 1]),
                 ms_a_row * static_cast<double>(items[i].plan.n_tokens));
    } catch (const std::exception& error) {  // who waits for the rows has them
      log_debug("rows of a picture were not kept: {}", error.what());
    }
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
  try {
    retreat(items, targets, error, failures);
  } catch (...) {
    give_back(items, targets);
    throw;
  }
}

void MediaEncoder::retreat(std::vector<MediaItem>& items, std::span<const Target> targets,
                           const std::exception_ptr& error, std::vector<Failure>& failures) {
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
    work.items.resize(1);
    apart_.push_back(std::move(work));
    std::swap(apart_.back().items[0], items[i]);
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

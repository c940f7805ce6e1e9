#include "engine/image_token_keep.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/sequence.h"
#include "engine/token_selection.h"

namespace triptych {

std::unique_ptr<ImageTokenKeep> ImageTokenKeep::make(const Sequence& s, int n_axes) {
  if (std::all_of(s.media.begin(), s.media.end(),
                  [](const MediaItem& item) { return item.image_tokens.keeps_all(); }))
    return nullptr;
  std::unique_ptr<ImageTokenKeep> out(new ImageTokenKeep);
  out->n_axes_ = n_axes;
  out->tokens_ = s.tokens;
  out->positions_ = s.positions;
  out->runs_ = s.runs;
  out->left_.resize(s.tokens.size());
  for (std::size_t t = 0; t < s.tokens.size(); ++t) out->left_[t] = static_cast<std::int32_t>(t);
  out->received_.resize(s.tokens.size(), 0);
  out->items_.resize(s.media.size());
  std::vector<std::int64_t> ends(s.media.size(), 0);
  std::int64_t last_end = 0;
  for (const MediaRun& run : s.runs) {
    const auto i = static_cast<std::size_t>(run.media_index);
    for (std::int64_t r = 0; r < run.n_rows; ++r)
      out->items_[i].rows.push_back({static_cast<std::int32_t>(run.first_media_row + r),
                                     static_cast<std::int32_t>(run.first_prompt_row + r)});
    ends[i] = std::max(ends[i], run.first_prompt_row + run.n_rows);
    last_end = std::max(last_end, ends[i]);
  }
  for (std::size_t i = 0; i < out->items_.size(); ++i) {
    Item& item = out->items_[i];
    item.options = s.media[i].image_tokens;
    std::sort(item.rows.begin(), item.rows.end(),
              [](const Row& a, const Row& b) { return a.media_row < b.media_row; });
    switch (item.options.selection) {
      case ImageTokenSelection::kDiversity:
        item.cut = kBeforePrefill;
        break;
      case ImageTokenSelection::kKeyNormLow:
      case ImageTokenSelection::kKeyNormHigh:
        item.cut = ends[i];
        break;
      case ImageTokenSelection::kAttention:
        // The row whose logits are wanted sees what stays, as it does behind a cached prefix.
        item.cut = std::max(last_end, s.n_prompt - 1);
        break;
    }
    item.dropped = item.n_to_drop() == 0;
  }
  return out;
}

// Where a token of the whole prompt is in the sequence; of one that left it, where the next one is.
std::int64_t ImageTokenKeep::index_of(std::int64_t token) const {
  return token - (std::lower_bound(dropped_.begin(), dropped_.end(), token) - dropped_.begin());
}

// Tokens of the sequence before this token of the whole prompt that will have left it before they are
// computed.
std::int64_t ImageTokenKeep::n_left_out_before(std::int64_t token) const {
  std::int64_t out = 0;
  for (const Item& item : items_)
    if (!item.dropped && item.cut == kBeforePrefill && item.rows.front().token < token)
      out += item.n_to_drop();
  return out;
}

std::int64_t ImageTokenKeep::next_cut() const {
  std::int64_t out = std::numeric_limits<std::int64_t>::max();
  for (const Item& item : items_)
    if (!item.dropped && item.cut != kBeforePrefill) out = std::min(out, item.cut);
  return out;
}

std::int64_t ImageTokenKeep::n_schedulable(const Sequence& s) const {
  const std::int64_t all = s.n_tokens() - n_left_out_before(std::numeric_limits<std::int64_t>::max());
  const std::int64_t cut = next_cut();
  if (cut == std::numeric_limits<std::int64_t>::max()) return all;
  return std::min(all, index_of(cut) - n_left_out_before(cut));
}

std::int64_t ImageTokenKeep::n_at_most(const Sequence& s) const {
  std::int64_t end = s.n_tokens();
  for (const Item& item : items_)
    if (!item.dropped) end -= item.n_to_drop();
  std::int64_t most = end;
  std::int64_t n_gone = n_left_out_before(std::numeric_limits<std::int64_t>::max());
  std::vector<const Item*> pending;
  for (const Item& item : items_)
    if (!item.dropped && item.cut != kBeforePrefill) pending.push_back(&item);
  std::sort(pending.begin(), pending.end(), [](const Item* a, const Item* b) { return a->cut < b->cut; });
  for (const Item* item : pending) {
    most = std::max(most, index_of(item->cut) - n_gone);
    n_gone += item->n_to_drop();
  }
  return most;
}

std::int64_t ImageTokenKeep::n_publishable(const Sequence& s) const {
  std::int64_t out = s.n_computed;
  for (const Item& item : items_)
    if (!item.dropped && item.options.selection == ImageTokenSelection::kAttention)
      out = std::min(out, index_of(item.rows.back().token + 1));
  return out;
}

std::int64_t ImageTokenKeep::n_kept_rows(std::size_t item) const { return items_[item].n_kept(); }

void ImageTokenKeep::choose_rows(std::size_t item, std::vector<std::int32_t> kept) {
  TRIPTYCH_CHECK(
      static_cast<std::int64_t>(kept.size()) == items_[item].n_kept() && kept.back() < n_rows(item),
      "[image_token_keep] {} of {} rows chosen", kept.size(), n_rows(item));
  items_[item].kept = std::move(kept);
}

std::vector<std::size_t> ImageTokenKeep::due(std::int64_t n_computed) const {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < items_.size(); ++i)
    if (!items_[i].dropped && items_[i].cut != kBeforePrefill && index_of(items_[i].cut) <= n_computed)
      out.push_back(i);
  return out;
}

std::vector<std::int32_t> ImageTokenKeep::tokens_of(std::size_t item) const {
  std::vector<std::int32_t> out;
  for (const Row& row : items_[item].rows) out.push_back(static_cast<std::int32_t>(index_of(row.token)));
  return out;
}

void ImageTokenKeep::choose(std::size_t item, std::span<const double> scores) {
  if (is_chosen(item)) return;
  TRIPTYCH_CHECK(scores.size() == items_[item].rows.size(), "[image_token_keep] {} scores for {} tokens",
                 scores.size(), items_[item].rows.size());
  items_[item].kept = select_highest(scores, items_[item].n_kept());
}

std::vector<double> ImageTokenKeep::received_by(std::size_t item) const {
  std::vector<double> out;
  for (const Row& row : items_[item].rows)
    out.push_back(static_cast<double>(received_[static_cast<std::size_t>(row.token)]));
  return out;
}

std::vector<std::int32_t> ImageTokenKeep::tokens_left(std::span<const std::size_t> items,
                                                      std::int64_t n) const {
  std::vector<bool> stays(static_cast<std::size_t>(n), true);
  for (const std::size_t i : items) {
    const std::vector<std::int32_t> tokens = tokens_of(i);
    for (const std::int32_t t : tokens) stays[static_cast<std::size_t>(t)] = false;
    for (const std::int32_t k : items_[i].kept)
      stays[static_cast<std::size_t>(tokens[static_cast<std::size_t>(k)])] = true;
  }
  std::vector<std::int32_t> out;
  for (std::size_t t = 0; t < stays.size(); ++t)
    if (stays[t]) out.push_back(static_cast<std::int32_t>(t));
  return out;
}

void ImageTokenKeep::drop(std::span<const std::size_t> items, Sequence& s) {
  for (const std::size_t i : items) items_[i].dropped = true;
  write_prompt(s);
}

void ImageTokenKeep::restore(Sequence& s) {
  for (Item& item : items_)
    if (item.cut != kBeforePrefill && item.n_to_drop() > 0) item.dropped = false;
  std::fill(received_.begin(), received_.end(), 0);
  step_.clear();
  write_prompt(s);
}

// Prompt and runs out of the whole prompt; the answer stays behind.
void ImageTokenKeep::write_prompt(Sequence& s) {
  std::vector<bool> stays(tokens_.size(), true);
  // Of items whose rows were chosen, media rows are counted among those that stay.
  std::vector<std::vector<std::int32_t>> new_rows(items_.size());
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    if (!item.dropped || item.n_to_drop() == 0) continue;
    for (const Row& row : item.rows) stays[static_cast<std::size_t>(row.token)] = false;
    for (const std::int32_t k : item.kept)
      stays[static_cast<std::size_t>(item.rows[static_cast<std::size_t>(k)].token)] = true;
    if (item.cut != kBeforePrefill) continue;
    new_rows[i].resize(static_cast<std::size_t>(item.rows.back().media_row) + 1, -1);
    for (std::size_t rank = 0; rank < item.kept.size(); ++rank)
      new_rows[i][static_cast<std::size_t>(item.rows[static_cast<std::size_t>(item.kept[rank])].media_row)] =
          static_cast<std::int32_t>(rank);
  }
  const std::vector<std::int32_t> answer(s.answer().begin(), s.answer().end());
  const auto axes = static_cast<std::size_t>(n_axes_);
  const std::vector<std::int32_t> answer_positions(
      s.positions.begin() + s.n_prompt * static_cast<std::int64_t>(axes), s.positions.end());
  s.tokens.clear();
  s.positions.clear();
  s.runs.clear();
  left_.clear();
  dropped_.clear();
  for (std::size_t t = 0; t < tokens_.size(); ++t) {
    (stays[t] ? left_ : dropped_).push_back(static_cast<std::int32_t>(t));
    if (!stays[t]) continue;
    s.tokens.push_back(tokens_[t]);
    for (std::size_t a = 0; a < axes; ++a) s.positions.push_back(positions_[t * axes + a]);
  }
  for (const MediaRun& run : runs_) {
    const auto& renumbered = new_rows[static_cast<std::size_t>(run.media_index)];
    for (std::int64_t r = 0; r < run.n_rows; ++r) {
      const std::int64_t token = run.first_prompt_row + r;
      if (!stays[static_cast<std::size_t>(token)]) continue;
      const std::int64_t old_row = run.first_media_row + r;
      const std::int64_t row = renumbered.empty() ? old_row : renumbered[static_cast<std::size_t>(old_row)];
      const std::int64_t index = index_of(token);
      MediaRun* last = s.runs.empty() || r == 0 ? nullptr : &s.runs.back();
      if (last != nullptr && last->media_index == run.media_index &&
          last->first_prompt_row + last->n_rows == index && last->first_media_row + last->n_rows == row) {
        ++last->n_rows;
      } else {
        s.runs.push_back({run.media_index, row, index, 1});
      }
    }
  }
  s.n_prompt = static_cast<std::int64_t>(s.tokens.size());
  s.n_dropped = n_dropped();
  s.tokens.insert(s.tokens.end(), answer.begin(), answer.end());
  s.positions.insert(s.positions.end(), answer_positions.begin(), answer_positions.end());
}

std::vector<ImageTokenKeep::Rows> ImageTokenKeep::listening_rows(const Sequence& s,
                                                                 std::int64_t n_rows) const {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = 0;
  for (const Item& item : items_) {
    if (item.dropped || !item.kept.empty() || item.options.selection != ImageTokenSelection::kAttention)
      continue;
    first = std::min(first, index_of(item.rows.front().token));
    end = std::max(end, index_of(item.cut));
  }
  first = std::max(first, s.n_computed);
  end = std::min(end, s.n_computed + n_rows);
  std::vector<Rows> out;
  for (std::int64_t t = first; t < end; ++t) {
    const bool is_text = std::none_of(s.runs.begin(), s.runs.end(), [&](const MediaRun& run) {
      return t >= run.first_prompt_row && t < run.first_prompt_row + run.n_rows;
    });
    if (!is_text) continue;
    if (!out.empty() && out.back().end == t) {
      ++out.back().end;
    } else {
      out.push_back({t, t + 1});
    }
  }
  return out;
}

std::span<std::int64_t> ImageTokenKeep::begin_step(std::int64_t n) {
  step_.assign(static_cast<std::size_t>(n), 0);
  return step_;
}

void ImageTokenKeep::end_step() {
  for (std::size_t t = 0; t < std::min(step_.size(), left_.size()); ++t)
    received_[static_cast<std::size_t>(left_[t])] += step_[t];
  step_.clear();
}

}  // namespace triptych

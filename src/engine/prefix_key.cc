#include "engine/prefix_key.h"

#include <algorithm>
#include <bit>

#include "base/digest.h"
#include "base/error.h"

namespace triptych {
namespace {

void add_all(Digest& digest, std::span<const std::int32_t> values) {
  digest.add_value(static_cast<std::uint64_t>(values.size()));
  digest.add(std::as_bytes(values));
}

Fingerprint media_key(const MediaItem& item) {
  if (item.fingerprint.empty()) return {};
  Digest digest;
  digest.add_text("triptych medium of a prefix");
  digest.add_value(item.fingerprint);
  add_all(digest, item.text_ids);
  if (!item.image_tokens.keeps_all()) {
    digest.add_value(std::bit_cast<std::uint64_t>(item.image_tokens.keep));
    digest.add_text(to_string(item.image_tokens.selection));
  }
  return digest.finish();
}

// The medium whose row token `row` of a page is; null: a token of the vocabulary.
const PageContents::Media* media_at(std::span<const PageContents::Media> media, std::int64_t row) {
  for (const PageContents::Media& one : media)
    if (row >= one.first_row && row < one.first_row + one.n_rows) return &one;
  return nullptr;
}

bool same_media_row(const PageContents& a, const PageContents& b, std::int64_t row) {
  const PageContents::Media* left = media_at(a.media, row);
  const PageContents::Media* right = media_at(b.media, row);
  if (left == nullptr || right == nullptr) return left == right;
  return !left->key.empty() && left->key == right->key &&
         left->first_media_row - left->first_row == right->first_media_row - right->first_row;
}

}  // namespace

std::vector<PrefixMedia> media_of(std::span<const MediaRun> runs, std::span<const MediaItem> items) {
  std::vector<Fingerprint> keys;
  for (const MediaItem& item : items) keys.push_back(media_key(item));
  std::vector<PrefixMedia> out;
  for (const MediaRun& run : runs) out.push_back({run, keys.at(static_cast<std::size_t>(run.media_index))});
  std::sort(out.begin(), out.end(), [](const PrefixMedia& a, const PrefixMedia& b) {
    return a.run.first_prompt_row < b.run.first_prompt_row;
  });
  return out;
}

Fingerprint prefix_root(const Fingerprint& model, KvDType kv_dtype, std::string_view salt) {
  Digest digest;
  digest.add_text("triptych prefix");
  digest.add_value(model);
  digest.add_text(to_string(kv_dtype));
  digest.add_text(salt);
  return digest.finish();
}

std::int64_t PageContents::n_common(const PageContents& other) const {
  const std::int64_t n = std::min(n_tokens(), other.n_tokens());
  if (n == 0) return 0;
  const std::size_t n_axes = positions.size() / tokens.size();
  for (std::int64_t t = 0; t < n; ++t) {
    const auto i = static_cast<std::size_t>(t);
    const auto at = static_cast<std::ptrdiff_t>(i * n_axes);
    if (tokens[i] != other.tokens[i] ||
        !std::equal(positions.begin() + at, positions.begin() + at + static_cast<std::ptrdiff_t>(n_axes),
                    other.positions.begin() + at) ||
        !same_media_row(*this, other, t))
      return t;
  }
  return n;
}

Fingerprint PageContents::key(const Fingerprint& parent) const {
  Digest digest;
  digest.add_value(parent);
  add_all(digest, tokens);
  add_all(digest, positions);
  digest.add_value(static_cast<std::uint64_t>(media.size()));
  for (const Media& one : media) {
    digest.add_value(one.first_row);
    digest.add_value(one.n_rows);
    digest.add_value(one.first_media_row);
    digest.add_value(one.key);
  }
  return digest.finish();
}

PrefixTokens PrefixTokens::first(std::int64_t n) const {
  TRIPTYCH_CHECK(n >= 0 && n <= size(), "[prefix_key] {} of {} tokens", n, size());
  const std::size_t n_axes = tokens.empty() ? 0 : positions.size() / tokens.size();
  const auto count = static_cast<std::size_t>(n);
  return {tokens.first(count), positions.first(count * n_axes)};
}

PageContents PrefixChain::page(const PrefixTokens& tokens, std::size_t index, std::int64_t n) const {
  const std::int64_t begin = static_cast<std::int64_t>(index) * kBlockTokens;
  const std::int64_t end = std::min({tokens.size(), begin + kBlockTokens, begin + n});
  PageContents out;
  if (begin >= end) return out;
  const auto n_axes = static_cast<std::ptrdiff_t>(tokens.positions.size() / tokens.tokens.size());
  out.tokens.assign(tokens.tokens.begin() + begin, tokens.tokens.begin() + end);
  out.positions.assign(tokens.positions.begin() + begin * n_axes, tokens.positions.begin() + end * n_axes);
  for (const PrefixMedia& one : media_) {
    const std::int64_t from = std::max(one.run.first_prompt_row, begin);
    const std::int64_t to = std::min(one.run.first_prompt_row + one.run.n_rows, end);
    if (from >= to) continue;
    out.media.push_back({.first_row = from - begin,
                         .n_rows = to - from,
                         .first_media_row = one.run.first_media_row + (from - one.run.first_prompt_row),
                         .key = one.key});
  }
  return out;
}

std::span<const Fingerprint> PrefixChain::keys(const PrefixTokens& tokens) {
  const auto n_whole = static_cast<std::size_t>(tokens.size() / kBlockTokens);
  while (keys_.size() < n_whole) {
    const PageContents contents = page(tokens, keys_.size());
    const auto is_unknown = [](const PageContents::Media& one) { return one.key.empty(); };
    if (std::any_of(contents.media.begin(), contents.media.end(), is_unknown)) break;
    keys_.push_back(contents.key(parent(keys_.size())));
  }
  return std::span(keys_).first(std::min(n_whole, keys_.size()));
}

}  // namespace triptych

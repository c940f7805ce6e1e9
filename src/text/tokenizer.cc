// Encoding and decoding: added tokens, normaliser, pre-tokenizer, model, post-processor, in this order.
#include "text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "text/tokenizer_impl.h"
#include "unicode/utf8.h"

namespace triptych {

// What must not arise inside the user's parts of a text.
struct TokenizerImpl::Plain {
  std::vector<ByteRange> ranges;
  IdSet banned_tokens;  // added tokens
  IdSet banned_ids;     // the same and byte tokens, for the model

  bool overlaps(std::size_t begin, std::size_t end) const {
    const auto it = std::partition_point(ranges.begin(), ranges.end(),
                                         [&](const ByteRange& range) { return range.end <= begin; });
    return it != ranges.end() && it->begin < end;
  }
};

struct TokenizerImpl::Work {
  std::vector<std::int32_t> ids;
  std::unique_ptr<EncodeScratch> scratch;
  const IdSet* banned_ids = nullptr;
  PieceList pieces;
  std::vector<AddedVocabulary::Segment> segments;
};

namespace {

void check_ranges(std::span<const ByteRange> ranges, std::size_t size) {
  std::size_t last = 0;
  for (const ByteRange& range : ranges) {
    if (range.begin < last || range.end < range.begin || range.end > size)
      fail(ErrorCode::kInvalidArgument,
           "plain_text: range [{}, {}) of a text of {} bytes is out of order or out of range", range.begin,
           range.end, size);
    last = range.end;
  }
}

// Replaces ill-formed bytes and moves the ranges along.
std::string sanitize_with_ranges(std::string_view text, std::vector<ByteRange>& ranges) {
  std::string out;
  out.reserve(text.size());
  std::vector<std::size_t> moved;
  for (std::size_t k = 0; k < ranges.size(); ++k) {
    moved.push_back(ranges[k].begin);
    moved.push_back(ranges[k].end);
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < text.size();) {
    const utf8::Step s = utf8::step(text.substr(i));
    for (; next < moved.size() && moved[next] < i + s.length; ++next) moved[next] = out.size();
    out.append(s.valid ? text.substr(i, s.length) : utf8::kReplacement);
    i += s.length;
  }
  for (; next < moved.size(); ++next) moved[next] = out.size();
  for (std::size_t k = 0; k < ranges.size(); ++k) ranges[k] = {moved[2 * k], moved[2 * k + 1]};
  return out;
}

}  // namespace

void TokenizerImpl::add_tokens(std::span<const AddedToken> tokens, AddedVocabulary::Ids ids) {
  added.add(tokens, ids, model->vocab(), normalizer.get(), source);
  added.build();
}

std::int32_t TokenizerImpl::find(std::string_view content) const {
  const std::int32_t id = added.find(content);
  return id >= 0 ? id : model->vocab().find(content);
}

std::string_view TokenizerImpl::decoded_content(std::int32_t id) const {
  return added.find(id) != nullptr ? added.decoded_content(id) : model->vocab().content(id);
}

bool TokenizerImpl::has_id(std::int32_t id) const {
  return added.find(id) != nullptr || model->vocab().has_id(id);
}

std::int32_t TokenizerImpl::id_limit() const { return std::max(added.id_limit(), model->vocab().id_limit()); }

TokenizerImpl::Plain TokenizerImpl::plain_rules(const EncodeOptions& options) const {
  Plain plain;
  for (const ByteRange& range : options.plain_text)
    if (range.begin < range.end) plain.ranges.push_back(range);
  if (plain.ranges.empty()) return plain;
  for (const AddedToken& token : added.tokens())
    if (token.special) plain.banned_tokens.insert(token.id);
  for (const std::string& content : options.never_in_plain_text) plain.banned_tokens.insert(find(content));
  for (const std::string& content : options.allowed_in_plain_text) plain.banned_tokens.erase(find(content));
  plain.banned_ids = plain.banned_tokens;
  model->add_byte_ids(plain.banned_ids);
  return plain;
}

std::vector<std::int32_t> TokenizerImpl::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() >= std::numeric_limits<std::int32_t>::max())
    fail(ErrorCode::kInvalidArgument, "a text of {} bytes cannot be tokenised", text.size());
  check_ranges(options.plain_text, text.size());
  Plain plain = plain_rules(options);
  std::string valid;
  if (!utf8::is_valid(text)) {
    valid = sanitize_with_ranges(text, plain.ranges);
    text = valid;
  }
  Work work;
  work.scratch = model->make_scratch();
  work.banned_ids = &plain.banned_ids;
  if (options.add_special_tokens) work.ids = post_processor.before;
  if (post_processor.keeps_text) {
    const AddedVocabulary::Filter filter = [&](std::int32_t id, std::size_t begin, std::size_t end) {
      return !plain.banned_tokens.contains(id) || !plain.overlaps(begin, end);
    };
    std::vector<AddedVocabulary::Segment> segments;
    added.split_raw(text, plain.ranges.empty() ? nullptr : &filter, segments);
    for (const auto& segment : segments) {
      if (segment.id >= 0)
        work.ids.push_back(segment.id);
      else
        encode_segment(text.substr(segment.begin, segment.end - segment.begin), segment.begin, plain, work);
    }
  }
  if (options.add_special_tokens)
    work.ids.insert(work.ids.end(), post_processor.after.begin(), post_processor.after.end());
  return std::move(work.ids);
}

void TokenizerImpl::encode_segment(std::string_view text, std::size_t offset, const Plain& plain,
                                   Work& work) const {
  const bool is_plain = plain.overlaps(offset, offset + text.size());
  if (normalizer == nullptr && !added.has_normalized()) {
    encode_pieces(text, {}, offset == 0, is_plain, work);
    return;
  }
  const bool tracked =
      (is_plain && added.has_normalized()) || (pre_tokenizer != nullptr && pre_tokenizer->needs_start());
  NormalizedText normal = NormalizedText::of(text, offset, tracked);
  if (normalizer != nullptr) normalizer->apply(normal);
  // User text must be told apart by where each byte came from.
  const auto overlaps = [&](std::size_t begin, std::size_t end) {
    if (!is_plain) return false;
    for (std::size_t i = begin; i < end; ++i)
      if (plain.overlaps(normal.origin[i], normal.origin[i] + std::size_t{1})) return true;
    return false;
  };
  const AddedVocabulary::Filter filter = [&](std::int32_t id, std::size_t begin, std::size_t end) {
    return !plain.banned_tokens.contains(id) || !overlaps(begin, end);
  };
  work.segments.clear();
  added.split_normalized(normal.text, is_plain ? &filter : nullptr, work.segments);
  for (const auto& segment : work.segments) {
    if (segment.id >= 0) {
      work.ids.push_back(segment.id);
      continue;
    }
    const bool at_start = tracked ? normal.origin[segment.begin] == 0 : offset == 0 && segment.begin == 0;
    const std::size_t length = segment.end - segment.begin;
    const auto origin = std::span<const std::uint32_t>(normal.origin)
                            .subspan(tracked ? segment.begin : 0, tracked ? length : 0);
    encode_pieces(std::string_view(normal.text).substr(segment.begin, length), origin, at_start, is_plain,
                  work);
  }
}

void TokenizerImpl::encode_pieces(std::string_view text, std::span<const std::uint32_t> origin, bool at_start,
                                  bool is_plain, Work& work) const {
  PieceContext context;
  context.banned = is_plain ? work.banned_ids : nullptr;
  context.scratch = work.scratch.get();
  if (pre_tokenizer == nullptr) {
    context.at_start = at_start;
    if (!text.empty()) model->encode(text, context, work.ids);
    return;
  }
  work.pieces.text = text;
  work.pieces.origin.assign(origin.begin(), origin.end());
  work.pieces.pieces.assign(1, Piece{0, static_cast<std::uint32_t>(text.size()), at_start});
  pre_tokenizer->apply(work.pieces);
  for (std::size_t i = 0; i < work.pieces.pieces.size(); ++i) {
    const std::string_view piece = work.pieces[i];
    context.at_start = work.pieces.pieces[i].at_start;
    if (!piece.empty()) model->encode(piece, context, work.ids);
  }
}

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerImpl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::unique_ptr<Tokenizer> Tokenizer::from_json(std::string_view text, std::string_view source_name) {
  return std::make_unique<Tokenizer>(parse_tokenizer_json(text, source_name));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view utf8, const EncodeOptions& options) const {
  return impl_->encode(utf8, options);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, const DecodeOptions& options) const {
  DecoderRun run(impl_->decoder);
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= impl_->id_limit())
      fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary of {}", id, impl_->id_limit());
    if (!impl_->has_id(id) || (impl_->added.is_special(id) && options.skips(id))) continue;
    run.token(impl_->decoded_content(id));
  }
  run.finish();
  return run.take();
}

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view content) const {
  const std::int32_t id = impl_->find(content);
  return id >= 0 ? std::optional(id) : std::nullopt;
}

std::string Tokenizer::id_to_token(std::int32_t id) const {
  if (const AddedToken* token = impl_->added.find(id)) return token->content;
  return std::string(impl_->model->vocab().content(id));
}

std::int32_t Tokenizer::vocab_size() const { return impl_->id_limit(); }
bool Tokenizer::is_special(std::int32_t id) const { return impl_->added.is_special(id); }
std::vector<AddedToken> Tokenizer::added_tokens() const { return impl_->added.tokens(); }
std::optional<std::int32_t> Tokenizer::bos_id() const { return impl_->bos; }
std::optional<std::int32_t> Tokenizer::eos_id() const { return impl_->eos; }
std::optional<std::int32_t> Tokenizer::pad_id() const { return impl_->pad; }
std::optional<std::int32_t> Tokenizer::unk_id() const { return impl_->unk; }

}  // namespace triptych

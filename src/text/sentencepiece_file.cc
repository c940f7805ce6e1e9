#include "text/sentencepiece_file.h"

#include <sentencepiece_processor.h>

#include <utility>

#include "base/error.h"
#include "text/charsmap.h"
#include "text/trie.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // ▁

// The character map over a whole text; user-defined pieces pass untouched.
class CharsmapNormalizer final : public Normalizer {
 public:
  CharsmapNormalizer(Charsmap map, const std::vector<SentencePieceProto::Piece>& pieces)
      : map_(std::move(map)) {
    std::vector<Trie::Key> keys;
    for (const auto& piece : pieces)
      if (piece.type == SentencePieceProto::Type::kUserDefined) keys.emplace_back(piece.text, 0);
    user_defined_ = Trie(std::move(keys));
  }
  void apply(NormalizedText& t) const override {
    NormalizedBuilder out(t);
    const std::string_view text = t.text;
    for (std::size_t i = 0; i < text.size();) {
      std::size_t n = 0;
      user_defined_.prefixes(text.substr(i), [&](std::size_t length, std::int32_t) { n = length; });
      std::size_t consumed = 0;
      const auto replacement = n == 0 ? map_.longest(text.substr(i), consumed) : std::nullopt;
      // A key that ends inside a character cannot be meant.
      const bool whole =
          i + consumed == text.size() || (static_cast<unsigned char>(text[i + consumed]) & 0xC0) != 0x80;
      if (replacement && whole) {
        out.insert(*replacement, i);
        i += consumed;
      } else {
        if (n == 0) n = utf8::length_of(text[i]);
        out.keep(i, i + n);
        i += n;
      }
    }
    out.finish();
  }

 private:
  Charsmap map_;
  Trie user_defined_;
};

class SentencePieceModel final : public TokenModel {
 public:
  SentencePieceModel(SentencePieceProto proto, bool legacy, bool prefix_space, std::string_view where)
      : is_bpe_(proto.is_bpe), legacy_(legacy), prefix_space_(prefix_space), unk_(proto.unk_id) {
    if (!legacy_) proto.add_dummy_prefix = false;
    const auto status = processor_.LoadFromSerializedProto(proto.serialize());
    if (!status.ok())
      fail(ErrorCode::kInvalidFile, "{}: SentencePiece refuses the model: {}", where, status.ToString());
    std::vector<Vocab::Entry> entries;
    entries.reserve(proto.pieces.size());
    for (auto& piece : proto.pieces) {
      const auto id = static_cast<std::int32_t>(entries.size());
      if (piece.type == SentencePieceProto::Type::kByte) byte_ids_.insert(id);
      entries.push_back({std::move(piece.text), id});
    }
    vocab_ = Vocab(entries, where);
    bytes_ = byte_token_ids(vocab_);
    has_bytes_ = proto.byte_fallback;
    if (!legacy_) unk_length_ = run(std::string(vocab_.content(unk_))).size();
  }

  const Vocab& vocab() const override { return vocab_; }
  bool is_bpe() const override { return is_bpe_; }

  void encode(std::string_view piece, const PieceContext& context,
              std::vector<std::int32_t>& out) const override {
    for (const std::int32_t id : encode_part(piece, context.at_start)) {
      if (context.banned != nullptr && context.banned->contains(id) && id != unk_)
        spell(vocab_.content(id), *context.banned, out);
      else
        out.push_back(id);
    }
  }

 private:
  std::vector<int> run(const std::string& text) const {
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    if (!status.ok())
      fail(ErrorCode::kInvalidArgument, "SentencePiece cannot encode the text: {}", status.ToString());
    return ids;
  }

  std::vector<int> encode_part(std::string_view piece, bool at_start) const {
    if (legacy_) return run(std::string(piece));
    // Without the dummy prefix the library strips a leading space: "<unk>" in front keeps it, and is cut off
    // again.
    std::string text;
    if (at_start && prefix_space_) text.append(kSpace);
    text.append(piece);
    if (!text.starts_with(kSpace) && !text.starts_with(' ')) return run(text);
    std::vector<int> ids = run(std::string(vocab_.content(unk_)) + text);
    if (ids.size() >= unk_length_)
      ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(unk_length_));
    return ids;
  }

  // Characters, else bytes, else unknown: for a token that user text must not become.
  void spell(std::string_view content, const IdSet& banned, std::vector<std::int32_t>& out) const {
    for (std::size_t i = 0; i < content.size();) {
      const std::size_t n = utf8::length_of(content[i]);
      const std::string_view character = content.substr(i, n);
      const std::int32_t id = vocab_.find(character);
      if (id >= 0 && !banned.contains(id)) {
        out.push_back(id);
      } else if (has_bytes_) {
        for (const char c : character) out.push_back(bytes_[static_cast<unsigned char>(c)]);
      } else {
        out.push_back(unk_);
      }
      i += n;
    }
  }

  sentencepiece::SentencePieceProcessor processor_;
  bool is_bpe_;
  bool legacy_;
  bool prefix_space_;
  std::int32_t unk_;
  Vocab vocab_;
  IdSet byte_ids_;
  std::vector<std::int32_t> bytes_;
  bool has_bytes_ = false;
  std::size_t unk_length_ = 0;
};

}  // namespace

std::unique_ptr<TokenizerImpl> parse_sentencepiece(std::string_view bytes, std::string_view source_name,
                                                   TokenizerConfig& config) {
  SentencePieceProto proto = SentencePieceProto::parse(bytes, source_name);
  auto impl = std::make_unique<TokenizerImpl>();
  impl->source = source_name;
  if (!proto.charsmap.empty())
    impl->normalizer =
        std::make_unique<CharsmapNormalizer>(Charsmap(proto.charsmap, source_name), proto.pieces);
  std::vector<AddedToken> special;
  const auto token_of = [&](std::int32_t id) {
    AddedToken token;
    token.content = proto.pieces[static_cast<std::size_t>(id)].text;
    token.id = id;
    token.special = true;
    return token;
  };
  for (std::size_t i = 0; i < proto.pieces.size(); ++i) {
    const auto type = proto.pieces[i].type;
    if (type == SentencePieceProto::Type::kControl || type == SentencePieceProto::Type::kUnknown)
      special.push_back(token_of(static_cast<std::int32_t>(i)));
  }
  if (!config.unk) config.unk = token_of(proto.unk_id);
  if (!config.bos && proto.bos_id >= 0) config.bos = token_of(proto.bos_id);
  if (!config.eos && proto.eos_id >= 0) config.eos = token_of(proto.eos_id);
  if (!config.pad && proto.pad_id >= 0) config.pad = token_of(proto.pad_id);
  // LlamaTokenizer's defaults.
  if (!config.add_bos) config.add_bos = true;
  if (!config.add_eos) config.add_eos = false;
  const bool prefix_space = config.add_prefix_space.value_or(true);
  impl->decoder = make_sentencepiece_decoder(proto.add_dummy_prefix && prefix_space);
  impl->model = std::make_unique<SentencePieceModel>(std::move(proto), config.legacy.value_or(true),
                                                     prefix_space, source_name);
  impl->add_tokens(special, AddedVocabulary::Ids::kAsGiven);
  return impl;
}

}  // namespace triptych

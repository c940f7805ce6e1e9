// Decoders of tokenizer.json ("decoder"): ByteLevel, Metaspace, ByteFallback, Fuse, Strip, Replace,
// WordPiece, BPEDecoder, Sequence. Each is a stage that text flows through token by token, so that one code
// serves both whole decoding and streaming: a chunk comes out as soon as nothing that follows can change it.
//
// One difference from Hugging Face tokenizers 0.23, on purpose: bytes of a fallback that form no valid text
// become one U+FFFD per maximal ill-formed part, and the valid characters among them stay. The reference
// replaces every byte of such a run, the valid ones too, which no stream could know in time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace triptych {

/// Takes tokens as fragments of text; every fragment is whole characters of valid UTF-8.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void text(std::string_view fragment) = 0;
  virtual void end_token() = 0;
  /// No more tokens: pass on what was held back.
  virtual void finish() = 0;
};

/// The state of one stage; feeds the next.
class DecodeStage : public TokenSink {
 public:
  explicit DecodeStage(TokenSink& next) : next_(&next) {}

 protected:
  TokenSink& next() { return *next_; }

 private:
  TokenSink* next_;
};

/// One token on its way through the stages, whatever stands around it.
struct LoneToken {
  std::string bytes;               // not always whole characters
  bool is_joined = false;          // from here on it is not told apart from those around it
  bool drops_first_blank = false;  // a blank that begins it goes where it is the first of a text
  bool is_certain = true;          // its bytes do not depend on those around it
};

/// What a file says about one stage; makes its state for one decoding.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual std::unique_ptr<DecodeStage> start(TokenSink& next) const = 0;
  /// The stage's part of a token's bytes. What tidies up blanks in a finished text changes nothing here.
  virtual void pass(LoneToken& token) const = 0;
};

using DecoderChain = std::vector<std::unique_ptr<TokenDecoder>>;

/// From the JSON value of "decoder", sequences flattened. A JSON null gives a chain that joins tokens with
/// spaces. Throws Error(kInvalidFile), also for replacements that could make a text many times as long, or
/// Error(kUnsupported) that names an unknown type.
DecoderChain parse_decoder(const JsonView& view);

/// What tokenizer.model implies: "▁" -> space, bytes of a fallback, at most one leading space off.
DecoderChain make_sentencepiece_decoder(bool strip_leading_space);
/// Removes spaces before punctuation and contractions, as clean_up_tokenization_spaces asks for; goes last.
std::unique_ptr<TokenDecoder> make_cleanup_decoder();

/// A chain at work: tokens in, text out.
class DecoderRun {
 public:
  explicit DecoderRun(const DecoderChain& chain);
  ~DecoderRun();
  DecoderRun(const DecoderRun&) = delete;
  DecoderRun& operator=(const DecoderRun&) = delete;

  void token(std::string_view content);
  void finish();
  /// What came out since the last call.
  std::string take();

 private:
  struct Collector;
  std::unique_ptr<Collector> collector_;
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // last stage first
};

}  // namespace triptych

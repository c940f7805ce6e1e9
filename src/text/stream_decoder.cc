#include "text/stream_decoder.h"

#include <utility>

#include "base/error.h"
#include "text/tokenizer_impl.h"
#include "unicode/utf8.h"

namespace triptych {

struct StreamDecoder::State {
  const TokenizerImpl& impl;
  DecodeOptions options;
  std::unique_ptr<DecoderRun> run;
  std::string prompt_rest;  // text of the prompt that the stages still hold: not to be emitted

  State(const TokenizerImpl& tokenizer, DecodeOptions how)
      : impl(tokenizer), options(how), run(std::make_unique<DecoderRun>(tokenizer.decoder)) {}

  void push(std::int32_t id) {
    if (id < 0 || id >= impl.id_limit())
      fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary of {}", id, impl.id_limit());
    if (!impl.has_id(id) || (impl.added.is_special(id) && options.skips(id))) return;
    run->token(impl.decoded_content(id));
  }

  std::string take() {
    std::string out = run->take();
    std::size_t same = 0;
    while (same < out.size() && same < prompt_rest.size()) {
      const std::size_t n = utf8::length_of(out[same]);
      if (prompt_rest.compare(same, n, out, same, n) != 0) break;
      same += n;
    }
    // Where the two part, what the prompt held has become something else (a character was completed).
    if (same < out.size()) prompt_rest.clear();
    prompt_rest.erase(0, same);
    out.erase(0, same);
    return out;
  }
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options,
                             std::span<const std::int32_t> prompt)
    : state_(std::make_unique<State>(tokenizer.impl(), options)) {
  if (prompt.empty()) return;
  for (const std::int32_t id : prompt) state_->push(id);
  const std::string certain = state_->run->take();
  const std::string whole = tokenizer.decode(prompt, options);
  if (whole.starts_with(certain)) state_->prompt_rest = whole.substr(certain.size());
}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(std::int32_t id) {
  state_->push(id);
  return state_->take();
}

std::string StreamDecoder::finish() {
  state_->run->finish();
  std::string out = state_->take();
  state_->prompt_rest.clear();
  state_->run = std::make_unique<DecoderRun>(state_->impl.decoder);
  return out;
}

}  // namespace triptych

#include "text/token_bytes.h"

#include "base/error.h"
#include "text/tokenizer_impl.h"

namespace triptych {

TokenBytes token_bytes(const Tokenizer& tokenizer) {
  const TokenizerImpl& impl = tokenizer.impl();
  TokenBytes out;
  out.tokens.resize(static_cast<std::size_t>(impl.id_limit()));
  for (std::int32_t id = 0; id < impl.id_limit(); ++id) {
    if (!impl.has_id(id) || impl.added.is_special(id)) continue;
    LoneToken token{.bytes = std::string(impl.decoded_content(id))};
    for (const auto& decoder : impl.decoder) decoder->pass(token);
    if (!token.is_certain)
      fail(ErrorCode::kUnsupported,
           "{}: answers under a constraint need tokens with bytes of their own; this decoder makes them of "
           "several tokens",
           impl.source);
    out.drops_first_blank |= token.drops_first_blank;
    out.tokens[static_cast<std::size_t>(id)] = std::move(token.bytes);
  }
  return out;
}

}  // namespace triptych

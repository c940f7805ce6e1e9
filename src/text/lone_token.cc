// TokenDecoder::pass of each stage: bytes of a token without those around it.
#include <algorithm>

#include "text/byte_level.h"
#include "text/decode_stages.h"

namespace triptych {

void ByteLevelStage::pass(LoneToken& token) {
  if (auto bytes = byte_level::decode(token.bytes)) token.bytes = std::move(*bytes);
  token.is_joined = true;
}

void ByteFallbackStage::pass(LoneToken& token) {
  if (const int byte = fallback_byte(token.bytes); byte >= 0) token.bytes.assign(1, static_cast<char>(byte));
}

void FuseStage::pass(LoneToken& token) { token.is_joined = true; }

// Of the joined text it is the first blank that goes; more is not known of a token alone.
void StripStage::pass(LoneToken& token, const std::string& content, std::size_t start, std::size_t stop) {
  if (token.is_joined) {
    token.drops_first_blank |= start > 0;
    token.is_certain &= stop == 0 && (start == 0 || (start == 1 && content == " "));
    return;
  }
  for (std::size_t n = 0; n < start && token.bytes.starts_with(content); ++n)
    token.bytes.erase(0, content.size());
  for (std::size_t n = 0; n < stop && token.bytes.ends_with(content); ++n)
    token.bytes.resize(token.bytes.size() - content.size());
}

void ReplaceStage::pass(LoneToken& token, const std::shared_ptr<const Regex>& pattern,
                        const std::string& content) {
  token.is_certain &= !token.is_joined;
  token.bytes = replaced(token.bytes, *pattern, content);
}

void MetaspaceStage::pass(LoneToken& token, const std::string& replacement, bool prepends) {
  std::string out;
  for (std::size_t at = 0; at < token.bytes.size();) {
    if (token.bytes.compare(at, replacement.size(), replacement) == 0) {
      out.push_back(' ');
      at += replacement.size();
    } else {
      out.push_back(token.bytes[at++]);
    }
  }
  token.bytes = std::move(out);
  token.drops_first_blank |= prepends;
}

void WordPieceStage::pass(LoneToken& token, const std::string& prefix, bool /*cleanup*/) {
  if (token.bytes.starts_with(prefix))
    token.bytes.erase(0, prefix.size());
  else
    token.bytes.insert(token.bytes.begin(), ' ');
  token.drops_first_blank = true;
}

// The suffix is a blank, but for the last token.
void BpeSuffixStage::pass(LoneToken& token, const std::string& /*suffix*/) { token.is_certain = false; }

void JoinStage::pass(LoneToken& token) {
  token.bytes.insert(token.bytes.begin(), ' ');
  token.drops_first_blank = true;
}

void CleanupStage::pass(LoneToken& /*token*/) {}

}  // namespace triptych

#include "text/charsmap.h"

#include <cstring>

#include "base/error.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

std::uint32_t read_u32(std::string_view bytes, std::size_t at) {
  std::uint32_t out = 0;
  for (std::size_t k = 0; k < 4; ++k)
    out |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + k])) << (8 * k);
  return out;
}

// Fields of a Darts-clone unit.
bool has_leaf(std::uint32_t unit) { return ((unit >> 8) & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFU; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FFU; }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view blob, std::string_view where) {
  if (blob.size() < 4) fail(ErrorCode::kInvalidFile, "{}: a character map of {} bytes", where, blob.size());
  const std::size_t trie_bytes = read_u32(blob, 0);
  if (trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4)
    fail(ErrorCode::kInvalidFile, "{}: the character map says {} bytes of trie, {} follow", where, trie_bytes,
         blob.size() - 4);
  units_.resize(trie_bytes / 4);
  for (std::size_t i = 0; i < units_.size(); ++i) units_[i] = read_u32(blob, 4 + 4 * i);
  replacements_ = blob.substr(4 + trie_bytes);
  if (!utf8::is_valid(replacements_))
    fail(ErrorCode::kInvalidFile, "{}: the character map's replacements are not UTF-8", where);
}

std::optional<std::string_view> Charsmap::shortest(std::string_view text) const {
  std::size_t consumed = 0;
  return find(text, false, consumed);
}

std::optional<std::string_view> Charsmap::longest(std::string_view text, std::size_t& consumed) const {
  return find(text, true, consumed);
}

std::optional<std::string_view> Charsmap::find(std::string_view text, bool longest,
                                               std::size_t& consumed) const {
  std::optional<std::uint32_t> found;
  consumed = 0;
  std::size_t node = 0;
  if (!units_.empty()) node = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size() && !units_.empty(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == 0) break;
    node ^= c;
    if (node >= units_.size() || label_of(units_[node]) != c) break;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (has_leaf(unit) && node < units_.size()) {
      found = value_of(units_[node]);
      consumed = i + 1;
      if (!longest) break;
    }
  }
  if (!found || *found > replacements_.size()) return std::nullopt;
  const std::string_view rest = std::string_view(replacements_).substr(*found);
  const std::string_view out = rest.substr(0, rest.find('\0'));
  // A value that points into the middle of a character would break the text.
  if (!out.empty() && (static_cast<unsigned char>(out[0]) & 0xC0) == 0x80) return std::nullopt;
  return out;
}

}  // namespace triptych

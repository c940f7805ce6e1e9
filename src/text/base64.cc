#include "text/base64.h"

#include <sodium.h>

#include <algorithm>

namespace triptych {

std::optional<std::string> base64_decode(std::string_view text) {
  for (int pad = 0; pad < 2 && !text.empty() && text.back() == '='; ++pad) text.remove_suffix(1);
  // libsodium's comparisons hold for ASCII: of other bytes it makes bits.
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) > 0x7F; }))
    return std::nullopt;
  std::string out(text.size() / 4 * 3 + 2, '\0');
  std::size_t n_bytes = 0;
  // Without a place for the end of what was read, anything left over is an error.
  if (sodium_base642bin(reinterpret_cast<unsigned char*>(out.data()), out.size(), text.data(), text.size(),
                        nullptr, &n_bytes, nullptr, sodium_base64_VARIANT_ORIGINAL_NO_PADDING) != 0)
    return std::nullopt;
  out.resize(n_bytes);
  return out;
}

}  // namespace triptych

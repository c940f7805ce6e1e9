// Base64 as tokenizer files use it (RFC 4648, standard alphabet, padding optional at the end).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace triptych {

/// The bytes, or nothing when a character, the length or the bits beyond the last byte are wrong.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace triptych

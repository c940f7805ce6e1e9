// Names that come from files, made fit for messages and checked before they are used as names.
#pragma once

#include <string>
#include <string_view>

namespace triptych {

/// `text` in double quotes with control characters and bytes that are not UTF-8 escaped; long ones are cut.
std::string show_name(std::string_view text);

/// True when `text` is well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms).
bool is_utf8(std::string_view text) noexcept;

}  // namespace triptych

// The members of a zip archive in memory: stored (not compressed), zip64 allowed. Nothing is unpacked or
// copied. Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace triptych {

/// Member name -> its bytes, all within `archive`; names point into it too. Throws Error(kInvalidFile) that
/// names `source` for anything inconsistent, kUnsupported for compressed or encrypted members.
std::map<std::string_view, std::span<const std::byte>> read_zip(std::span<const std::byte> archive,
                                                                std::string_view source);

}  // namespace triptych

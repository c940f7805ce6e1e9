// Text in HTML.
#pragma once

#include <string>
#include <string_view>

namespace triptych {

/// For element text and quoted attributes, of HTML and of XML: markup characters as references, bytes that
/// are not UTF-8 and characters that XML forbids as U+FFFD.
std::string html_escape(std::string_view text);

}  // namespace triptych

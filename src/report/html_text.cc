#include "report/html_text.h"

#include <nlohmann/json.hpp>

#include "report/json_text.h"

namespace triptych {

std::string html_escape(std::string_view text) {
  // The JSON writer replaces what is not UTF-8.
  const std::string valid =
      JsonOut::parse(JsonOut(text).dump(-1, ' ', false, JsonOut::error_handler_t::replace))
          .get<std::string>();
  std::string out;
  out.reserve(valid.size());
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const auto c = static_cast<unsigned char>(valid[i]);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      out += "\xEF\xBF\xBD";
    } else if (c == 0xef &&
               (valid.compare(i, 3, "\xEF\xBF\xBE") == 0 || valid.compare(i, 3, "\xEF\xBF\xBF") == 0)) {
      out += "\xEF\xBF\xBD";  // U+FFFE, U+FFFF
      i += 2;
    } else {
      out += valid[i];
    }
  }
  return out;
}

}  // namespace triptych

#include "io/untrusted_text.h"

#include <cstddef>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace triptych {

std::string show_name(std::string_view text) {
  constexpr std::size_t kMaxShown = 120;
  const bool is_cut = text.size() > kMaxShown;
  std::string out =
      Json(std::string(text.substr(0, kMaxShown))).dump(-1, ' ', true, Json::error_handler_t::replace);
  if (is_cut) out += "...";
  return out;
}

bool is_utf8(std::string_view text) noexcept {
  const auto byte = [text](std::size_t i) {
    return static_cast<unsigned>(static_cast<unsigned char>(text[i]));
  };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i);
    const std::size_t n_more = lead < 0x80   ? 0
                               : lead < 0xc2 ? 9
                               : lead < 0xe0 ? 1
                               : lead < 0xf0 ? 2
                               : lead < 0xf5 ? 3
                                             : 9;
    if (n_more == 9 || text.size() - i <= n_more) return false;
    for (std::size_t k = 1; k <= n_more; ++k)
      if ((byte(i + k) & 0xc0u) != 0x80) return false;
    const unsigned second = n_more > 0 ? byte(i + 1) : 0;
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f))
      return false;
    i += n_more + 1;
  }
  return true;
}

}  // namespace triptych

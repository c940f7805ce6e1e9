// Sources: RFC 3339 (date, time, date-time; without leap seconds), its appendix A (duration), RFC 4122
// (uuid), RFC 2673 3.2 (ipv4), RFC 4291 2.2 (ipv6; without embedded ipv4), RFC 1123 (hostname), and of RFC
// 5321's mailboxes those without quoted or numeric parts (email).
#include "grammar/json_formats.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace triptych {
namespace {

#define TRIPTYCH_MONTH_AND_DAY \
  "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define TRIPTYCH_LEAP_YEAR "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
#define TRIPTYCH_DATE "([0-9]{4}-" TRIPTYCH_MONTH_AND_DAY "|" TRIPTYCH_LEAP_YEAR "-02-29)"
#define TRIPTYCH_TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define TRIPTYCH_LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define TRIPTYCH_HOST TRIPTYCH_LABEL "(\\." TRIPTYCH_LABEL "){0,3}"
#define TRIPTYCH_H16 "[0-9a-fA-F]{1,4}"

constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kFormats = {{
    {"date", TRIPTYCH_DATE},
    {"date-time", TRIPTYCH_DATE "T" TRIPTYCH_TIME},
    {"duration",
     "P([0-9]{1,9}W|(([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}D)(T("
     "[0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))?|T([0-9]{1,9}H([0-9]{1,"
     "9}M("
     "[0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S)))"},
    {"email", "[a-zA-Z0-9_+-]{1,32}(\\.[a-zA-Z0-9_+-]{1,15}){0,1}@" TRIPTYCH_HOST},
    {"hostname", TRIPTYCH_HOST},
    {"ipv4",
     "((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"},
    {"ipv6", "((" TRIPTYCH_H16 ":){7}" TRIPTYCH_H16 "|::(" TRIPTYCH_H16 "(:" TRIPTYCH_H16
             "){0,5})?|" TRIPTYCH_H16 "::(" TRIPTYCH_H16 "(:" TRIPTYCH_H16 "){0,4})?|" TRIPTYCH_H16
             ":" TRIPTYCH_H16 "::(" TRIPTYCH_H16 "(:" TRIPTYCH_H16 "){0,3})?)"},
    {"time", TRIPTYCH_TIME},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
}};

#undef TRIPTYCH_MONTH_AND_DAY
#undef TRIPTYCH_LEAP_YEAR
#undef TRIPTYCH_DATE
#undef TRIPTYCH_TIME
#undef TRIPTYCH_LABEL
#undef TRIPTYCH_HOST
#undef TRIPTYCH_H16

}  // namespace

std::string_view pattern_of_format(std::string_view format) {
  for (const auto& [name, pattern] : kFormats)
    if (name == format) return pattern;
  return {};
}

std::string known_formats() {
  std::string out;
  for (const auto& [name, pattern] : kFormats) out += fmt::format("{}{}", out.empty() ? "" : ", ", name);
  return out;
}

}  // namespace triptych

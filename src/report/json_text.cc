#include "report/json_text.h"

#include <nlohmann/json.hpp>

namespace triptych {

std::string to_json_text(const JsonOut& value, bool indented) {
  return value.dump(indented ? 2 : -1, ' ', false, JsonOut::error_handler_t::replace);
}

}  // namespace triptych

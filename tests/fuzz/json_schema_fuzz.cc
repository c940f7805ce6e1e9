// A JSON schema of arbitrary bytes. Where it is taken, texts that it lets through are JSON.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "grammar/json_schema.h"
#include "grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  if (size > 1 << 14) return 0;
  return fuzz::only_errors([&] {
    for (std::uint32_t seed = 0; seed < 3; ++seed)
      fuzz::walk(compile_json_schema({reinterpret_cast<const char*>(data), size}, "fuzz"), seed, 200,
                 [](const std::string& text) { fuzz::require(Json::accept(text), "a whole text is JSON"); });
  });
}

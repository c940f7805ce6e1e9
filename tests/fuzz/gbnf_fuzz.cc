// A GBNF grammar of arbitrary bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "grammar/gbnf.h"
#include "grammar_walk.h"
#include "unicode/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  if (size > 1 << 12) return 0;
  return fuzz::only_errors([&] {
    fuzz::walk(compile_gbnf({reinterpret_cast<const char*>(data), size}, "fuzz"),
               static_cast<std::uint32_t>(size), 100,
               [](const std::string& text) { fuzz::require(utf8::is_valid(text), "a whole text is UTF-8"); });
  });
}

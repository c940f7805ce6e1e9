// The reader of allocation traces on arbitrary bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "benchmark/allocation_file.h"
#include "only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  return fuzz::only_errors([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto events = parse_allocations(text, "fuzz");
    fuzz::require(parse_allocations(allocation_text(events), "again") == events, "what is written is read");
  });
}

// The index of a sharded checkpoint on arbitrary text.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "io/checkpoint.h"
#include "only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  return fuzz::only_errors([&] {
    const auto index = parse_weight_index({reinterpret_cast<const char*>(data), size}, "fuzz");
    fuzz::require(!index.empty(), "an index has entries");
    for (const auto& [tensor, file] : index) {
      fuzz::require(is_plain_file_name(file), "plain file names only");
      fuzz::require(file.find('/') == std::string::npos && file != "..", "no way out of the folder");
    }
  });
}

// The safetensors reader on arbitrary bytes.
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "io/safetensors.h"
#include "only_errors.h"
#include "touch_weights.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  return fuzz::only_errors([&] {
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
    std::map<std::string, std::string> metadata;
    const WeightTable table = read_safetensors(bytes, nullptr, "fuzz", &metadata);
    fuzz::touch(table);
    fuzz::require(table.total_bytes() <= size, "no more tensor bytes than the file has");
  });
}

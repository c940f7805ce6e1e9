// Data URLs: what is taken has data, and not more than the text could hold.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "only_errors.h"
#include "server/media_url.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  return fuzz::only_errors([&] {
    const server::DataUrl url = server::parse_data_url(text);
    fuzz::require(!url.bytes.empty() && url.bytes.size() <= size, "the data come from the text");
  });
}

// Arbitrary text as a recipe of `triptych compress`.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "compress/recipe.h"
#include "only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  return fuzz::only_errors([&] {
    const compress::Recipe recipe = compress::parse_recipe(text, "recipe.yaml");
    fuzz::require(compress::make_passes(recipe).size() == recipe.passes.size(), "every pass can be made");
    const std::string written = compress::to_yaml(recipe);
    fuzz::require(compress::to_yaml(compress::parse_recipe(written, "again")) == written,
                  "what is written is read as it was");
  });
}

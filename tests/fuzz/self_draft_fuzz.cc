// Arbitrary text as a config.json that says which layers drafts leave out, for models of several depths.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "engine/self_draft.h"
#include "only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::only_errors([&] {
    const Json json = parse_json(text, "config.json");
    for (const int n_layers : {1, 2, 12, 80})
      fuzz::only_errors([&] {
        const SelfDraft draft = read_self_draft(JsonView(json, "config.json"), n_layers);
        if (draft.skipped_layers.empty()) return;
        check_skipped_layers("what was read", draft.skipped_layers, n_layers);
        const Json written = {{"self_draft", to_json(draft)}};
        const SelfDraft again = read_self_draft(JsonView(written, "config.json"), n_layers);
        fuzz::require(again.skipped_layers == draft.skipped_layers, "what is written is read as it was");
      });
  });
  return 0;
}

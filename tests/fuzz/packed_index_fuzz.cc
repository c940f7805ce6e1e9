// Arbitrary text as the triptych.json of a converted checkpoint, beside a small fixed weight file.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <nlohmann/json.hpp>

#include "only_errors.h"
#include "weights/packed_weights.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  return fuzz::only_errors([&] {
    const Json json = parse_json_unique_keys(text, "triptych.json");
    const PackedIndex index = PackedIndex::parse(JsonView(json, "triptych.json"));
    const PackedIndex again = PackedIndex::parse(JsonView(index.to_json(), "triptych.json"));
    fuzz::require(again.to_json() == index.to_json(), "what is written is read as it was");
    const auto memory = std::make_shared<Tensor>(Tensor::zeros(DType::kU8, {4096}));
    WeightTable table;
    for (const char* name :
         {"a.weight.panels", "a.weight.column_scales", "a.weight.compensated_bias", "b.weight",
          "a.weight[0:4].panels", "a.weight[4:8].column_scales", "c.weight[0:12].panels"})
      table.add({name, memory->view(), memory, "fuzz"});
    PackedWeights weights(table, index);
    weights.rename([](std::string_view name) { return "x." + std::string(name); });
    for (const StoredLinear& linear : index.linears) {
      LinearKey key{.name = "x." + linear.id.name,
                    .part = linear.id.part,
                    .n_out = linear.n_out,
                    .n_in = linear.n_in,
                    .matrices = {},
                    .n_rows = linear.n_rows,
                    .biases = {}};
      for (const std::string& name : linear.matrices) key.matrices.push_back("x." + name);
      for (const std::string& name : linear.biases) key.biases.push_back(name.empty() ? "" : "x." + name);
      fuzz::require(weights.packed(key) != nullptr, "a linear under its key");
      fuzz::require(weights.published_name(key.name) == linear.id.name, "its published name");
    }
  });
}

// The models that ship, and those with reference values where there are any: replayed decode steps give the
// bits of steps that go through the model, in every format.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "engine/engine.h"
#include "io/mapped_file.h"
#include "models/model.h"
#include "support/shared_dir.h"
#include "support/source_dir.h"
#include "tensor/quant_format.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

// The shared folder also holds models of families that this program does not know yet.
bool is_supported(const fs::path& directory) {
  const Json config = parse_json(read_text_file(directory / "config.json"), "config.json");
  const auto architecture = config.at("architectures").at(0).get<std::string>();
  const auto& families = ModelRegistry::global().families();
  return std::any_of(families.begin(), families.end(), [&](const auto& family) {
    const auto& known = family.architectures;
    return std::find(known.begin(), known.end(), architecture) != known.end();
  });
}

std::vector<fs::path> model_directories() {
  std::vector<fs::path> out;
  const auto take_all = [&](const fs::path& root) {
    for (const auto& entry : fs::directory_iterator(root))
      if (fs::exists(entry.path() / "config.json") && is_supported(entry.path())) out.push_back(entry.path());
  };
  take_all(test::source_dir() / "assets/models");
  if (const fs::path golden = test::shared_dir() / "golden/models"; fs::exists(golden)) take_all(golden);
  return out;
}

// All logits of an answer of fixed tokens.
std::vector<float> decode(LoadedModel& model, KvDType cache, bool replay) {
  constexpr int kSteps = 80;  // a page holds 64 tokens
  Engine engine(model, {.max_context_tokens = kSteps + 8, .kv_cache_dtype = cache, .replay_steps = replay});
  PreparedRequest request;
  request.token_ids = {5, 6, 7, 8};
  request.layout = model.model().expand_prompt(request.token_ids, {});
  engine.forward_prompt(request, nullptr);
  std::vector<float> out;
  for (int i = 0; i < kSteps; ++i) {
    const TensorView logits = engine.forward_next(5 + i % 50, nullptr);
    out.insert(out.end(), logits.cf32(), logits.cf32() + logits.numel());
  }
  EXPECT_EQ(engine.n_replayed_steps(), replay ? kSteps - 1 : 0);
  return out;
}

TEST(Replay, SameBitsForEveryModelAndFormat) {
  constexpr struct {
    const char* weights;
    KvDType cache;
  } kFormats[] = {{"", KvDType::kF32},
                  {"int8", KvDType::kInt8},
                  {"int4:g32", KvDType::kF16},
                  {"int4:g32", KvDType::kInt4},
                  {"nf4:g64", KvDType::kFp8}};
  for (const fs::path& directory : model_directories())
    for (const auto& format : kFormats)
      for (const int n_threads : {1, 2}) {
        LoadOptions options;
        options.n_threads = n_threads;
        if (*format.weights != 0) options.weight_formats.language = QuantFormat::parse(format.weights);
        const auto model = LoadedModel::open(directory, options);
        const std::vector<float> replayed = decode(*model, format.cache, true);
        const std::vector<float> plain = decode(*model, format.cache, false);
        ASSERT_EQ(replayed.size(), plain.size());
        EXPECT_EQ(std::memcmp(replayed.data(), plain.data(), plain.size() * sizeof(float)), 0)
            << directory << " " << format.weights << ", " << n_threads << " threads";
      }
}

}  // namespace
}  // namespace triptych

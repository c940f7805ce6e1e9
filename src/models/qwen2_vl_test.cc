// Qwen2-VL against the reference implementation's values, and what its configuration and prompts must refuse.
#include <gmock/gmock.h>

#include "models/testing/golden_run.h"
#include "support/shared_dir.h"

namespace triptych {
namespace {

using test::GoldenModel;
using ::testing::HasSubstr;

const std::filesystem::path kOwnGolden = std::filesystem::path(TRIPTYCH_SOURCE_DIR) / "tests/data/golden/qwen2_vl";

void run_all(GoldenModel& model, const std::filesystem::path& golden, int least_cases) {
  int n = 0;
  for (const Json& one : model.cases(golden)) {
    const GoldenModel::Result r = model.run(golden, one);
    fmt::print("  {:<12} {:3} tokens {:2} taps, worst {:.1e} ({}), pixels {:.1e}, {} of {} tokens equal\n",
               one.at("name").get<std::string>(), one.at("input_ids").size(), r.n_taps, r.worst, r.worst_name,
               r.pixels, r.n_greedy_equal, one.at("generated_ids").size());
    ++n;
  }
  EXPECT_GE(n, least_cases);
}

TEST(Qwen2Vl, SharedReferenceValues) {
  TRIPTYCH_SHARED_OR_SKIP(directory, "golden/models/qwen2_vl");
  GoldenModel model(directory);
  run_all(model, directory, 7);
}

TEST(Qwen2Vl, TrainedModel) {
  TRIPTYCH_SHARED_OR_SKIP(directory, "golden/trained/qwen2_vl");
  GoldenModel model(directory);
  run_all(model, directory / "golden", 4);
}

}  // namespace
}  // namespace triptych

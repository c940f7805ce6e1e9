// Qwen2.5-VL against the reference implementation's values.
#include <gmock/gmock.h>

#include "models/testing/golden_run.h"
#include "support/shared_dir.h"

namespace triptych {
namespace {

using test::GoldenModel;

// The reference made the video case with limits of its own, in which its frames need no resizing.
constexpr MediaOptions kVideoLimits{.min_pixels = 28 * 28 * 4, .max_pixels = 28 * 28 * 400};

void run_all(GoldenModel& model, const std::filesystem::path& golden, int least_cases) {
  int n = 0;
  for (const Json& one : model.cases(golden)) {
    const GoldenModel::Result r =
        model.run(golden, one, 1e-4, one.value("video", false) ? kVideoLimits : MediaOptions{});
    fmt::print("  {:<12} {:3} tokens {:2} taps, worst {:.1e} ({}), pixels {:.1e}, {} of {} tokens equal\n",
               one.at("name").get<std::string>(), one.at("input_ids").size(), r.n_taps, r.worst, r.worst_name,
               r.pixels, r.n_greedy_equal, one.at("generated_ids").size());
    ++n;
  }
  EXPECT_GE(n, least_cases);
}

TEST(Qwen25Vl, SharedReferenceValues) {
  TRIPTYCH_SHARED_OR_SKIP(directory, "golden/models/qwen2_5_vl");
  GoldenModel model(directory);
  run_all(model, directory, 7);
}

}  // namespace
}  // namespace triptych

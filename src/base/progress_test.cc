#include "base/progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace triptych {
namespace {

TEST(ProgressBar, Renders) {
  EXPECT_EQ(ProgressBar::render("Packing", 6, 24, 10, "layer 6", 200),
            "Packing [######                  ]  25% 6/24 0:10 left 0:30  layer 6");
  EXPECT_EQ(ProgressBar::render("Packing", 24, 24, 3725, "", 200),
            "Packing [########################] 100% 24/24 1:02:05");
  EXPECT_EQ(ProgressBar::render("Reading", 7, 0, 61, "", 200), "Reading 7 1:01");
  EXPECT_EQ(ProgressBar::render("Packing", 0, 24, 0, "", 200),
            "Packing [                        ]   0% 0/24 0:00");
}

TEST(ProgressBar, FitsTheTerminal) {
  for (int width = 0; width < 90; ++width)
    EXPECT_LE(ProgressBar::render("Packing", 1, 3, 5, "a long name of a layer", width).size(),
              static_cast<std::size_t>(width));
}

TEST(ProgressBar, ClampsStrangeCounts) {
  EXPECT_EQ(ProgressBar::render("x", 9, 3, 1, "", 99), ProgressBar::render("x", 3, 3, 1, "", 99));
  EXPECT_EQ(ProgressBar::render("x", -9, 3, 1, "", 99), ProgressBar::render("x", 0, 3, 1, "", 99));
}

TEST(ProgressBar, WritesNothingWithoutATerminal) {
  if (isatty(STDERR_FILENO) == 1) GTEST_SKIP() << "stderr is a terminal";
  testing::internal::CaptureStderr();
  {
    ProgressBar bar("Packing", 3);
    for (int i = 0; i <= 3; ++i) bar.update(i);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace triptych

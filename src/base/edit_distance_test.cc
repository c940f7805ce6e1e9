#include "base/edit_distance.h"

#include <gtest/gtest.h>

#include <vector>

namespace triptych {
namespace {

TEST(EditDistance, CountsChanges) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("sitting", "kitten"), 3U);
  EXPECT_EQ(edit_distance("rnu", "run"), 1U);
  EXPECT_EQ(edit_distance("abcd", "badc"), 2U);
}

TEST(EditDistance, NearestNames) {
  const std::vector<std::string> names = {"--prompt", "--prompt-file", "--image", "--max-tokens", "-v"};
  EXPECT_EQ(nearest_name("--promt", names), "--prompt");
  EXPECT_EQ(nearest_name("--prompt-flie", names), "--prompt-file");
  EXPECT_EQ(nearest_name("--images", names), "--image");
  EXPECT_EQ(nearest_name("--max-tok", names), "--max-tokens");
  EXPECT_EQ(nearest_name("--zzzz", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name(std::string(1000, 'x'), names), "");
  EXPECT_EQ(nearest_name("--image", {}), "");
}

}  // namespace
}  // namespace triptych

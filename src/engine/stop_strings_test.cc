#include "engine/stop_strings.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

// Feeds the text in all ways to cut it into pieces of `n` bytes.
std::string feed(std::vector<std::string> stops, std::string_view text, std::size_t n,
                 bool* found = nullptr) {
  StopStrings s(std::move(stops));
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += n) out += s.push(text.substr(i, n));
  out += s.finish();
  if (found != nullptr) *found = s.found();
  return out;
}

TEST(StopStrings, EndsBeforeTheStringHoweverTheTextIsCut) {
  for (std::size_t n = 1; n < 12; ++n) {
    bool found = false;
    EXPECT_EQ(feed({"###"}, "one ## two ### three", n, &found), "one ## two ") << n;
    EXPECT_TRUE(found);
    EXPECT_EQ(feed({"aab"}, "aaab!", n, &found), "a") << n;
    EXPECT_EQ(feed({"xyz", "b c"}, "a b c xyz", n, &found), "a ") << n;
  }
}

TEST(StopStrings, WithoutAMatchAllTextComesOut) {
  for (std::size_t n = 1; n < 8; ++n) {
    bool found = true;
    EXPECT_EQ(feed({"STOP", "TOPS"}, "no STO here, STO", n, &found), "no STO here, STO") << n;
    EXPECT_FALSE(found);
  }
}

TEST(StopStrings, HoldsBackOnlyWhatMayBecomeAStop) {
  StopStrings s({"end"});
  EXPECT_EQ(s.push("abc e"), "abc ");
  EXPECT_EQ(s.push("n"), "");
  EXPECT_EQ(s.push("x"), "enx");
  EXPECT_EQ(s.push("en"), "");
  EXPECT_EQ(s.push("d more"), "");
  EXPECT_TRUE(s.found());
  EXPECT_EQ(s.which(), "end");
  EXPECT_EQ(s.push("later"), "");
}

}  // namespace
}  // namespace triptych

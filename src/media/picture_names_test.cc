#include "media/picture_names.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

TEST(PictureNames, AreKnownByTheirEndings) {
  for (const char* name : {"a.png", "b/c.JPG", "x.y.jpeg", ".webp", "a.TifF", "a.ppm"})
    EXPECT_TRUE(has_picture_ending(name)) << name;
  for (const char* name : {"", "png", "a.png.txt", "a.png ", "questions.jsonl", "a."})
    EXPECT_FALSE(has_picture_ending(name)) << name;
}

}  // namespace
}  // namespace triptych

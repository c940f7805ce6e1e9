#include "base/error.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

TEST(Error, CarriesCodeAndContext) {
  try {
    fail(ErrorCode::kInvalidFile, "expected {}, got {}", 4, 2);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    EXPECT_STREQ(error.with_context("a.json").what(), "a.json: expected 4, got 2");
  }
}

TEST(Error, CheckNamesItsPlaceAndMessage) {
  try {
    TRIPTYCH_CHECK(1 + 1 == 3, "sum of {}", 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_NE(std::string(error.what()).find("error_test.cc"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("sum of 2"), std::string::npos);
  }
}

}  // namespace
}  // namespace triptych

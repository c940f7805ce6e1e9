#include "server/key_usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace triptych::server {
namespace {

using testing::HasSubstr;
using testing::Not;

class KeyUsageTest : public testing::Test {
 protected:
  KeyUsage usage_of(KeyLimits limits) {
    keys_.add("secret", std::move(limits));
    return KeyUsage(keys_, [this] { return now_; });
  }
  void pass(double s) {
    now_ += std::chrono::duration_cast<KeyUsage::Clock::duration>(std::chrono::duration<double>(s));
  }
  ApiKeys keys_;
  KeyUsage::Clock::time_point now_{};
};

TEST_F(KeyUsageTest, LimitsRequestsOfAMinute) {
  KeyUsage usage = usage_of({.requests_per_minute = 2});
  EXPECT_FALSE(usage.begin(0));
  EXPECT_FALSE(usage.begin(0));
  const auto refusal = usage.begin(0);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->retry_after_s, 30) << "one of two comes back in half a minute";
  pass(29);
  EXPECT_TRUE(usage.begin(0));
  pass(1.5);
  EXPECT_FALSE(usage.begin(0));
  EXPECT_TRUE(usage.begin(0));
  pass(600);
  EXPECT_FALSE(usage.begin(0));
  EXPECT_FALSE(usage.begin(0));
  EXPECT_TRUE(usage.begin(0)) << "what is not used is not saved";
}

TEST_F(KeyUsageTest, LimitsTokensWhenTheyAreKnown) {
  KeyUsage usage = usage_of({.tokens_per_minute = 60});
  EXPECT_FALSE(usage.begin(0));
  usage.end(0, 119);  // more than it had
  const auto refusal = usage.begin(0);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->retry_after_s, 60);
  EXPECT_THAT(refusal->what, HasSubstr("60 tokens"));
  pass(61);
  EXPECT_FALSE(usage.begin(0));
}

TEST_F(KeyUsageTest, LimitsRequestsAtOnce) {
  KeyUsage usage = usage_of({.concurrent = 1});
  EXPECT_FALSE(usage.begin(0));
  EXPECT_TRUE(usage.begin(0));
  usage.end(0, 5);
  EXPECT_FALSE(usage.begin(0));
}

TEST_F(KeyUsageTest, LeavesKeysWithoutLimitsAlone) {
  KeyUsage usage = usage_of({});
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(usage.begin(0));
  usage.end(0, 1 << 30);
  EXPECT_FALSE(usage.begin(0));
}

TEST(ApiKeyFile, HoldsKeysWithTheirLimits) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "keys_with_limits.txt";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    ApiKeys keys;
    keys.add_file(path);
    return keys;
  };
  const ApiKeys keys = read(
      "# who\nfirst\n\n  second name=bob requests_per_minute=60\tconcurrent=2 \nthird tokens_per_minute=9\n");
  ASSERT_EQ(keys.size(), 3U);
  EXPECT_EQ(keys.find("first"), 0U);
  EXPECT_FALSE(keys.limits(0).any());
  EXPECT_EQ(keys.find("second"), 1U);
  EXPECT_EQ(keys.limits(1).name, "bob");
  EXPECT_EQ(keys.limits(1).requests_per_minute, 60);
  EXPECT_EQ(keys.limits(1).concurrent, 2);
  EXPECT_EQ(keys.limits(2).tokens_per_minute, 9);
  EXPECT_FALSE(keys.find("fourth"));
  EXPECT_FALSE(keys.find(""));
  for (const char* bad :
       {"a b\n", "a concurrent=0\n", "a concurrent=-1\n", "a tokens_per_minute=1x\n", "a name=\n",
        "a requests_per_minute=9999999999\n", "a rpm=3\n", "\n#\n", "a\nb\na\n"})
    EXPECT_THROW(read(bad), Error) << bad;
  try {
    read("a\nsecond half-of-a-secret\n");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(":2: expected"));
    EXPECT_THAT(error.what(), Not(HasSubstr("half-of-a-secret")));
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace triptych::server

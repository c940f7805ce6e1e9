#include "server/media_url.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace triptych::server {
namespace {

TEST(DataUrl, TakesTheFormsThatClientsSend) {
  EXPECT_EQ(parse_data_url("data:image/png;base64,QUJD").bytes, "ABC");
  EXPECT_EQ(parse_data_url("DATA:image/PNG;base64,QUJD").media_type, "image/png");
  EXPECT_EQ(parse_data_url("data:image/png;name=x.png;base64,QU\r\nJD").bytes, "ABC");
  EXPECT_EQ(parse_data_url("data:;base64,QUJDRA").bytes, "ABCD");
  EXPECT_EQ(parse_data_url("data:;base64,-_-_").bytes, "\xfb\xff\xbf");
  EXPECT_EQ(parse_data_url("data:image/svg,a%42c").bytes, "aBc");
  EXPECT_EQ(parse_data_url("data:;base64,QUJD%52A%3D%3D").bytes, "ABCD");
}

TEST(DataUrl, SaysWhatIsWrong) {
  for (const char* url : {"", "x", "data:", "data:image/png;base64", "data:image/png;base64,", "data:,%4",
                          "data:;base64,Q", "data:;base64,QU=JD", "http://x/y.png"})
    EXPECT_THROW(parse_data_url(url), Error) << url;
  try {
    parse_data_url("data:text/html;base64,QUJD");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace triptych::server

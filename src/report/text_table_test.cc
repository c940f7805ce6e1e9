#include "report/text_table.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace triptych {
namespace {

TEST(TextTable, AlignsColumnsByCodePoints) {
  TextTable table({{"name", Align::kLeft}, {"n", Align::kRight}});
  table.add_row({"caf\xC3\xA9", "1"});
  table.add_row({"ab"});
  table.add_row({"z", "1234"});
  EXPECT_EQ(table.render(1),
            " name     n\n"
            " ----  ----\n"
            " caf\xC3\xA9     1\n"
            " ab\n"
            " z     1234\n");
  EXPECT_THROW(table.add_row({"1", "2", "3"}), Error);
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(14126854144.0), "13.2 GiB");
}

TEST(Format, CountAndTime) {
  EXPECT_EQ(format_count(576), "576");
  EXPECT_EQ(format_count(1910912), "1.91 M");
  EXPECT_EQ(format_count(7063427072.0), "7.06 G");
  EXPECT_EQ(format_count(999999), "1.00 M");
  EXPECT_EQ(format_ms(0.4231), "0.42 ms");
  EXPECT_EQ(format_ms(12.34), "12.3 ms");
  EXPECT_EQ(format_ms(1234.4), "1.234 s");
  EXPECT_EQ(format_error(0.0), "0");
  EXPECT_EQ(format_error(1.23e-7), "1.2e-07");
  EXPECT_EQ(format_percent(0.975), "97.5 %");
}

TEST(Printable, ControlsBecomeVisible) {
  EXPECT_EQ(printable("a\nb\tc"), "a\nb\tc");
  EXPECT_EQ(printable("\x1b[2J"), "\xEF\xBF\xBD[2J");
  EXPECT_EQ(printable("\xC2\x9b"
                      "1m"),
            "\xEF\xBF\xBD"
            "1m");                                               // CSI as one character
  EXPECT_EQ(printable("\xC2\xA0\xC3\xA9"), "\xC2\xA0\xC3\xA9");  // a blank and a letter stay
  EXPECT_EQ(one_line("a\nb\r"), "a b\xEF\xBF\xBD");
}

}  // namespace
}  // namespace triptych

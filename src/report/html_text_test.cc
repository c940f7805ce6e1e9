#include "report/html_text.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

TEST(HtmlText, EscapesMarkupControlsAndWhatIsNotUtf8) {
  EXPECT_EQ(html_escape("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  EXPECT_EQ(html_escape("\x1b[2J\x01"), "\xEF\xBF\xBD[2J\xEF\xBF\xBD");
  EXPECT_EQ(html_escape("caf\xC3\xA9\n"), "caf\xC3\xA9\n");
  EXPECT_EQ(html_escape("\xFF\xC3"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(html_escape("\xEF\xBF\xBE"), "\xEF\xBF\xBD");
  EXPECT_EQ(html_escape(""), "");
}

}  // namespace
}  // namespace triptych

#include "io/zip_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "io/test_files.h"

namespace triptych {
namespace {

using test::error_of;
using test::little_endian;
using test::zip;
using testing::HasSubstr;

std::map<std::string, std::string> read(const std::string& archive) {
  std::map<std::string, std::string> out;
  for (const auto& [name, bytes] : read_zip(test::as_bytes(archive), "x.bin"))
    out.emplace(std::string(name), std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  return out;
}

const std::map<std::string, std::string> kTwo{{"a/one", "first"}, {"a/two", std::string(1000, 'y')}};
std::string two(bool zip64, const std::string& comment = "") {
  return zip({{"a/one", "first"}, {"a/two", std::string(1000, 'y')}}, zip64, comment);
}

TEST(ReadZip, PlainAndZip64) {
  EXPECT_EQ(read(two(false)), kTwo);
  EXPECT_EQ(read(two(true)), kTwo);
  EXPECT_EQ(read(two(false, "a comment")), kTwo);
  EXPECT_EQ(read(two(true, std::string(65535, 'c'))), kTwo);
  EXPECT_TRUE(read(zip({})).empty());
}

TEST(ReadZip, EveryCutIsRefused) {
  for (const bool zip64 : {false, true}) {
    const std::string whole = two(zip64);
    for (std::size_t n = 0; n < whole.size(); ++n)
      EXPECT_THROW(read(whole.substr(0, n)), Error) << n << " of " << whole.size();
  }
}

TEST(ReadZip, NoByteCanMakeItReadOutside) {
  // Run under the address sanitizer this looks at every offset and length of the records; members must lie
  // inside.
  for (const bool zip64 : {false, true}) {
    int n_read = 0, n_refused = 0;
    const std::string whole = zip({{"a/one", "first"}, {"a/two", "second"}}, zip64);
    for (std::size_t i = 0; i < whole.size(); ++i)
      for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
        std::string changed = whole;
        changed[i] = static_cast<char>(value);
        const std::string exact(changed);
        try {
          for (const auto& [name, bytes] : read_zip(test::as_bytes(exact), "x")) {
            EXPECT_GE(bytes.data(), test::as_bytes(exact).data());
            EXPECT_LE(bytes.data() + bytes.size(), test::as_bytes(exact).data() + exact.size());
          }
          ++n_read;
        } catch (const Error&) {
          ++n_refused;
        }
      }
    EXPECT_GT(n_read, 0);
    EXPECT_GT(n_refused, 0);
  }
}

TEST(ReadZip, RefusesCompressedEncryptedAndAmbiguousMembers) {
  EXPECT_THAT(error_of([] { read(zip({{"a", "x", 8}})); }, ErrorCode::kUnsupported), HasSubstr("compressed"));
  EXPECT_THAT(error_of(
                  [] {
                    read(zip({{"a", "x", 0, 1}}));
                  },
                  ErrorCode::kUnsupported),
              HasSubstr("encrypted"));
  EXPECT_THAT(error_of([] { read(zip({{"a", "x"}, {"a", "y"}})); }), HasSubstr("twice"));
  std::string names = zip({{"abc", "x"}});
  names[30] = 'z';  // the name in the local record
  EXPECT_THAT(error_of([&] { read(names); }), HasSubstr("two names"));
  EXPECT_THAT(error_of([] { read("not a zip archive, but long enough to be one"); }),
              HasSubstr("no end record"));
}

}  // namespace
}  // namespace triptych

#include "io/safetensors_stream.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "base/digest.h"
#include "base/error.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "io/test_files.h"
#include "support/resident.h"

namespace triptych {
namespace {

TEST(SafetensorsStream, WritesWhatTheReaderReads) {
  const test::TempDir folder;
  Tensor a(DType::kF32, {3, 16}), b(DType::kU8, {64});
  std::iota(a.f32(), a.f32() + 48, 0.5F);
  std::fill_n(b.view().data(), 64, std::byte{7});
  const auto path = folder / "x.safetensors";
  SafetensorsStream stream(path, 2 * SafetensorsStream::header_bytes_of("\"b\\"));
  stream.append("a", a);
  EXPECT_EQ(stream.data_bytes(), 192U);
  stream.append("\"b\\", b);  // a name that JSON has to escape
  EXPECT_THROW(stream.append("a", b), Error);
  EXPECT_THROW(stream.append("__metadata__", b), Error);
  EXPECT_EQ(stream.checksums().at("a"), digest_hex({a.view().data(), 192}));
  const std::string digest = stream.finish();
  EXPECT_EQ(safetensors_header_digest(path), digest);
  const WeightTable table = read_safetensors(path);
  ASSERT_EQ(table.size(), 2U);
  EXPECT_EQ(table.at("a").view.shape(), (Shape{3, 16}));
  EXPECT_EQ(table.at("a").view.cf32()[47], 47.5F);
  EXPECT_EQ(table.at("\"b\\").view.data()[63], std::byte{7});
  // Data begins at a page.
  const auto file = MappedFile::open(path);
  EXPECT_EQ((file->size_bytes() - 256) % 4096, 0U);
}

TEST(SafetensorsStream, AFileThatExistsIsNotTouched) {
  const test::TempDir folder;
  const auto path = folder.write("x.safetensors", "mine");
  EXPECT_THROW(SafetensorsStream(path, 1), Error);
  EXPECT_EQ(read_text_file(path), "mine");
}

TEST(SafetensorsStream, ReleasedRowsStayReadable) {
  const test::TempDir folder;
  Tensor a(DType::kF32, {512, 64});
  std::iota(a.f32(), a.f32() + 512 * 64, 0.0F);
  SafetensorsStream stream(folder / "x.safetensors", 1000);
  stream.append("a", a);
  stream.finish();
  const auto file = MappedFile::open(folder / "x.safetensors");
  WeightTable table = read_safetensors(file->bytes(), file, "x");
  EXPECT_FALSE(table.at("a").is_mapped);
  table.mark_mapped(file->bytes());
  const WeightEntry& entry = table.at("a");
  ASSERT_TRUE(entry.is_mapped);
  release_rows(entry, 100, 300);
  release(entry);
  for (int i = 0; i < 512 * 64; ++i) ASSERT_EQ(entry.view.cf32()[i], static_cast<float>(i));
}

// Rows that were not released stay, but for a huge page on either side: it is unmapped whole.
TEST(SafetensorsStream, ReleasedRowsLeaveThisProcess) {
  const test::TempDir folder;
  constexpr std::int64_t kRows = 4096, kColumns = 1024;  // a row is a page
  Tensor a(DType::kF32, {kRows, kColumns});
  std::fill_n(a.f32(), kRows * kColumns, 1.0F);
  SafetensorsStream stream(folder / "x.safetensors", 1000);
  stream.append("a", a);
  stream.finish();
  const auto file = MappedFile::open(folder / "x.safetensors");
  WeightTable table = read_safetensors(file->bytes(), file, "x");
  table.mark_mapped(file->bytes());
  const WeightEntry& entry = table.at("a");
  const auto read_all = [&] {
    return std::accumulate(entry.view.cf32(), entry.view.cf32() + entry.view.numel(), 0.0);
  };
  const auto resident_rows = [&](std::int64_t begin, std::int64_t end) {
    constexpr std::size_t kRow_bytes = kColumns * sizeof(float);
    const auto bytes = test::resident_bytes(entry.view.cf32() + begin * kColumns,
                                            static_cast<std::size_t>(end - begin) * kRow_bytes);
    return bytes ? static_cast<std::int64_t>(*bytes / kRow_bytes) : -1;
  };
  EXPECT_EQ(read_all(), kRows * kColumns);
  if (resident_rows(0, kRows) < 0) GTEST_SKIP() << "no /proc/self/pagemap here";
  EXPECT_EQ(resident_rows(0, kRows), kRows);
  release_rows(entry, 1024, 3072);
  EXPECT_EQ(resident_rows(1024, 3072), 0);
  EXPECT_EQ(resident_rows(0, 512), 512);
  EXPECT_EQ(resident_rows(3584, kRows), 512);
  EXPECT_EQ(read_all(), kRows * kColumns);
  release(entry);
  EXPECT_EQ(resident_rows(0, kRows), 0);
  EXPECT_EQ(read_all(), kRows * kColumns);
  file->advise(FileAccess::kDontNeed);
  EXPECT_EQ(resident_rows(0, kRows), 0);
}

}  // namespace
}  // namespace triptych

// Arbitrary bytes as a file of the visual cache's folder. What is accepted is what would be written.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/vision_rows.h"
#include "only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  return fuzz::only_errors([&] {
    for (const VisionRowsDType dtype : {VisionRowsDType::kF32, VisionRowsDType::kInt8}) {
      // The reader knows what it wants; here that is what the header says, so that more than its first check
      // is reached.
      ExpectedVisionRows expected{.key = {}, .n_rows = 3, .dtype = dtype};
      if (size >= VisionRowsFile::kHeader_bytes) {
        std::uint64_t n_rows = 0;
        std::memcpy(&expected.key, data + 16, sizeof expected.key);
        std::memcpy(&n_rows, data + 48, sizeof n_rows);
        expected.n_rows = static_cast<std::int64_t>(n_rows);
      }
      std::vector<std::byte> again(file.begin(), file.end());
      // A checksum that fits, so that what is behind it is reached.
      for (int with_checksum = 0; with_checksum < 2; ++with_checksum) try {
          const VisionRows rows = parse_vision_rows(again, expected);
          fuzz::require(rows.n_rows() == expected.n_rows && rows.dtype() == dtype, "rows as expected");
          fuzz::require(again.size() == VisionRowsFile::kHeader_bytes + rows.size_bytes(), "all of the file");
          Tensor values(DType::kF32, {rows.n_rows(), rows.n_columns()});
          rows.unpack(values);
          double encode_ms = 0;
          std::memcpy(&encode_ms, again.data() + 72, sizeof encode_ms);
          const VisionRowsFile::Header header = VisionRowsFile::header_of(expected.key, rows, encode_ms);
          fuzz::require(std::memcmp(header.data(), again.data(), header.size()) == 0,
                        "what is read is written as it was");
        } catch (const Error& error) {
          if (error.code() == ErrorCode::kInternal) throw;
          if (again.size() < VisionRowsFile::kHeader_bytes) break;
          const Fingerprint checksum = vision_rows_checksum(again);
          std::memcpy(again.data() + 80, &checksum, sizeof checksum);
        }
    }
  });
}

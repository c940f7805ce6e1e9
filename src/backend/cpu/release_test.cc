// Loading quantized weights gives back the pages of the published matrices that it has read.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "support/resident.h"

namespace triptych {
namespace {

// Matrices of ones, one behind the other in a private mapping of a file, as a checkpoint has them.
class MappedMatrices {
 public:
  MappedMatrices(std::vector<std::int64_t> n_rows, std::int64_t n_columns) {
    std::int64_t n_all = 0;
    for (const std::int64_t n : n_rows) n_all += n;
    const std::vector<float> ones(static_cast<std::size_t>(n_all * n_columns), 1.0F);
    size_bytes_ = ones.size() * sizeof(float);
    std::FILE* file = std::tmpfile();
    if (file == nullptr || std::fwrite(ones.data(), 1, size_bytes_, file) != size_bytes_ ||
        std::fflush(file) != 0)
      throw std::runtime_error("tmpfile");
    // Aligned, since a fault also maps the neighbours within 64 KiB: those of a panel only.
    room_ = ::mmap(nullptr, size_bytes_ + kAlignment_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room_ == MAP_FAILED) throw std::runtime_error("mmap");
    const auto address = reinterpret_cast<std::uintptr_t>(room_);
    data_ = static_cast<std::byte*>(room_) + (kAlignment_bytes - address % kAlignment_bytes);
    data_ = ::mmap(data_, size_bytes_, PROT_READ, MAP_PRIVATE | MAP_FIXED, ::fileno(file), 0);
    std::fclose(file);
    if (data_ == MAP_FAILED) throw std::runtime_error("mmap");
    auto* from = static_cast<float*>(data_);
    for (const std::int64_t n : n_rows) {
      parts_.push_back({.name = "w" + std::to_string(parts_.size()),
                        .view = TensorView(from, DType::kF32, {n, n_columns}),
                        .owner = nullptr,
                        .file = "test",
                        .is_mapped = true});
      from += n * n_columns;
    }
  }
  ~MappedMatrices() { ::munmap(room_, size_bytes_ + kAlignment_bytes); }
  MappedMatrices(const MappedMatrices&) = delete;
  MappedMatrices& operator=(const MappedMatrices&) = delete;

  const std::vector<WeightEntry>& parts() const { return parts_; }
  std::size_t size_bytes() const { return size_bytes_; }
  /// Reads every page first. Nothing where the system does not say.
  std::optional<std::size_t> resident_after_reading() const {
    const auto* data = static_cast<const volatile float*>(data_);
    for (std::size_t i = 0; i < size_bytes_ / sizeof(float); i += 1024) static_cast<void>(data[i]);
    return resident();
  }
  std::optional<std::size_t> resident() const { return test::resident_bytes(data_, size_bytes_); }

 private:
  static constexpr std::size_t kAlignment_bytes = 256 * 1024;
  void* room_ = nullptr;
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::vector<WeightEntry> parts_;
};

LinearSpec spec_of(const MappedMatrices& matrices, const std::string& format) {
  LinearSpec out;
  out.name = "layer";
  for (const WeightEntry& part : matrices.parts()) out.add(part);
  out.format = QuantFormat::parse(format);
  return out;
}

TEST(Release, QuantizingGivesThePagesOfTheMappingBack) {
  const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
  for (const char* format : {"int8", "int8:g32", "int4:g32", "int4:g32:asym", "int4:channel", "nf4:g64"}) {
    const MappedMatrices matrices({200, 312, 512}, 1024);  // panels of 64 rows cross from one to the next
    const auto before = matrices.resident_after_reading();
    if (!before) GTEST_SKIP() << "no /proc/self/pagemap here";
    EXPECT_EQ(*before, matrices.size_bytes());
    const auto weight = backend->prepare_linear(spec_of(matrices, format));
    EXPECT_EQ(weight->n_out(), 1024);
    EXPECT_LE(*matrices.resident(), matrices.size_bytes() / 16) << format;
  }
}

// What a backend multiplies as it is published stays where it is.
TEST(Release, MatricesThatAreUsedInPlaceStay) {
  const auto backend = make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
  const MappedMatrices matrices({512}, 1024);
  LinearSpec spec = spec_of(matrices, "int8");
  spec.format.reset();
  const auto weight = backend->prepare_linear(spec);
  const auto after = matrices.resident_after_reading();
  if (!after) GTEST_SKIP() << "no /proc/self/pagemap here";
  EXPECT_EQ(*after, matrices.size_bytes());
}

}  // namespace
}  // namespace triptych

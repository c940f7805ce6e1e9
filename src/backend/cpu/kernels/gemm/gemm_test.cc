#include "backend/cpu/kernels/gemm/gemm.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "backend/cpu/kernels/test_util.h"
#include "backend/cpu/kernels/tiles/tile_scope.h"

namespace triptych::kernels {
namespace {

TEST(Gemm, PackMovesEveryElementOnce) {
  for (const Isa isa : usable_isas()) {
    const GemmKernels& gemm = gemm_kernels(isa);
    for (const ElementType type : kElementTypes) {
      for (const int k : {1, 7, 15, 16, 17, 67}) {
        for (const int width : {1, gemm.max_rows, gemm.panel_width}) {
          for (const int n_rows : {1, std::max(1, width - 1), width}) {
            const int k_begin = 3;
            const std::ptrdiff_t stride = k + k_begin + 5;
            StoredArray w(type, random_floats(static_cast<std::size_t>(n_rows * stride), 1), 1);
            std::vector<const void*> rows;
            for (int r = 0; r < n_rows; ++r)
              rows.push_back(w.data() + r * stride * static_cast<std::ptrdiff_t>(element_bytes(type)));
            const std::size_t size = static_cast<std::size_t>(k * width);
            std::vector<float> out(size + 1, -77.0F);
            gemm.pack({rows.data(), n_rows, type, k_begin, k, 0.5F, out.data(), width});
            for (int i = 0; i < k; ++i)
              for (int r = 0; r < width; ++r)
                ASSERT_EQ(out[static_cast<std::size_t>(i * width + r)],
                          r < n_rows ? 0.5F * w.as_float()[static_cast<std::size_t>(r * stride + k_begin + i)]
                                     : 0.0F)
                    << gemm.name << " k=" << k << " width=" << width << " rows=" << n_rows << " i=" << i
                    << " r=" << r;
            ASSERT_EQ(out[size], -77.0F) << "wrote behind the end";
          }
        }
      }
    }
  }
}

// Each product chain over k: error at most k * eps * sum |a b| (Higham, Accuracy and Stability, section 3.1).
TEST(Gemm, TileMatchesDoubles) {
  for (const Isa isa : usable_isas()) {
    const GemmKernels& gemm = gemm_kernels(isa);
    const int width = gemm.panel_width;
    for (int rows = 1; rows <= gemm.max_rows; ++rows) {
      for (const int k : {1, 2, 3, 64, 259}) {
        for (const bool accumulate : {false, true}) {
          const std::ptrdiff_t lda = rows + (k % 2);
          const std::ptrdiff_t ldc = width + 3;
          const std::vector<float> a = random_floats(static_cast<std::size_t>(k * lda), 2);
          std::vector<float> b = random_floats(static_cast<std::size_t>(k * width + 1), 3);
          std::vector<float> c = random_floats(static_cast<std::size_t>(rows * ldc), 4);
          const std::vector<float> before = c;
          gemm.tile({rows, k, a.data(), lda, b.data() + 1, c.data(), ldc, accumulate});
          for (int r = 0; r < rows; ++r) {
            for (int n = 0; n < ldc; ++n) {
              const std::size_t at = static_cast<std::size_t>(r * ldc + n);
              if (n >= width) {
                ASSERT_EQ(c[at], before[at]);
                continue;
              }
              double sum = 0;
              double magnitude = 0;
              for (int i = 0; i < k; ++i) {
                const double p = static_cast<double>(a[static_cast<std::size_t>(i * lda + r)]) *
                                 static_cast<double>(b[static_cast<std::size_t>(i * width + n + 1)]);
                sum += p;
                magnitude += std::fabs(p);
              }
              if (accumulate) sum += static_cast<double>(before[at]);
              if (accumulate) magnitude += std::fabs(static_cast<double>(before[at]));
              ASSERT_NEAR(static_cast<double>(c[at]), sum, (k + 1) * 0x1p-24 * magnitude)
                  << gemm.name << " rows=" << rows << " k=" << k << " r=" << r << " n=" << n;
            }
          }
        }
      }
    }
  }
}

TEST(Gemm, BitsDoNotDependOnTheTilesHeight) {
  for (const Isa isa : usable_isas()) {
    const GemmKernels& gemm = gemm_kernels(isa);
    const int k = 100;
    const std::vector<float> a = random_floats(static_cast<std::size_t>(k * gemm.max_rows), 5);
    const std::vector<float> b = random_floats(static_cast<std::size_t>(k * gemm.panel_width), 6);
    std::vector<float> whole(static_cast<std::size_t>(gemm.max_rows * gemm.panel_width));
    gemm.tile({gemm.max_rows, k, a.data(), gemm.max_rows, b.data(), whole.data(), gemm.panel_width, false});
    for (int r = 0; r < gemm.max_rows; ++r) {
      std::vector<float> one(static_cast<std::size_t>(gemm.panel_width));
      gemm.tile({1, k, a.data() + r, gemm.max_rows, b.data(), one.data(), gemm.panel_width, false});
      for (int n = 0; n < gemm.panel_width; ++n)
        ASSERT_EQ(one[static_cast<std::size_t>(n)],
                  whole[static_cast<std::size_t>(r * gemm.panel_width + n)]);
    }
  }
}

// Words of two bfloat16 numbers, packed and multiplied, against doubles.
TEST(Gemm, Bf16PairsMatchDoubles) {
  std::vector<const GemmKernels*> sets = {&kGemmBf16EmulatedTiles};
  for (const Isa isa : usable_isas())
    if (const GemmKernels* gemm = gemm_bf16_kernels(isa)) sets.push_back(gemm);
  std::string names;
  for (const GemmKernels* gemm : sets) {
    if (names.find(gemm->name) == std::string::npos) names.append(" ").append(gemm->name);
    const int width = gemm->panel_width;
    for (const int rows : {1, 5, gemm->max_rows})
      for (const int words : {1, 15, 16, 17, 130}) {
        const std::size_t k = static_cast<std::size_t>(2 * words);
        std::vector<float> x = random_floats(static_cast<std::size_t>(rows) * k, 2);
        x[0] = 0.0F;
        StoredArray a(ElementType::kBF16, x);
        StoredArray w(ElementType::kBF16, random_floats(static_cast<std::size_t>(width) * k, 3));
        std::vector<const void*> a_rows;
        std::vector<const void*> w_rows;
        for (int r = 0; r < rows; ++r) a_rows.push_back(a.data() + static_cast<std::size_t>(r) * k * 2);
        for (int n = 0; n < width; ++n) w_rows.push_back(w.data() + static_cast<std::size_t>(n) * k * 2);
        std::vector<float> packed_a(static_cast<std::size_t>(words * rows));
        std::vector<float> packed_w(static_cast<std::size_t>(words * width));
        gemm->pack({a_rows.data(), rows, ElementType::kF32, 0, words, 1.0F, packed_a.data(), rows});
        gemm->pack({w_rows.data(), width, ElementType::kF32, 0, words, 1.0F, packed_w.data(), width});
        std::vector<float> c(static_cast<std::size_t>(rows * width), 0.25F);
        const bool tiles = gemm->tiles != nullptr;
        // Rows in place, as long and as many as tiles read, up to a guard page; what no output needs is NaN.
        const std::ptrdiff_t stride = (words + 15) / 16 * 16;
        const std::ptrdiff_t n_read = (rows + 15) / 16 * 16;
        GuardedBytes in_place(static_cast<std::size_t>(n_read * stride * 4));
        GuardedBytes panel(packed_w.size() * 4);
        std::memset(in_place.data(), 0xff, static_cast<std::size_t>(n_read * stride * 4));
        std::memcpy(panel.data(), packed_w.data(), packed_w.size() * 4);
        for (int r = 0; r < rows; ++r) {
          std::memset(in_place.data() + r * stride * 4, 0, static_cast<std::size_t>(stride * 4));
          std::memcpy(in_place.data() + r * stride * 4, a_rows[static_cast<std::size_t>(r)], k * 2);
        }
        {
          const TileScope scope(gemm->tiles);
          gemm->tile({rows, words, tiles ? reinterpret_cast<const float*>(in_place.data()) : packed_a.data(),
                      tiles ? stride : rows, reinterpret_cast<const float*>(panel.data()), c.data(), width,
                      true});
        }
        for (int r = 0; r < rows; ++r)
          for (int n = 0; n < width; ++n) {
            double sum = 0.25;
            double magnitude = 0.25;
            for (std::size_t i = 0; i < k; ++i) {
              const double p = static_cast<double>(a.as_float()[static_cast<std::size_t>(r) * k + i]) *
                               static_cast<double>(w.as_float()[static_cast<std::size_t>(n) * k + i]);
              sum += p;
              magnitude += std::fabs(p);
            }
            ASSERT_NEAR(static_cast<double>(c[static_cast<std::size_t>(r * width + n)]), sum,
                        (2 * words + 2) * 0x1p-24 * magnitude)
                << gemm->name << " rows " << rows << " words " << words << " at " << r << ", " << n;
          }
      }
  }
  std::printf("products of bfloat16 are tested with:%s\n", names.c_str());
}

// Rows of a tile's second block, and a tile of one block.
TEST(Gemm, Bf16BitsDoNotDependOnTheTilesHeight) {
  for (const GemmKernels* gemm :
       {static_cast<const GemmKernels*>(&kGemmBf16EmulatedTiles), gemm_bf16_kernels(active_features())}) {
    if (gemm == nullptr || gemm->tiles == nullptr) continue;
    const int words = 48;
    StoredArray rows(ElementType::kBF16, random_floats(32 * 2 * words, 5));
    StoredArray weights(ElementType::kBF16, random_floats(32 * 2 * words, 6));
    std::vector<const void*> w_rows;
    for (int n = 0; n < 32; ++n) w_rows.push_back(weights.data() + n * words * 4);
    std::vector<float> panel(32 * words);
    gemm->pack({w_rows.data(), 32, ElementType::kF32, 0, words, 1.0F, panel.data(), 32});
    std::vector<float> whole(32 * 32), part(16 * 32);
    const TileScope scope(gemm->tiles);
    const auto* x = reinterpret_cast<const float*>(rows.data());
    gemm->tile({32, words, x, words, panel.data(), whole.data(), 32, false});
    for (const int first : {0, 5, 16}) {
      gemm->tile({16, words, x + first * words, words, panel.data(), part.data(), 32, false});
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first * 32)) << gemm->name;
    }
  }
  if (const GemmKernels* gemm = gemm_bf16_kernels(active_features());
      gemm == nullptr || gemm->tiles == nullptr)
    GTEST_SKIP() << "amx_bf16 did not run: its loops ran over emulated tiles only";
}

}  // namespace
}  // namespace triptych::kernels

#include "backend/cpu/kernels/gemv/gemv.h"

#include <algorithm>

#include "backend/cpu/kernels/test_util.h"

namespace triptych::kernels {
namespace {

// The packed form that gemv.h describes; behind it NaN, which nothing may read.
std::vector<float> packed(const std::vector<float>& x, std::ptrdiff_t stride, int k, int n_vectors,
                          ElementType type, int lanes) {
  std::vector<float> out(static_cast<std::size_t>(gemv_x_floats(lanes, n_vectors, k)), 0.0F);
  for (int m = 0; m < n_vectors; ++m)
    for (int i = 0; i < k; ++i)
      out[static_cast<std::size_t>(gemv_x_index(type, lanes, n_vectors, m, i))] =
          x[static_cast<std::size_t>(m * stride + i)];
  out.push_back(NAN);
  return out;
}

struct Problem {
  ElementType type;
  int n_rows;
  int k;
  int n_vectors;
  std::size_t offset_bytes;
};

// Lanes shorten each chain of additions to k / 8 + 4 at most; the bound of a plain chain is safe.
void check(const GemvKernels& gemv, const Problem& p) {
  const std::ptrdiff_t w_stride = p.k + 3;
  const std::ptrdiff_t x_stride = p.k + 1;
  const std::ptrdiff_t y_stride = p.n_rows + 2;
  StoredArray w(p.type, random_floats(static_cast<std::size_t>(p.n_rows * w_stride), 1), p.offset_bytes);
  const std::vector<float> x = random_floats(static_cast<std::size_t>(p.n_vectors * x_stride), 2);
  std::vector<float> y(static_cast<std::size_t>(p.n_vectors * y_stride), -77.0F);
  const std::vector<float> x_packed = packed(x, x_stride, p.k, p.n_vectors, p.type, gemv.lanes);
  gemv.gemv({w.data(), w_stride, p.type, p.n_rows, p.k, x_packed.data(), p.n_vectors, y.data(), y_stride});
  for (int m = 0; m < p.n_vectors; ++m) {
    for (int n = 0; n < y_stride; ++n) {
      const float got = y[static_cast<std::size_t>(m * y_stride + n)];
      if (n >= p.n_rows) {
        ASSERT_EQ(got, -77.0F) << "wrote behind the end";
        continue;
      }
      double sum = 0;
      double magnitude = 0;
      for (int i = 0; i < p.k; ++i) {
        const double product = static_cast<double>(w.as_float()[static_cast<std::size_t>(n * w_stride + i)]) *
                               static_cast<double>(x[static_cast<std::size_t>(m * x_stride + i)]);
        sum += product;
        magnitude += std::fabs(product);
      }
      ASSERT_NEAR(static_cast<double>(got), sum, p.k * 0x1p-24 * magnitude)
          << gemv.name << " type " << static_cast<int>(p.type) << " rows=" << p.n_rows << " k=" << p.k
          << " vectors=" << p.n_vectors << " m=" << m << " n=" << n;
    }
  }
}

TEST(Gemv, MatchesDoublesAtEverySize) {
  for (const Isa isa : usable_isas()) {
    const GemvKernels& gemv = gemv_kernels(isa);
    for (const ElementType type : kElementTypes) {
      for (const int k : {1, 15, 16, 17, 31, 32, 33, 67, 515})
        for (const int n_rows : {1, 2, 5, 8, 9, 35}) check(gemv, {type, n_rows, k, 1, 0});
      for (int n_vectors = 1; n_vectors <= gemv.max_vectors; ++n_vectors) {
        check(gemv, {type, 13, 100, n_vectors, 0});
        check(gemv, {type, 13, 100, n_vectors, 1});
      }
    }
  }
}

TEST(Gemv, BitsDoNotDependOnTheOtherVectorsOrRows) {
  for (const Isa isa : usable_isas()) {
    const GemvKernels& gemv = gemv_kernels(isa);
    const int k = 203;
    const int n_rows = 17;
    for (const ElementType type : kElementTypes) {
      const std::ptrdiff_t row_bytes = k * static_cast<std::ptrdiff_t>(element_bytes(type));
      StoredArray w(type, random_floats(static_cast<std::size_t>(n_rows * k), 1));
      const std::vector<float> x = random_floats(static_cast<std::size_t>(gemv.max_vectors * k), 2);
      std::vector<float> single(1);
      for (int m = 1; m <= gemv.max_vectors; ++m) {
        std::vector<float> together(static_cast<std::size_t>(n_rows * m));
        const std::vector<float> all = packed(x, k, k, m, type, gemv.lanes);
        gemv.gemv({w.data(), k, type, n_rows, k, all.data(), m, together.data(), n_rows});
        for (int i = 0; i < m; ++i) {
          const std::vector<float> one =
              packed({x.begin() + i * k, x.begin() + (i + 1) * k}, k, k, 1, type, gemv.lanes);
          for (int n = 0; n < n_rows; ++n) {
            gemv.gemv({w.data() + n * row_bytes, k, type, 1, k, one.data(), 1, single.data(), 1});
            ASSERT_EQ(single[0], together[static_cast<std::size_t>(i * n_rows + n)]) << gemv.name << " " << m;
          }
        }
      }
    }
  }
}

// The same bits as whole, in calls over parts of k.
TEST(Gemv, KMayBeCut) {
  for (const Isa isa : usable_isas()) {
    const GemvKernels& gemv = gemv_kernels(isa);
    const int step = 4 * gemv.lanes;
    const int n_rows = 13;
    for (const ElementType type : kElementTypes)
      for (const int k : {step, 3 * step + 5})
        for (int m = 1; m <= gemv.max_vectors; ++m) {
          StoredArray w(type, random_floats(static_cast<std::size_t>(n_rows * k), 1));
          const std::vector<float> x =
              packed(random_floats(static_cast<std::size_t>(m * k), 2), k, k, m, type, gemv.lanes);
          std::vector<float> whole(static_cast<std::size_t>(n_rows * m));
          std::vector<float> in_parts(whole.size());
          gemv.gemv({w.data(), k, type, n_rows, k, x.data(), m, whole.data(), n_rows});
          std::vector<float> sums(static_cast<std::size_t>(n_rows * m * gemv.lanes));
          for (int begin = 0; begin < k; begin += step)
            gemv.gemv({w.data() + begin * static_cast<std::ptrdiff_t>(element_bytes(type)), k, type, n_rows,
                       std::min(step, k - begin), x.data() + static_cast<std::ptrdiff_t>(begin) * m, m,
                       in_parts.data(), n_rows, sums.data(), begin == 0, begin + step >= k});
          ASSERT_EQ(in_parts, whole) << gemv.name << " k " << k << " vectors " << m;
        }
  }
}

}  // namespace
}  // namespace triptych::kernels

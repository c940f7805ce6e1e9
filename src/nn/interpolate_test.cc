// Values of torch.nn.functional.interpolate (2.14), which the cases name.
#include "nn/interpolate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backend/cpu/cpu_backend.h"

namespace triptych {
namespace {

// interpolate(x, [to_h, to_w], mode="bilinear") of x = sin(0, 1, 2, ...) on a grid.
std::vector<float> resized(std::int64_t h, std::int64_t w, std::int64_t to_h, std::int64_t to_w) {
  const auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  Arena arena;
  ExecContext cx(*backend, arena);
  TensorView table = cx.empty({h * w, 1});
  for (std::int64_t i = 0; i < h * w; ++i) table.f32()[i] = std::sin(static_cast<float>(i));
  RowMixture mixture(arena, to_h * to_w);
  for (std::int64_t y = 0; y < to_h; ++y)
    for (std::int64_t x = 0; x < to_w; ++x)
      mixture.add(bilinear_tap(y, h, to_h), bilinear_tap(x, w, to_w),
                  [&](std::int64_t row, std::int64_t col) { return row * w + col; });
  TensorView out = cx.empty({to_h * to_w, 1});
  mixture.write(cx, table, out);
  return {out.cf32(), out.cf32() + out.numel()};
}

void expect_near(const std::vector<float>& ours, const std::vector<float>& reference) {
  ASSERT_EQ(ours.size(), reference.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], reference[i], 1e-6F) << i;
}

TEST(Interpolate, Bilinear) {
  expect_near(resized(5, 5, 3, 3), {-0.0571469F, 0.8251938F, -0.1034860F, -0.6960108F, -0.5365729F,
                                    0.8004605F, 0.7041960F, -0.3263668F, -0.6406652F});
  expect_near(resized(3, 4, 2, 2), {0.1010858F, 0.4411029F, 0.3110879F, -0.5318079F});
  expect_near(resized(4, 6, 3, 5), {0.0391600F, 0.8442987F, 0.5544636F, -0.4490516F, -0.9413257F, -0.3133371F,
                                    0.6739987F, 0.7605930F, -0.1318129F, -0.9242207F, -0.6242338F, 0.4142146F,
                                    0.8657417F, 0.2029261F, -0.7844110F});
  expect_near(resized(1, 3, 1, 2), {0.2103677F, 0.8923408F});
  expect_near(resized(2, 2, 3, 4), {0.0000000F, 0.2103677F, 0.6311032F, 0.8414710F, 0.4546487F, 0.4638104F,
                                    0.4821338F, 0.4912955F, 0.9092974F, 0.7172531F, 0.3331644F, 0.1411200F});
}

TEST(Interpolate, RowsAsTheyAre) {
  const auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
  Arena arena;
  ExecContext cx(*backend, arena);
  TensorView table = cx.empty({3, 2});
  for (int i = 0; i < 6; ++i) table.f32()[i] = 0.1F * static_cast<float>(i);
  RowMixture mixture(arena, 2);
  mixture.add(2);
  mixture.add(0);
  TensorView out = cx.empty({2, 2});
  mixture.write(cx, table, out);
  EXPECT_EQ(std::vector<float>(out.cf32(), out.cf32() + 4),
            (std::vector<float>{table.cf32()[4], table.cf32()[5], table.cf32()[0], table.cf32()[1]}));
}

}  // namespace
}  // namespace triptych

// Resizing on one thread at sizes that models ask for. Compare instruction sets with
// TRIPTYCH_ISA=scalar|avx2|avx512.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <vector>

#include "media/image_resize.h"
#include "media/normalize.h"

namespace triptych {
namespace {

Image noise(int width_px, int height_px) {
  Image image{width_px, height_px, {}};
  image.rgb.resize(image.row_bytes() * static_cast<std::size_t>(height_px));
  std::uint32_t state = 1;
  for (std::uint8_t& px : image.rgb)
    px = static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) >> 24);
  return image;
}

// Arguments: source width, height, result width, height.
void run(benchmark::State& state, Filter filter) {
  const Image image = noise(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  for (auto _ : state) {
    Image result = resize(image, static_cast<int>(state.range(2)), static_cast<int>(state.range(3)), filter);
    benchmark::DoNotOptimize(result.rgb.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0) * state.range(1));  // source pixels
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const auto& [w, h, ow, oh] :
       {std::array{1920, 1080, 336, 336}, std::array{1920, 1080, 597, 336}, std::array{4000, 3000, 448, 336},
        std::array{640, 480, 448, 336}, std::array{300, 200, 672, 448}})
    benchmark->Args({w, h, ow, oh});
  benchmark->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(run, bicubic, Filter::kBicubic)->Apply(sizes);
BENCHMARK_CAPTURE(run, bilinear, Filter::kBilinear)->Apply(sizes);
BENCHMARK_CAPTURE(run, lanczos, Filter::kLanczos)->Apply(sizes);

void normalize(benchmark::State& state) {
  const Image image = noise(336, 336);
  std::vector<float> out(image.rgb.size());
  for (auto _ : state) {
    normalize_chw(image, {}, out);
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(normalize)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace triptych

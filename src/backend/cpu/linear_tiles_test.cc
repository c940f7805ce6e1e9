// Linears over kernels of tiles against the same linears without them, through the backend: other orders of
// rows and panels, other pieces of work, the same bits. Tiles are emulated where the processor has none.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/backend_test_util.h"
#include "backend/cpu/kernels/tiles/emulated_tiles.h"
#include "backend/cpu/runtime.h"
#include "backend/exec_context.h"
#include "tensor/quant_format.h"

namespace triptych {
namespace {

constexpr ActivationQuant kQuant{0.021F, 0.7F};

CpuTuning without_tiles() {
  CpuTuning out;
  out.tile_rows = std::numeric_limits<std::int64_t>::max();
  return out;
}

// From the first row on, so that short blocks of rows are met, too.
CpuTuning with_tiles(bool emulated) {
  CpuTuning out;
  out.tile_rows = 1;
  out.emulated_tiles = emulated;
  return out;
}

std::unique_ptr<Backend> backend_with(const CpuTuning& tuning, int n_threads) {
  CpuBackendOptions options;
  options.n_threads = n_threads;
  options.tuning = tuning;
  return make_cpu_backend(options);
}

std::vector<float> floats(const TensorView& y) {
  std::vector<float> out;
  for (std::int64_t t = 0; t < y.dim(0); ++t)
    out.insert(out.end(), y.row(t).cf32(), y.row(t).cf32() + y.dim(1));
  return out;
}

std::unique_ptr<LinearWeight> make(Backend& backend, std::int64_t n_out, std::int64_t n_in,
                                   const char* format, ActivationQuant x_quant = {}) {
  const auto w = std::make_shared<Tensor>(random_tensor({n_out, n_in}, 1, 0.2F));
  const auto bias = std::make_shared<Tensor>(random_tensor({n_out}, 2));
  LinearSpec spec;
  spec.name = "layer";
  spec.add(WeightEntry{"w", w->view(), w, "test"});
  spec.parts.back().bias = {"b", bias->view(), bias, "test"};
  spec.format = QuantFormat::parse(format);
  spec.activation_quant = x_quant;
  return backend.prepare_linear(spec);
}

// A linear, a gated one, and one that the first hands int8 activations to where its inputs are static.
std::vector<float> outputs(const CpuTuning& tuning, int n_threads, const char* format, std::int64_t m,
                           std::int64_t k, bool is_static, bool outliers) {
  constexpr std::int64_t kWidth = 128;
  const auto backend = backend_with(tuning, n_threads);
  const auto first = make(*backend, kWidth, k, format, is_static ? kQuant : ActivationQuant{});
  const auto gate_up = make(*backend, 2 * kWidth, k, format);
  const auto second = make(*backend, 70, kWidth, format, is_static ? kQuant : ActivationQuant{});
  first->set_reader(*second);
  Tensor x = random_tensor({m, k}, 4);
  if (outliers)
    for (std::int64_t r = 0; r < m; r += 3) x.f32()[r * k + (5 * r) % k] = 300.0F;
  const Tensor norm_weight = random_tensor({k}, 5);
  const LinearInput normed(x, LinearInput::Norm::kRmsNorm, norm_weight.view(), {}, 1e-5F);
  Arena arena;
  ExecContext cx(*backend, arena);
  std::vector<float> out = floats(cx.linear(*first, x));
  const LinearInput middle = cx.linear(*first, normed, Activation::kGelu);
  for (const TensorView& y :
       {cx.linear(*second, middle),
        TensorView(LinearInput(cx.gated_linear(Activation::kSilu, *gate_up, x)).rows)}) {
    const std::vector<float> more = floats(y);
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

// Rows around blocks of 16 and tiles of 32, K around steps of 64 and groups of 8.
void expect_same_bits(bool emulated) {
  for (const std::string format : {"int8", "int4:g32", "int4:g32:asym", "int8:g64"})
    for (const std::int64_t k : {40, 100, 203, 588})
      for (const std::int64_t m : {1, 16, 17, 33, 130})
        for (const int variant : {0, 1, 2}) {  // plain, with static inputs, with outliers
          if (m == 130 && k != 203) continue;
          if (format == "int8:g64" && m != 33) continue;  // stays without tiles
          if (variant == 1 && format != "int8") continue;
          if (variant == 2 && (m != 33 || k < 64)) continue;
          const bool is_static = variant == 1, outliers = variant == 2;
          const auto expected = outputs(without_tiles(), 1, format.c_str(), m, k, is_static, outliers);
          for (const int n_threads : {1, 3}) {
            if (n_threads > 1 && m < 33) continue;
            ASSERT_EQ(outputs(with_tiles(emulated), n_threads, format.c_str(), m, k, is_static, outliers),
                      expected)
                << format << " " << m << " rows, k=" << k << " variant " << variant << ", " << n_threads
                << " threads";
          }
        }
}

TEST(LinearTiles, EmulatedTilesGiveTheSameBits) { expect_same_bits(true); }

TEST(LinearTiles, TheProcessorsTilesGiveTheSameBits) {
  if (kernels::gemm_s8_tile_kernels(active_features()) == nullptr)
    GTEST_SKIP() << "this machine has no AMX, or it is not in use: emulated tiles only";
  expect_same_bits(false);
}

// Few rows stay with the kernels that read the weight once for them.
TEST(LinearTiles, TakeOverAtTheTuningsRows) {
  CpuTuning tuning = with_tiles(true);
  tuning.tile_rows = 9;
  const cpu::Runtime runtime(1, false, active_features(), {}, tuning);
  EXPECT_EQ(&runtime.gemm_s8_for(8), &runtime.gemm_s8);
  EXPECT_EQ(&runtime.gemm_s8_for(9), &kernels::kGemmS8EmulatedTiles);
  const cpu::Runtime plain(1, false, active_features(), {}, without_tiles());
  EXPECT_EQ(&plain.gemm_s8_for(1000), &plain.gemm_s8);
}

// Of another library that works with tiles in the calling thread.
TEST(LinearTiles, AProductLeavesAForeignConfiguration) {
  using kernels::EmulatedTiles;
  kernels::TileConfig foreign = kernels::kWholeTiles;
  foreign.rows[2] = 5;
  EmulatedTiles::configure(foreign);
  outputs(with_tiles(true), 1, "int8", 40, 64, false, false);
  kernels::TileConfig seen;
  EmulatedTiles::save(seen);
  EXPECT_EQ(std::memcmp(&seen, &foreign, sizeof seen), 0);
  EmulatedTiles::release();
  outputs(with_tiles(true), 1, "int4", 40, 64, false, false);
  EmulatedTiles::save(seen);
  EXPECT_EQ(seen.palette, 0) << "tiles are released";
}

}  // namespace
}  // namespace triptych

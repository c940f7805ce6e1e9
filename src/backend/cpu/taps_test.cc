// Products that are shown to an observer of taps before they are added have the bits of those that are not.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/backend_test_util.h"
#include "backend/exec_context.h"
#include "tensor/quant_format.h"

namespace triptych {
namespace {

class CountTaps final : public ExecObserver {
 public:
  void on_tap(std::string_view, const TensorView&) override { ++n; }
  int n = 0;
};

TEST(Taps, SumsKeepTheirBits) {
  const auto cpu = backend(2);
  const auto w = std::make_shared<Tensor>(random_tensor({70, 96}, 1, 0.2F));
  const auto b = std::make_shared<Tensor>(random_tensor({70}, 2));
  for (const char* format : {"", "int8", "int8:g32", "int4:g32"})
    for (const std::int64_t rows : {1, 7, 40}) {
      LinearSpec spec;
      spec.name = "test";
      spec.parts.push_back({WeightEntry{"w", w->view(), w, "test"}, WeightEntry{"b", b->view(), b, "test"}});
      if (*format != 0) spec.format = QuantFormat::parse(format);
      const auto weight = cpu->prepare_linear(spec);
      const Tensor x = random_tensor({rows, 96}, 3);
      const Tensor start = random_tensor({rows, 70}, 4);
      const auto run = [&](ExecObserver* observer) {
        Arena arena;
        ExecContext cx(*cpu, arena, observer);
        TensorView h = cx.empty({rows, 70});
        cx.copy(start.view(), h);
        cx.block({"model", "layers", 0}, h, [&] { cx.linear_add(*weight, x, h, "mlp"); });
        return std::vector<float>(h.cf32(), h.cf32() + h.numel());
      };
      CountTaps taps;
      EXPECT_EQ(run(&taps), run(nullptr)) << format << ", " << rows << " rows";
      EXPECT_EQ(taps.n, 2);
    }
}

}  // namespace
}  // namespace triptych

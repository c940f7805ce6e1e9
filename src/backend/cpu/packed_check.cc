// The scales inside the panels of kernels/gemm_s4, read in full: prepare_linear leaves them alone, as that
// would touch every page of a model.
#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"
#include "backend/cpu/packed_arrays.h"
#include "base/error.h"
#include "base/half.h"

namespace triptych {
namespace {

constexpr std::int64_t kWidth = kernels::kS4PanelWidth;

// Channels of the panel, fewer than 64 in the last: what lies beyond N is never used.
void check_panel(std::string_view name, const kernels::S4Layout& layout, const std::uint8_t* panel,
                 std::int64_t first, std::int64_t n_channels) {
  for (std::int64_t g = 0; g < layout.n_groups(); ++g) {
    const std::uint8_t* scales = panel + layout.blocks(g) * kWidth * 4;
    for (std::int64_t c = 0; c < n_channels; ++c) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, scales + 2 * c, sizeof bits);
      if ((bits & 0x7c00U) == 0x7c00U)
        fail(ErrorCode::kInvalidFile, "{}: array panels: the scale of channel {}, group {} is {}", name,
             first + c, g, f16_to_f32(bits));
    }
    panel = scales + layout.tail_bytes();
  }
}

}  // namespace

void check_packed_scales(const std::string& name, const PackedLinear& packed) {
  const QuantFormat& format = packed.format;
  if (format.code != QuantCode::kInt4) return;  // the others' are arrays of their own
  LinearSpec spec;
  spec.name = name;
  spec.add(packed);
  if (packed.n_in > kernels::kS4MaxK || packed.n_out > std::int64_t{1} << 32)
    fail(ErrorCode::kInvalidFile, "{}: a stored matrix of {} x {}", name, packed.n_out, packed.n_in);
  const kernels::S4Layout layout = {packed.n_in, format.group_of_row(packed.n_in), format.has_zeros()};
  const std::int64_t n_panels = (packed.n_out + kWidth - 1) / kWidth;
  const auto panels =
      cpu::WeightArray::borrow(spec, "panels", DType::kU8, Shape{n_panels, layout.panel_bytes()});
  for (std::int64_t i = 0; i < n_panels; ++i)
    check_panel(name, layout, panels.bytes() + i * layout.panel_bytes(), i * kWidth,
                std::min(kWidth, packed.n_out - i * kWidth));
}

}  // namespace triptych

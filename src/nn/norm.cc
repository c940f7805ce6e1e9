#include "nn/norm.h"

namespace triptych {

LayerNorm LayerNorm::bind(Binder binder, std::string_view name, std::int64_t width, float eps) {
  const std::string base(name);
  return {binder.tensor(base + ".weight", {width}), binder.tensor(base + ".bias", {width}), eps};
}

RmsNorm RmsNorm::bind(Binder binder, std::string_view name, std::int64_t width, float eps) {
  return {binder.tensor(std::string(name) + ".weight", {width}), eps};
}

}  // namespace triptych

#include "nn/activation.h"

#include "base/error.h"

namespace triptych {

Activation parse_activation(const JsonView& value) {
  const std::string name = value.as_string();
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::kGeluTanh;
  if (name == "quick_gelu") return Activation::kQuickGelu;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "relu") return Activation::kRelu;
  if (name == "relu2") return Activation::kRelu2;
  fail(ErrorCode::kUnsupported,
       "{}: activation \"{}\" is not supported; supported: gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, "
       "silu, relu, relu2",
       value.path(), name);
}

Activation get_activation(const JsonView& config, std::string_view key, Activation fallback) {
  const auto value = config.find(key);
  return value ? parse_activation(*value) : fallback;
}

}  // namespace triptych

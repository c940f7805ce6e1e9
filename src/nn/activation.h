// Activation names as configurations spell them.
#pragma once

#include "backend/op_args.h"
#include "base/json.h"

namespace triptych {

/// "gelu", "gelu_new" / "gelu_pytorch_tanh", "quick_gelu", "silu" / "swish", "relu", "relu2". Anything else
/// throws Error(kUnsupported) naming the field.
Activation parse_activation(const JsonView& value);
/// Field `key` of `config`, or `fallback` when missing.
Activation get_activation(const JsonView& config, std::string_view key, Activation fallback);

}  // namespace triptych

// Functions between products. Includes nothing, so that files for one instruction set may see it.
#pragma once

namespace triptych {

enum class Activation : int {
  kNone,
  kGelu,       // x * Phi(x), by erf
  kGeluTanh,   // the tanh approximation
  kQuickGelu,  // x * sigmoid(1.702 x)
  kSilu,       // x * sigmoid(x)
  kRelu,
  kRelu2,  // max(x, 0)^2
  kExp,    // e^x, which kernels test their exponential with
};

}  // namespace triptych

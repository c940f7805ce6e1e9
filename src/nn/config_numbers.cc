#include "nn/config_numbers.h"

namespace triptych {

double read_positive(const JsonView& config, std::string_view key, double fallback, double max) {
  constexpr double kLeast = 1e-30;
  return config.get_double(key, fallback, kLeast, max);
}

float read_norm_eps(const JsonView& config, std::string_view key, double fallback) {
  return static_cast<float>(read_positive(config, key, fallback, 1.0));
}

double read_rope_theta(const JsonView& config, std::string_view key, double fallback) {
  const double theta = config.get_double(key, fallback, 1.0, 1e18);
  if (theta == 1) config.at(key).fail_expected("a number > 1");  // all frequencies would be the same
  return theta;
}

}  // namespace triptych

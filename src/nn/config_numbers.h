// Readers of the real numbers in configuration files, with the ranges in which they mean something: what lies
// outside (a negative epsilon, a mean of 1e308) loads and ends as nonsense otherwise. Integers have theirs in
// JsonView::as_int. All throw Error(kInvalidFile) that names file and key.
#pragma once

#include <string_view>

#include "base/json.h"

namespace triptych {

/// A number in [1e-30, max]: more than 0, in float32 too.
double read_positive(const JsonView& config, std::string_view key, double fallback, double max);
/// What a norm adds below its root: at most 1.
float read_norm_eps(const JsonView& config, std::string_view key, double fallback);
/// Base of rotary frequencies, in (1, 1e18].
double read_rope_theta(const JsonView& config, std::string_view key, double fallback);

}  // namespace triptych

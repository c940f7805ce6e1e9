// What an engine has done so far, beside what its metrics show.
#pragma once

#include <cstddef>
#include <cstdint>

namespace triptych::server {

struct EngineCounts {
  std::int64_t n_steps = 0;
  double step_s = 0;  // of all steps together
  std::int64_t n_media_encoded = 0;
  std::size_t kv_cache_bytes = 0;
};

}  // namespace triptych::server

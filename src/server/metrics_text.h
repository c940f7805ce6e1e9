// Metrics in the text form that Prometheus reads (exposition format 0.0.4).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/metrics_registry.h"

namespace triptych::server {

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

/// HELP, TYPE and the samples of each family; of histograms the buckets cumulated, the sum and the count.
/// Families without samples are left out.
std::string metrics_text(std::span<const MetricFamily> families);

}  // namespace triptych::server

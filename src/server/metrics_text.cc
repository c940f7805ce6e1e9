#include "server/metrics_text.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>
#include <vector>

namespace triptych::server {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

std::string escaped(std::string_view text, bool is_label) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && is_label) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// {a="b",le="0.1"}; nothing without labels. `bound` is empty, or of a bucket.
std::string labels_text(const Labels& labels, std::string_view bound = {}) {
  std::string out;
  const auto add = [&out](std::string_view name, std::string_view value) {
    out += fmt::format("{}{}=\"{}\"", out.empty() ? "{" : ",", name, escaped(value, true));
  };
  for (const auto& [name, value] : labels) add(name, value);
  if (!bound.empty()) add("le", bound);
  if (!out.empty()) out += '}';
  return out;
}

void write_histogram(std::string& out, const MetricFamily& family, const MetricSample& sample) {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < sample.buckets.size(); ++i) {
    n += sample.buckets[i];
    const std::string bound = i < family.bounds.size() ? number(family.bounds[i]) : "+Inf";
    out += fmt::format("{}_bucket{} {}\n", family.name, labels_text(sample.labels, bound), n);
  }
  const std::string labels = labels_text(sample.labels);
  out += fmt::format("{0}_sum{1} {2}\n{0}_count{1} {3}\n", family.name, labels, number(sample.value), n);
}

}  // namespace

std::string metrics_text(std::span<const MetricFamily> families) {
  std::string out;
  for (const MetricFamily& family : families) {
    if (family.samples.empty()) continue;
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", family.name, escaped(family.help, false),
                       to_string(family.kind));
    for (const MetricSample& sample : family.samples)
      if (family.kind == MetricKind::kHistogram) {
        write_histogram(out, family, sample);
      } else {
        out += fmt::format("{}{} {}\n", family.name, labels_text(sample.labels), number(sample.value));
      }
  }
  return out;
}

}  // namespace triptych::server

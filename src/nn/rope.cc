#include "nn/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "nn/config_numbers.h"

namespace triptych {
namespace {

constexpr double kLeastFactor = 1e-6;
constexpr double kMostFactor = 1e6;

// The reference has no default for it.
double parse_factor(const JsonView& scaling) {
  return scaling.at("factor").as_double(kLeastFactor, kMostFactor);
}

// The length trained with before scaling. The text configuration's own field goes first, as in the reference.
std::int64_t parse_original_length(const JsonView& text_config, const JsonView& scaling,
                                   std::int64_t max_positions) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (text_config.has(kKey)) return text_config.at(kKey).as_int(1, kMost);
  if (!scaling.raw().contains(kKey)) return max_positions;
  return scaling.at(kKey).as_int(1, kMost);
}

void parse_yarn(RopeConfig& out, const JsonView& text_config, const JsonView& scaling,
                std::int64_t max_positions) {
  out.scaling = RopeConfig::Scaling::kYarn;
  out.original_max_positions = parse_original_length(text_config, scaling, max_positions);
  // A factor of null, which must be there, stands for the ratio of the two lengths.
  if (scaling.at("factor").is_null()) {
    out.factor = static_cast<double>(max_positions) / static_cast<double>(out.original_max_positions);
  } else {
    out.factor = parse_factor(scaling);
  }
  // 0 is the default too.
  const auto beta = [&](const char* key, double fallback) {
    const double value = scaling.get_double(key, fallback, 0.0, kMostFactor);
    return value == 0 ? fallback : value;
  };
  out.beta_fast = beta("beta_fast", 32.0);
  out.beta_slow = beta("beta_slow", 1.0);
  out.truncate = scaling.get_bool("truncate", true);
  const auto mscale_of = [&](double m) {
    return out.factor <= 1 ? 1.0 : 0.1 * m * std::log(out.factor) + 1.0;
  };
  constexpr double kMostScale = 1000;
  const double mscale = scaling.get_double("mscale", 0, 0.0, kMostScale);
  const double mscale_all = scaling.get_double("mscale_all_dim", 0, 0.0, kMostScale);
  const double inferred =
      mscale != 0 && mscale_all != 0 ? mscale_of(mscale) / mscale_of(mscale_all) : mscale_of(1.0);
  out.attention_factor = read_positive(scaling, "attention_factor", inferred, kMostScale);
}

void parse_scaling(RopeConfig& out, const JsonView& text_config, const JsonView& scaling,
                   std::int64_t max_positions) {
  std::string type = scaling.get_string("rope_type", scaling.get_string("type", "default"));
  if (const auto sections = scaling.find("mrope_section"))
    for (const JsonView& item : sections->items())
      out.mrope_section.push_back(static_cast<int>(item.as_int(0, out.rotary_dim)));
  if (type == "default" || type == "mrope") return;
  if (type == "linear") {
    out.scaling = RopeConfig::Scaling::kLinear;
    out.factor = parse_factor(scaling);
  } else if (type == "dynamic") {
    out.scaling = RopeConfig::Scaling::kDynamic;
    out.factor = parse_factor(scaling);
    // Of this scaling alone the reference takes the trained length from max_position_embeddings only.
    out.original_max_positions = max_positions;
    if (out.rotary_dim <= 2)
      fail(ErrorCode::kInvalidFile,
           "{}: rope_type \"dynamic\" needs more than 2 rotated dimensions of a head", scaling.path());
  } else if (type == "llama3") {
    out.scaling = RopeConfig::Scaling::kLlama3;
    out.factor = parse_factor(scaling);
    out.original_max_positions = parse_original_length(text_config, scaling, max_positions);
    out.low_freq_factor = scaling.at("low_freq_factor").as_double(kLeastFactor, kMostFactor);
    out.high_freq_factor = scaling.at("high_freq_factor").as_double(kLeastFactor, kMostFactor);
    if (!(out.high_freq_factor > out.low_freq_factor))
      scaling.at("high_freq_factor")
          .fail_expected(fmt::format("a number larger than low_freq_factor {}", out.low_freq_factor));
  } else if (type == "yarn") {
    parse_yarn(out, text_config, scaling, max_positions);
  } else {
    fail(ErrorCode::kUnsupported,
         "{}: rope scaling \"{}\" is not supported; supported: default, linear, dynamic, yarn, llama3, mrope",
         scaling.path(), type);
  }
}

float default_inverse(double theta, int d, int rotary_dim) {
  // As the reference: the exponent in float32, then the power in float32.
  const float exponent = static_cast<float>(2 * d) / static_cast<float>(rotary_dim);
  return 1.0F / std::pow(static_cast<float>(theta), exponent);
}

void apply_yarn(const RopeConfig& c, std::span<float> inv) {
  const auto correction = [&](double rotations) {
    return c.rotary_dim *
           std::log(static_cast<double>(c.original_max_positions) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(c.theta));
  };
  double low = correction(c.beta_fast);
  double high = correction(c.beta_slow);
  if (c.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(c.rotary_dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t d = 0; d < inv.size(); ++d) {
    const float ramp = std::clamp(
        (static_cast<float>(d) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0F, 1.0F);
    const float keep = 1.0F - ramp;
    inv[d] = inv[d] / static_cast<float>(c.factor) * (1.0F - keep) + inv[d] * keep;
  }
}

void apply_llama3(const RopeConfig& c, std::span<float> inv) {
  const double low_wavelength = static_cast<double>(c.original_max_positions) / c.low_freq_factor;
  const double high_wavelength = static_cast<double>(c.original_max_positions) / c.high_freq_factor;
  for (float& f : inv) {
    const double wavelength = 2 * std::numbers::pi / static_cast<double>(f);
    if (wavelength > low_wavelength) {
      f = f / static_cast<float>(c.factor);
    } else if (wavelength >= high_wavelength) {
      const double smooth = (static_cast<double>(c.original_max_positions) / wavelength - c.low_freq_factor) /
                            (c.high_freq_factor - c.low_freq_factor);
      f = static_cast<float>((1 - smooth) * static_cast<double>(f) / c.factor +
                             smooth * static_cast<double>(f));
    }
  }
}

}  // namespace

RopeConfig RopeConfig::parse(const JsonView& text_config, int head_dim, double default_theta,
                             std::int64_t max_position_embeddings, double default_partial_rotary_factor) {
  RopeConfig out;
  // The older rope_scaling is all there is to it where a file has both and it says anything.
  auto settings = text_config.find("rope_scaling");
  if (!settings || (settings->is_object() && settings->raw().empty()))
    settings = text_config.find("rope_parameters");
  const JsonView& first = settings ? *settings : text_config;
  out.theta = read_rope_theta(first, "rope_theta", read_rope_theta(text_config, "rope_theta", default_theta));
  const double partial = read_positive(
      first, "partial_rotary_factor",
      read_positive(text_config, "partial_rotary_factor", default_partial_rotary_factor, 1.0), 1.0);
  out.rotary_dim = static_cast<int>(head_dim * partial);
  if (out.rotary_dim < 2 || out.rotary_dim % 2 != 0)
    fail(ErrorCode::kInvalidFile,
         "{}: head_dim {} times partial_rotary_factor {}: expected an even number of rotated dimensions, got "
         "{}",
         text_config.path(), head_dim, partial, out.rotary_dim);
  if (settings) parse_scaling(out, text_config, *settings, max_position_embeddings);
  int sum = 0;
  for (const int section : out.mrope_section) sum += section;
  if (!out.mrope_section.empty() && (sum != out.rotary_dim / 2 || out.mrope_section.size() != 3))
    fail(ErrorCode::kInvalidFile, "{}: mrope_section: expected 3 numbers with sum {}", text_config.path(),
         out.rotary_dim / 2);
  return out;
}

Rope::Rope(RopeConfig config) : config_(std::move(config)) {
  inv_freq_.resize(static_cast<std::size_t>(config_.rotary_dim / 2));
  inverse_frequencies(0, inv_freq_);
  axis_.assign(inv_freq_.size(), 0);
  std::size_t next = 0;  // of the blocks
  for (std::size_t a = 0; a < config_.mrope_section.size(); ++a)
    for (std::size_t i = 0; i < static_cast<std::size_t>(config_.mrope_section[a]); ++i) {
      const std::size_t d = config_.mrope_interleaved ? 3 * i + a : next++;
      if (d < axis_.size()) axis_[d] = static_cast<int>(a);
    }
}

void Rope::inverse_frequencies(std::int64_t n_positions, std::span<float> inv) const {
  const RopeConfig& c = config_;
  double theta = c.theta;
  if (c.scaling == RopeConfig::Scaling::kDynamic && n_positions > c.original_max_positions) {
    const double stretch =
        c.factor * static_cast<double>(n_positions) / static_cast<double>(c.original_max_positions) -
        (c.factor - 1);
    theta *= std::pow(stretch, static_cast<double>(c.rotary_dim) / (c.rotary_dim - 2));
  }
  for (std::size_t d = 0; d < inv.size(); ++d)
    inv[d] = default_inverse(theta, static_cast<int>(d), c.rotary_dim);
  switch (c.scaling) {
    case RopeConfig::Scaling::kLinear:
      for (float& f : inv) f /= static_cast<float>(c.factor);
      break;
    case RopeConfig::Scaling::kYarn:
      apply_yarn(c, inv);
      break;
    case RopeConfig::Scaling::kLlama3:
      apply_llama3(c, inv);
      break;
    case RopeConfig::Scaling::kNone:
    case RopeConfig::Scaling::kDynamic:
      break;
  }
}

RopeAngles Rope::angles(ExecContext& cx, std::span<const std::int32_t> positions,
                        std::span<const RowLengths> lengths) const {
  const auto half = static_cast<std::int64_t>(inv_freq_.size());
  const auto n_tokens = static_cast<std::int64_t>(lengths.size());
  TRIPTYCH_CHECK(n_tokens > 0 && static_cast<std::int64_t>(positions.size()) % n_tokens == 0,
                 "[rope] {} positions for {} tokens", positions.size(), n_tokens);
  const std::int64_t n_axes = static_cast<std::int64_t>(positions.size()) / n_tokens;
  const RopeAngles out{cx.empty_host({n_tokens, half}), cx.empty_host({n_tokens, half})};
  TRIPTYCH_CHECK(n_axes == 1 || static_cast<std::size_t>(n_axes) == config_.mrope_section.size(),
                 "[rope] {} position axes", n_axes);
  std::span<float> own;  // frequencies of a length
  if (config_.scaling == RopeConfig::Scaling::kDynamic) own = cx.arena().make_span<float>(inv_freq_.size());
  cx.host([this, positions, lengths, n_tokens, own, out] {
    const auto half_dim = static_cast<std::int64_t>(inv_freq_.size());
    const bool several_axes = static_cast<std::int64_t>(positions.size()) > n_tokens;
    const auto scale = static_cast<float>(config_.attention_factor);
    float* cos = out.cos.f32();
    float* sin = out.sin.f32();
    std::span<const float> inv = inv_freq_;
    std::int32_t length = -1;  // that `own` holds
    for (std::int64_t t = 0; t < n_tokens; ++t) {
      const RowLengths& row = lengths[static_cast<std::size_t>(t)];
      if (!own.empty() && length != std::max(row.n_prompt, row.n_tokens)) {
        length = std::max(row.n_prompt, row.n_tokens);
        inverse_frequencies(length, own);
        inv = own;
      }
      for (std::int64_t d = 0; d < half_dim; ++d) {
        const auto di = static_cast<std::size_t>(d);
        const auto position = static_cast<float>(
            positions[static_cast<std::size_t>((several_axes ? axis_[di] : 0) * n_tokens + t)]);
        const float angle = position * inv[di];
        cos[t * half_dim + d] = std::cos(angle) * scale;
        sin[t * half_dim + d] = std::sin(angle) * scale;
      }
    }
  });
  return {cx.upload(out.cos), cx.upload(out.sin)};
}

}  // namespace triptych

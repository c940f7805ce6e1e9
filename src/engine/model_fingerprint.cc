#include "engine/model_fingerprint.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <random>

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/cpu_features.h"
#include "base/digest.h"

namespace triptych {
namespace {

constexpr std::size_t kSample_bytes = 64;

void add_format(Digest& digest, const std::optional<QuantFormat>& format) {
  digest.add_text(format ? format->to_string() : "as stored");
}

void add_weights(Digest& digest, const Checkpoint& checkpoint, bool with_tower_of_its_own) {
  for (const std::string& name : checkpoint.weight_files()) {
    const auto path = checkpoint.file(name);
    struct stat status {};
    digest.add_text(name);
    if (!path || ::stat(path->c_str(), &status) != 0) continue;
    digest.add_value(static_cast<std::uint64_t>(status.st_size));
    digest.add_value(static_cast<std::int64_t>(status.st_mtim.tv_sec));
    digest.add_value(static_cast<std::int64_t>(status.st_mtim.tv_nsec));
  }
  digest.add_value(static_cast<std::uint8_t>(with_tower_of_its_own));
  for (const WeightEntry& entry : checkpoint.weights()) {
    digest.add_text(entry.name);
    digest.add_text(to_string(entry.view.dtype()));
    digest.add_text(to_string(entry.view.shape()));
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(entry.view.cdata()),
                                           entry.view.size_bytes());
    const std::size_t n = std::min(bytes.size(), kSample_bytes);
    digest.add(bytes.first(n));
    digest.add(bytes.last(n));
  }
}

}  // namespace

Fingerprint model_fingerprint(const ModelIdentity& identity) {
  Digest digest;
  digest.add_text("triptych model 1");
  digest.add_text(build_info().version);
  digest.add_text(build_info().revision);
  const LoadOptions& options = *identity.options;
  digest.add_text(options.make_backend ? identity.backend->describe() : to_string(active_isa()));
  for (const Json* json : identity.configurations) digest.add_text(json != nullptr ? json->dump() : "none");
  digest.add_text(identity.weight_dtype ? to_string(*identity.weight_dtype) : "as stored");
  for (const auto* format : {&identity.formats.language, &identity.formats.vision, &identity.formats.lm_head})
    add_format(digest, *format);
  for (const bool flag : {options.tie_word_embeddings, options.batch_invariant, options.exact_groups,
                          options.bf16_activations, identity.static_vision_inputs,
                          options.int8_vision_attention.value_or(identity.formats.vision.has_value())})
    digest.add_value(static_cast<std::uint8_t>(flag));
  for (const auto& [id, quant] : options.activation_quants) {
    digest.add_text(id.name);
    digest.add_text(id.part);
    digest.add_text(fmt::format("{} {}", quant.step, quant.offset));
  }
  if (identity.checkpoint != nullptr)
    add_weights(digest, *identity.checkpoint, !options.vision_tower.empty());
  return digest.finish();
}

Fingerprint unique_fingerprint() {
  std::random_device device;
  std::array<std::uint32_t, 8> drawn{};
  std::generate(drawn.begin(), drawn.end(), [&] { return device(); });
  return fingerprint(std::as_bytes(std::span(drawn)));
}

Fingerprint media_fingerprint(const Fingerprint& model, const MediaInput& input, const MediaPlan& plan,
                              std::string_view cache_salt) {
  const bool by_name = !input.client_id.empty();
  // A key that no other tenant has: what he calls by a name is his alone.
  Digest salt;
  salt.add_text("triptych tenant");
  salt.add_text(cache_salt);
  const Fingerprint tenant = salt.finish();
  Digest digest(by_name ? std::as_bytes(std::span(&tenant, 1)) : std::span<const std::byte>());
  digest.add_text(by_name ? "name" : "frames");
  digest.add_value(model);
  for (const std::int64_t n :
       {std::int64_t{plan.meta.width_px}, std::int64_t{plan.meta.height_px},
        std::int64_t{plan.resized_width_px}, std::int64_t{plan.resized_height_px}, std::int64_t{plan.grid_t},
        std::int64_t{plan.grid_h}, std::int64_t{plan.grid_w}, plan.n_tokens, std::int64_t{plan.meta.is_video},
        static_cast<std::int64_t>(input.frames.size())})
    digest.add_value(n);
  if (by_name) {
    digest.add_text(input.client_id);
    return digest.finish();
  }
  for (const Image& frame : input.frames) {
    digest.add_value(static_cast<std::uint64_t>(frame.rgb.size()));
    digest.add(std::as_bytes(std::span(frame.rgb)));
  }
  return digest.finish();
}

}  // namespace triptych

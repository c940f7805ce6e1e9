// Where symbolic links in a checkpoint's folder may lead: one rule for weights, configurations, tokenizers
// and templates.
#pragma once

#include <filesystem>

namespace triptych {

/// A symbolic link must stay inside the checkpoint directory. With kAllowHubCache a link may also point into
/// the `blobs` folder of the Hugging Face cache that the directory itself is part of
/// (<repo>/snapshots/<revision>/x ->
/// ../../blobs/<hash>): that is the standard layout, it names no place of the link author's choice, so it is
/// the default. kAllowAll follows every link to a regular file.
enum class LinkPolicy { kInsideOnly, kAllowHubCache, kAllowAll };

/// Whether `path` is `folder` or lies in it; by their names, so both must be canonical.
bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder);

/// Whether a file of `directory`, a checkpoint or a folder in it, may be `target`. Both canonical: what all
/// links led to.
bool may_lead_to(const std::filesystem::path& directory, const std::filesystem::path& target,
                 LinkPolicy links = LinkPolicy::kAllowHubCache);

}  // namespace triptych

#include "base/checkpoint_links.h"

#include <algorithm>

namespace triptych {
namespace {

namespace fs = std::filesystem;

// <repo>/blobs when `directory` is <repo>/snapshots/<revision> or a folder in it; else empty.
fs::path hub_blobs(const fs::path& directory) {
  for (fs::path at = directory; at.has_relative_path(); at = at.parent_path())
    if (at.parent_path().filename() == "snapshots") return at.parent_path().parent_path() / "blobs";
  return {};
}

}  // namespace

bool is_below(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

bool may_lead_to(const fs::path& directory, const fs::path& target, LinkPolicy links) {
  if (links == LinkPolicy::kAllowAll || is_below(target, directory)) return true;
  if (links == LinkPolicy::kInsideOnly) return false;
  const fs::path blobs = hub_blobs(directory);
  return !blobs.empty() && target.parent_path() == blobs;
}

}  // namespace triptych

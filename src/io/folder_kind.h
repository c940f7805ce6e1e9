// What a path is that is no checkpoint folder, in words that say what to do: people give the name of a model
// on the hub, the cache of its client, a GGUF file, or files whose contents git-lfs has not fetched yet.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace triptych {

/// True for the text that stands in a git clone where git-lfs should have put a large file.
bool is_lfs_pointer(std::string_view text) noexcept;
/// "a pointer of git-lfs to a file that was not fetched (4991436760 bytes); run ...", behind the file's name.
std::string lfs_message(std::string_view pointer);

/// Why `path` cannot be opened as a checkpoint: it does not exist (then, where it looks like ORG/NAME or an
/// address of the hub, the command that fetches it), is a file (GGUF, or one of a checkpoint), or a folder
/// without config.json (a hub cache: which folder in it; GGUF files). Reads directories only; never fails.
std::string why_no_checkpoint(const std::filesystem::path& path);

}  // namespace triptych

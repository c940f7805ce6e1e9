// Files that requests name as file URLs, below one folder and nowhere else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace triptych::server {

bool is_file_url(std::string_view url) noexcept;

/// The path of "file:///PATH" or "file://localhost/PATH", %-escapes decoded. Throws Error(kInvalidArgument).
std::string path_of_file_url(std::string_view url);

/// The bytes of a regular file whose path lies below `root`. The kernel resolves it so that neither ".." nor
/// a symbolic link leaves the folder, also while others change it (openat2, Linux 5.6). Throws Error:
/// kNotFound for what is outside, absent, a link or no file, which a client cannot tell apart;
/// kInvalidArgument over `max_bytes`; kIo.
std::string read_local_media(const std::filesystem::path& root, const std::string& path,
                             std::uint64_t max_bytes);

}  // namespace triptych::server

// Files that flags name for writing: an existing one is replaced, but never by accident one that the same
// command reads, and never by half a file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace triptych::cli {

/// What a command reads, or writes for another flag: a file, or a folder of which it reads the files.
struct NamedPath {
  std::string flag;
  std::string path;
};

/// Throws Error naming `flag` and file when write_output could not make the file (its folder is absent or
/// write-protected; it is a folder itself, a device, write-protected), and when it is one of `others` or lies
/// as an existing file in one. Changes nothing. An empty name is an error.
void check_output(std::string_view flag, const std::string& name, const std::vector<NamedPath>& others = {});

/// Where writing has to go: links are followed, so that they stay.
std::filesystem::path output_path(const std::string& name);

/// Writes the file whole or not at all. Throws Error naming `flag` and file.
void write_output(std::string_view flag, const std::string& name, std::span<const std::byte> bytes);
void write_output(std::string_view flag, const std::string& name, std::string_view text);

/// Runs `write`, which writes a file in its own way, and puts the flag before the message of its Error.
void with_flag(std::string_view flag, const std::function<void()>& write);

}  // namespace triptych::cli

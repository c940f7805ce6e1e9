// Files that are read once, from begin to end: regular ones, stdin ("-", /dev/stdin), FIFOs and what a shell
// makes of <(command).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace triptych::cli {

/// True for what can be read once only, and cannot be mapped: "-", a FIFO, a terminal, a socket, a device.
bool is_stream(const std::string& name);

/// Whether `name` is this process's stdin: "-", or a path of the same file.
bool is_stdin(const std::string& name);

/// All bytes of a stream or a file. `what` stands in errors ("image on stdin"). Throws Error: kNotFound, kIo,
/// kInvalidArgument beyond `max_bytes`, kInvalidFile for a folder.
std::vector<std::byte> read_all(const std::string& name, std::uint64_t max_bytes, const std::string& what);

/// The same as text, which may be empty. Throws Error(kInvalidFile) naming `what` for text that is not UTF-8.
std::string read_all_text(const std::string& name, std::uint64_t max_bytes, const std::string& what);

}  // namespace triptych::cli

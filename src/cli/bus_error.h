// Weights are used where they are mapped. A file that somebody cuts short meanwhile, or a disk that fails,
// raises SIGBUS when the lost part is read; nothing can be computed without it.
#pragma once

namespace triptych::cli {

/// From here on a SIGBUS from a mapped file ends the program with an error that names the file, as text or
/// JSON on stderr, and exit code 2. Files that were being written stay under their temporary names. A SIGBUS
/// from elsewhere ends the program as ever.
void name_files_in_bus_errors(bool json) noexcept;

}  // namespace triptych::cli

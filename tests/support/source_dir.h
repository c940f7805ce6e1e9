// Where the sources lie. Only source_dir.cc is compiled with that path, so that objects of tests are the same
// in every checkout and ccache serves them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace triptych::test {

/// The root of the repository.
const std::filesystem::path& source_dir();
/// A file or folder below it.
inline std::string source_path(std::string_view relative) { return (source_dir() / relative).string(); }

}  // namespace triptych::test

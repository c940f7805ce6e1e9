// What the tests of the program share: where it is, the model that ships, and folders to break.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "support/source_dir.h"
#include "support/subprocess.h"

namespace triptych::test {

inline const std::filesystem::path kSource = test::source_dir();
inline const std::filesystem::path kModel = kSource / "assets/models/scenes-llava";
inline const std::filesystem::path kScenes = kModel / "golden";  // scene1.png: a small star

inline std::string program_path() {
  const char* set = std::getenv("TRIPTYCH");
  return set != nullptr ? set : "triptych";
}

/// Runs `triptych <args>`.
inline RunResult triptych(std::vector<std::string> args, const std::string& input = "",
                          std::vector<std::string> env = {}) {
  args.insert(args.begin(), program_path());
  env.push_back("TRIPTYCH_HISTORY=");
  return run_program(args, input, env);
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A folder that is gone after the test.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "triptych-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }
  /// A copy of a folder's files that a test may change.
  std::filesystem::path copy_of(const std::filesystem::path& folder, const std::string& name) const {
    std::filesystem::copy(folder, path_ / name, std::filesystem::copy_options::recursive);
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

/// Exactly one line on stderr that begins "triptych: error: ", nothing on stdout, exit code 2.
inline void expect_bad_input(const RunResult& result, const std::string& message_part) {
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, testing::StartsWith("triptych: error: "));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_THAT(result.err, testing::HasSubstr(message_part));
}

}  // namespace triptych::test

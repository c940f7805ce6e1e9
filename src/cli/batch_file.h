// The files of `run --jsonl IN OUT`: what is asked, what was answered before, and the answers, line by line
// (docs/json.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/json_output.h"

namespace triptych::cli {

/// A line of IN.
struct BatchLine {
  std::int64_t number = 0;  // from 1
  JsonOut id;               // a string or an integer; null: none was given
  Json content;             // an object, when `problem` is empty
  std::string problem;      // why the line cannot be used
};

class BatchFile {
 public:
  /// Reads IN ("-": stdin) and the lines that OUT ("-": stdout) has, cuts off what a killed process left of a
  /// line there, and keeps OUT locked. Throws Error: kNotFound, kIo, kInvalidFile naming a line for ids that
  /// are given twice, and for an OUT that is no output of --jsonl.
  BatchFile(const std::string& in, const std::string& out);
  ~BatchFile();
  BatchFile(const BatchFile&) = delete;
  BatchFile& operator=(const BatchFile&) = delete;

  /// Lines that OUT does not have yet, in the order of IN; blank ones are left out.
  const std::vector<BatchLine>& to_do() const noexcept { return to_do_; }
  /// Of IN, blank ones left out.
  std::size_t n_lines() const noexcept { return n_lines_; }
  /// What relative names of files in IN are relative to.
  const std::filesystem::path& folder() const noexcept { return folder_; }

  /// {"schema", "line", "id"} of a line, to which its answer or error is added.
  static JsonOut answer_to(const BatchLine& line);
  /// Appends one whole line. Throws Error(kIo).
  void write(const JsonOut& answer);
  /// Sees to it that what was written is on the disk. Throws Error(kIo).
  void finish();

 private:
  void open_output();

  std::string out_;
  std::filesystem::path folder_;
  int fd_ = -1;
  std::size_t n_lines_ = 0;
  std::vector<BatchLine> to_do_;
};

}  // namespace triptych::cli

// --json-schema and the other ways to say what an answer has to be.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "api/public.h"
#include "cli/output_file.h"

namespace triptych::cli {

struct ConstraintFlags {
  std::string json_schema;  // text or the name of a file
  std::string regex;
  std::vector<std::string> choice;
  std::string grammar_file;
  std::string grammar;  // what is in it

  void add_to(CLI::App& app);
  /// The files that it reads.
  std::vector<NamedPath> inputs() const;
  /// Reads the files, after which json_schema is text. Throws Error that names the flag and the file. What is
  /// wrong in a schema or a grammar is found by whoever compiles it.
  void read_files();
  /// `sampling` with the constraint.
  api::SamplingParams over(api::SamplingParams sampling) const;
};

}  // namespace triptych::cli

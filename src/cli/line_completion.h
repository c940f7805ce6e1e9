// Commands of a chat and the file names in them: what Tab adds, and which file a written name means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace triptych::cli {

struct LineCompletion {
  std::string rest;                  // to insert at the cursor; may be empty
  std::vector<std::string> choices;  // when `rest` is empty: what the name may become, sorted, 100 at most
};

/// `line`: what stands before the cursor. Completes the command itself ("/im" -> "age ") and, behind /image
/// and /video, names of files: a blank in them is written as the name began, in quotes or with a backslash.
/// "~" is `home`. Reads folders; never fails.
LineCompletion complete_line(std::string_view line, std::string_view home);

/// The file that the argument of /image or /video means: a name in single or double quotes, or with
/// backslashes before its blanks, as terminals write a file that is dropped on them, or plain to the end of
/// the line. A plain name of a file that exists is taken as it stands. "~/" at its start is `home`. Throws
/// Error(kInvalidArgument) for a quote that does not end, or text behind it.
std::string file_argument(std::string_view text, std::string_view home);

}  // namespace triptych::cli

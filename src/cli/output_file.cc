#include "cli/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "io/mapped_file.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

namespace fs = std::filesystem;

// 255 as a rule, less what the temporary file beside it has more.
constexpr std::size_t kMaxName_bytes = 230;

[[noreturn]] void refuse(std::string_view flag, const std::string& name, std::string_view why) {
  fail(ErrorCode::kIo, "{}: {}: cannot write: {}", flag, one_line(name), why);
}

// The same file, by whatever names; one that does not exist yet by its name.
bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const fs::path whole = fs::weakly_canonical(a, error);
  return !error && whole == fs::weakly_canonical(b, error) && !error;
}

// A file of the folder itself, or one that a link there leads to, as in the cache of a model hub.
bool is_file_of(const fs::path& folder, const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return false;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (fs::equivalent(it->path(), file, ignored)) return true;
  }
  return false;
}

void check_not_one_of(std::string_view flag, const std::string& name, const std::vector<NamedPath>& others) {
  for (const NamedPath& other : others) {
    if (other.path.empty() || other.path == "-") continue;
    std::error_code error;
    if (fs::is_directory(other.path, error)) {
      if (is_file_of(other.path, name))
        refuse(flag, name,
               fmt::format("it is a file of {} {}; give another name", other.flag, one_line(other.path)));
    } else if (is_same(name, other.path)) {
      refuse(flag, name, fmt::format("{} names the same file; give another name", other.flag));
    }
  }
}

}  // namespace

fs::path output_path(const std::string& name) {
  std::error_code error;
  fs::path out = fs::weakly_canonical(name, error);
  return error ? fs::path(name) : out;
}

void check_output(std::string_view flag, const std::string& name, const std::vector<NamedPath>& others) {
  if (name.empty())
    fail(ErrorCode::kInvalidArgument, "{}: expected the name of a file to write, got \"\"", flag);
  const fs::path target = output_path(name);
  if (target.filename().empty() || fs::path(name).filename().empty())
    refuse(flag, name, "expected a file, it is the name of a folder");
  if (target.filename().native().size() > kMaxName_bytes)
    refuse(flag, name, fmt::format("a name may have {} bytes", kMaxName_bytes));
  with_flag(flag, [&] { check_replaceable(name); });
  check_not_one_of(flag, name, others);
  std::error_code ignored;
  if (fs::exists(target, ignored) && ::access(target.c_str(), W_OK) != 0)
    refuse(flag, name, std::strerror(errno));
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, ignored))
    refuse(flag, name, fmt::format("there is no folder {}", one_line(folder.string())));
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    refuse(flag, name, fmt::format("folder {}: {}", one_line(folder.string()), std::strerror(errno)));
}

void write_output(std::string_view flag, const std::string& name, std::span<const std::byte> bytes) {
  with_flag(flag, [&] { write_file(output_path(name), bytes); });
}

void write_output(std::string_view flag, const std::string& name, std::string_view text) {
  write_output(flag, name, std::as_bytes(std::span(text)));
}

void with_flag(std::string_view flag, const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    throw error.with_context(flag);
  }
}

}  // namespace triptych::cli

#include "cli/line_completion.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace triptych::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 8> kCommands = {"/help",   "/image ", "/quit",  "/reset",
                                                       "/video ", "/exit",   "/save ", "/load "};
constexpr std::array<std::string_view, 4> kFileCommands = {"/image ", "/video ", "/save ", "/load "};
constexpr std::size_t kMaxChoices = 100;
// What file_argument would take for something else at the place of a blank.
constexpr std::string_view kEscaped = " \t\\'\"";

std::string with_home(std::string name, std::string_view home) {
  if (home.empty() || name.empty() || name[0] != '~' || (name.size() > 1 && name[1] != '/')) return name;
  return std::string(home) + name.substr(1);
}

// Without the backslashes before other characters.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    out += text[i];
  }
  return out;
}

// A name that is being written: its text so far, and how further text has to be written.
struct Begun {
  std::string name;
  char quote = 0;  // ' or ", 0: none
};

Begun begun(std::string_view text) {
  if (text.empty() || (text[0] != '\'' && text[0] != '"')) return {unescaped(text), 0};
  const std::string_view inside = text.substr(1);
  return {text[0] == '"' ? unescaped(inside) : std::string(inside), text[0]};
}

std::string written(std::string_view name, char quote) {
  std::string out;
  for (const char c : name) {
    const bool escape = quote == 0     ? kEscaped.find(c) != std::string_view::npos
                        : quote == '"' ? c == '"' || c == '\\'
                                       : false;
    if (escape) out += '\\';
    out += c;
  }
  return out;
}

std::size_t shared_start(const std::vector<std::string>& words) {
  std::size_t n = words.front().size();
  for (const std::string& word : words) {
    const auto end = std::mismatch(word.begin(), word.end(), words.front().begin(), words.front().end());
    n = std::min(n, static_cast<std::size_t>(end.first - word.begin()));
  }
  // Never half a character of UTF-8.
  while (n > 0 && n < words.front().size() && (static_cast<unsigned char>(words.front()[n]) & 0xC0) == 0x80)
    --n;
  return n;
}

LineCompletion complete_file(std::string_view text, std::string_view home) {
  const Begun it = begun(text);
  const std::size_t slash = it.name.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : it.name.substr(0, slash + 1);
  const std::string start = it.name.substr(folder.size());
  std::vector<std::string> found;
  std::error_code error;
  const std::string real = with_home(folder, home);
  for (fs::directory_iterator entry(real.empty() ? "." : real, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with(start) || (start.empty() && name[0] == '.')) continue;
    std::error_code ignored;
    if (entry->is_directory(ignored)) name += '/';
    found.push_back(std::move(name));
  }
  if (found.empty()) return {};
  std::sort(found.begin(), found.end());
  LineCompletion out;
  out.rest = written(std::string_view(found.front()).substr(start.size(), shared_start(found) - start.size()),
                     it.quote);
  if (found.size() == 1 && it.quote != 0 && !found.front().ends_with('/')) out.rest += it.quote;
  if (out.rest.empty() && found.size() > 1) {
    found.resize(std::min(found.size(), kMaxChoices));
    out.choices = std::move(found);
  }
  return out;
}

}  // namespace

LineCompletion complete_line(std::string_view line, std::string_view home) {
  for (const std::string_view command : kFileCommands)
    if (line.starts_with(command)) {
      const std::size_t from = line.find_first_not_of(' ', command.size());
      return complete_file(from == std::string_view::npos ? std::string_view() : line.substr(from), home);
    }
  std::vector<std::string> found;
  if (line.starts_with('/') && line.find(' ') == std::string_view::npos)
    for (const std::string_view command : kCommands)
      if (command.starts_with(line)) found.emplace_back(command);
  if (found.empty()) return {};
  std::sort(found.begin(), found.end());
  LineCompletion out{.rest = found.front().substr(line.size(), shared_start(found) - line.size()),
                     .choices = {}};
  if (out.rest.empty() && found.size() > 1) out.choices = std::move(found);
  return out;
}

std::string file_argument(std::string_view text, std::string_view home) {
  std::error_code ignored;
  std::string plain = with_home(std::string(text), home);
  if (text.empty() || fs::exists(plain, ignored)) return plain;
  if (text[0] != '\'' && text[0] != '"') return with_home(unescaped(text), home);
  std::size_t end = 1;
  while (end < text.size() && text[end] != text[0]) end += text[0] == '"' && text[end] == '\\' ? 2 : 1;
  if (end >= text.size())
    fail(ErrorCode::kInvalidArgument, "{}: expected a {} at the end of the file name", text, text[0]);
  if (end + 1 != text.size())
    fail(ErrorCode::kInvalidArgument, "{}: expected one file name, got more behind it", text);
  const std::string_view inside = text.substr(1, end - 1);
  return with_home(text[0] == '"' ? unescaped(inside) : std::string(inside), home);
}

}  // namespace triptych::cli

#include "cli/line_reader.h"

#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cli/interrupt.h"

namespace triptych::cli {
namespace {

constexpr int kHistoryLines = 1000;

const char* get_prompt(EditLine* editor) {
  void* data = nullptr;
  el_get(editor, EL_CLIENTDATA, &data);
  return static_cast<const std::string*>(data)->c_str();
}

// Files of other systems end lines with a carriage return, too.
LineReader::Result whole_line(std::string& line) {
  if (line.ends_with('\r')) line.pop_back();
  return LineReader::Result::kLine;
}

// From a pipe or a file, byte by byte through stdio. A last line without a newline counts.
LineReader::Result read_plain(std::string& line) {
  line.clear();
  for (;;) {
    const int c = std::fgetc(stdin);
    if (c == EOF) {
      if (std::ferror(stdin) != 0 && errno == EINTR) {
        std::clearerr(stdin);
        if (Interrupt::take()) return LineReader::Result::kInterrupted;
        continue;
      }
      return line.empty() ? LineReader::Result::kEnd : whole_line(line);
    }
    if (c == '\n') return whole_line(line);
    line += static_cast<char>(c);
  }
}

}  // namespace

struct LineReader::Editor {
  EditLine* editor = nullptr;
  History* history = nullptr;
  HistEvent event = {};
  std::string prompt;
  std::string history_file;

  ~Editor() {
    if (!history_file.empty()) {
      std::error_code ignored;
      std::filesystem::create_directories(std::filesystem::path(history_file).parent_path(), ignored);
      const mode_t before = umask(0077);  // what was asked is nobody else's business
      ::history(history, &event, H_SAVE, history_file.c_str());
      umask(before);
    }
    if (history != nullptr) history_end(history);
    if (editor != nullptr) el_end(editor);
  }
};

LineReader::LineReader(std::string history_file) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) return;
  editor_ = std::make_unique<Editor>();
  Editor& e = *editor_;
  e.editor = el_init("triptych", stdin, stdout, stderr);
  e.history = history_init();
  if (e.editor == nullptr || e.history == nullptr) {
    editor_ = nullptr;  // a terminal that cannot be edited on: plain lines
    return;
  }
  e.history_file = std::move(history_file);
  ::history(e.history, &e.event, H_SETSIZE, kHistoryLines);
  ::history(e.history, &e.event, H_SETUNIQUE, 1);
  if (!e.history_file.empty()) ::history(e.history, &e.event, H_LOAD, e.history_file.c_str());
  el_set(e.editor, EL_CLIENTDATA, &e.prompt);
  el_set(e.editor, EL_PROMPT, get_prompt);
  el_set(e.editor, EL_EDITOR, "emacs");
  // A Ctrl-D typed before the editor took the terminal over arrives as NUL, which would start a literal
  // insertion.
  el_set(e.editor, EL_BIND, "^@", "em-delete-or-list", nullptr);
  el_set(e.editor, EL_SIGNAL, 0);  // Interrupt handles Ctrl-C
  el_set(e.editor, EL_HIST, ::history, e.history);
  el_source(e.editor, nullptr);  // ~/.editrc
}

LineReader::~LineReader() = default;

LineReader::Result LineReader::read(const std::string& prompt, std::string& line) {
  const InterruptsRead interrupts_read;
  if (!editor_) return read_plain(line);
  Editor& e = *editor_;
  e.prompt = prompt;
  int n = 0;
  errno = 0;
  const char* text = el_gets(e.editor, &n);
  if (Interrupt::take()) {
    el_reset(e.editor);
    std::fputs("\n", stdout);
    std::fflush(stdout);
    return Result::kInterrupted;
  }
  if (text == nullptr || n <= 0) return Result::kEnd;
  line.assign(text, static_cast<std::size_t>(n));
  if (line.ends_with('\n')) line.pop_back();
  if (line.find_first_not_of(" \t") != std::string::npos)
    ::history(e.history, &e.event, H_ENTER, line.c_str());
  return Result::kLine;
}

std::string default_history_file() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (std::getenv("TRIPTYCH_HISTORY") != nullptr) return variable("TRIPTYCH_HISTORY");
  if (const std::string state = variable("XDG_STATE_HOME"); state.starts_with('/'))
    return state + "/triptych/history";
  if (const std::string home = variable("HOME"); home.starts_with('/'))
    return home + "/.local/state/triptych/history";
  return {};
}

}  // namespace triptych::cli

#include "cli/line_reader.h"

#include <histedit.h>
#include <langinfo.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "cli/interrupt.h"
#include "cli/line_completion.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

constexpr int kHistoryLines = 1000;

const char* get_prompt(EditLine* editor) {
  void* data = nullptr;
  el_get(editor, EL_CLIENTDATA, &data);
  return static_cast<const std::string*>(data)->c_str();
}

// The editor reads characters in the encoding of LC_CTYPE; without one it drops every byte above 127.
// Messages are UTF-8 whatever the terminal's locale says, so another encoding would not help.
void use_utf8() {
  const auto is_utf8 = [] { return std::string_view(nl_langinfo(CODESET)) == "UTF-8"; };
  if (std::setlocale(LC_CTYPE, "") != nullptr && is_utf8()) return;
  for (const char* name : {"C.UTF-8", "C.utf8", "en_US.UTF-8"})
    if (std::setlocale(LC_CTYPE, name) != nullptr && is_utf8()) return;
}

// Tab: goes on with the name of a command or a file, or lists what it may become.
unsigned char complete(EditLine* editor, int) {
  const LineInfo* info = el_line(editor);
  const char* home = std::getenv("HOME");
  const LineCompletion found =
      complete_line(std::string_view(info->buffer, static_cast<std::size_t>(info->cursor - info->buffer)),
                    home != nullptr ? home : "");
  if (!found.rest.empty()) return el_insertstr(editor, found.rest.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  if (found.choices.empty()) return CC_ERROR;
  std::string list = "\n";
  for (const std::string& choice : found.choices) list += one_line(choice) + "  ";
  std::fputs((list + "\n").c_str(), stdout);
  std::fflush(stdout);
  return CC_REDISPLAY;
}

// What a terminal sends around pasted text once it was asked to (xterm's "bracketed paste").
constexpr const char* kAskForPasteMarks = "\x1b[?2004h";
constexpr const char* kNoPasteMarks = "\x1b[?2004l";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";
constexpr std::size_t kMaxPaste_chars = std::size_t{1} << 20;

// Called at the mark that begins a paste: all up to the other mark goes into the line, newlines too, instead
// of ending it.
unsigned char take_paste(EditLine* editor, int) {
  std::wstring text;
  while (!text.ends_with(kPasteEnd)) {
    wchar_t c = 0;
    if (text.size() == kMaxPaste_chars || el_wgetc(editor, &c) != 1) return CC_ERROR;
    text += c;
  }
  text.resize(text.size() - kPasteEnd.size());
  std::wstring clean;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == L'\r') {
      if (i + 1 < text.size() && text[i + 1] == L'\n') continue;
      clean += L'\n';
    } else if (text[i] >= L' ' || text[i] == L'\n' || text[i] == L'\t') {
      clean += text[i];
    }
  }
  while (clean.ends_with(L'\n')) clean.pop_back();
  if (clean.empty()) return CC_NORM;
  return el_winsertstr(editor, clean.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

bool knows_paste_marks() {
  const char* terminal = std::getenv("TERM");
  return terminal != nullptr && std::string_view(terminal) != "dumb" && *terminal != '\0';
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
  bool paste_marks = false;

  void say(const char* text) const {
    std::fputs(text, stdout);
    std::fflush(stdout);
  }
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
  use_utf8();
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
  el_set(e.editor, EL_ADDFN, "complete", "Go on with a command or file name", complete);
  el_set(e.editor, EL_BIND, "^I", "complete", nullptr);
  e.paste_marks = knows_paste_marks();
  el_set(e.editor, EL_ADDFN, "take-paste", "Insert pasted text", take_paste);
  if (e.paste_marks) el_set(e.editor, EL_BIND, "\\e[200~", "take-paste", nullptr);
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
  if (e.paste_marks) e.say(kAskForPasteMarks);
  const char* text = el_gets(e.editor, &n);
  if (e.paste_marks) e.say(kNoPasteMarks);
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

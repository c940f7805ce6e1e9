// Lines from stdin: with editing, history and completion (libedit) at a terminal, plainly from a file or a
// pipe.
#pragma once

#include <memory>
#include <string>

namespace triptych::cli {

class LineReader {
 public:
  enum class Result { kLine, kEnd, kInterrupted };

  /// `history_file` may be empty; it is read now and written when the reader goes.
  explicit LineReader(std::string history_file);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line without its newline. `prompt` is shown at a terminal only. A text of several lines that
  /// was pasted there is one line with newlines in it. kInterrupted: Ctrl-C was pressed; the line begun is
  /// gone.
  Result read(const std::string& prompt, std::string& line);
  bool is_terminal() const noexcept { return editor_ != nullptr; }

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;  // null without a terminal
};

/// Where the lines of earlier chats are kept: $TRIPTYCH_HISTORY (empty: nowhere), else
/// $XDG_STATE_HOME/triptych/history, else ~/.local/state/triptych/history. Empty when none can be named.
std::string default_history_file();

}  // namespace triptych::cli

// Runs programs as users do: with pipes, or at a terminal.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace triptych::test {

struct RunResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out, err;
};

/// Runs a program to its end with `input` on stdin. `env` holds NAME=VALUE. Kills it (exit code 128 + 9)
/// after `limit`, or when `kill_when`, asked every millisecond, says so.
RunResult run_program(const std::vector<std::string>& args, const std::string& input = "",
                      const std::vector<std::string>& env = {},
                      std::chrono::seconds limit = std::chrono::seconds(300),
                      const std::function<bool()>& kill_when = nullptr);

/// A program at a terminal of its own.
class TerminalProgram {
 public:
  explicit TerminalProgram(const std::vector<std::string>& args, const std::vector<std::string>& env = {});
  ~TerminalProgram();
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  void type(const std::string& keys);
  /// Waits until what was printed since the last call contains `text`; false after `limit`.
  bool wait_for(const std::string& text, std::chrono::seconds limit = std::chrono::seconds(300));
  /// Waits for a prompt "> " and for the editor behind it, which takes the terminal over just after it has
  /// printed that.
  bool wait_for_prompt(std::chrono::seconds limit = std::chrono::seconds(300));
  /// Waits for the end; -1 after `limit`.
  int exit_code(std::chrono::seconds limit = std::chrono::seconds(300));
  const std::string& output() const noexcept { return output_; }

 private:
  bool read_some(int timeout_ms);
  int fd_ = -1;
  int pid_ = -1;
  std::string output_;
  std::size_t seen_ = 0;
};

}  // namespace triptych::test

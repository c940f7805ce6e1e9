#include "cli/bus_error.h"

#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <string_view>

#include "cli/commands.h"
#include "io/mapped_file.h"

namespace triptych::cli {
namespace {

volatile std::sig_atomic_t g_json = 0;

// A signal handler may call write and little else.
class RawLine {
 public:
  void add(std::string_view text) noexcept {
    for (const char c : text)
      if (n_ < sizeof text_) text_[n_++] = c;
  }
  // Text from outside: no control characters, and in JSON its two special ones escaped.
  void add_quoted(std::string_view text, bool json) noexcept {
    for (const char c : text) {
      if (json && (c == '"' || c == '\\')) add("\\");
      const char shown = static_cast<unsigned char>(c) < 0x20 ? '?' : c;
      add({&shown, 1});
    }
  }
  void write() const noexcept {
    for (std::size_t done = 0; done < n_;) {
      const ssize_t n = ::write(STDERR_FILENO, text_ + done, n_ - done);
      if (n <= 0) return;
      done += static_cast<std::size_t>(n);
    }
  }

 private:
  char text_[8192] = {};
  std::size_t n_ = 0;
};

extern "C" void on_bus_error(int, siginfo_t* info, void*) {
  const char* const path = mapped_file_at(info->si_addr);
  if (path == nullptr) {
    signal(SIGBUS, SIG_DFL);  // the same access raises it again
    return;
  }
  const bool json = g_json != 0;
  RawLine line;
  line.add(json ? R"({"schema":"triptych.error/1","error":{"code":"io","message":")" : "triptych: error: ");
  line.add_quoted(path, json);
  line.add(": cannot be read any more: it was cut short while it was in use, or its disk failed");
  line.add(json ? "\"},\"exit_code\":2}\n" : "\n");
  line.write();
  static_assert(kExitBadInput == 2);
  _exit(kExitBadInput);
}

}  // namespace

void name_files_in_bus_errors(bool json) noexcept {
  g_json = json ? 1 : 0;
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace triptych::cli

#include "support/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace triptych::test {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void become(const std::vector<std::string>& args, const std::vector<std::string>& env) {
  std::vector<char*> argv;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  for (const std::string& one : env) putenv(const_cast<char*>(one.c_str()));
  execvp(argv[0], argv.data());
  _exit(127);
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    read_end = fds[0];
    write_end = fds[1];
  }
  void close_read() {
    if (read_end >= 0) close(read_end);
    read_end = -1;
  }
  void close_write() {
    if (write_end >= 0) close(write_end);
    write_end = -1;
  }
  ~Pipe() {
    close_read();
    close_write();
  }
};

// Appends what is there; false at the end of the stream.
bool drain(int fd, std::string& to) {
  char buffer[4096];
  const ssize_t n = read(fd, buffer, sizeof buffer);
  if (n > 0) to.append(buffer, static_cast<std::size_t>(n));
  return n > 0;
}

}  // namespace

RunResult run_program(const std::vector<std::string>& args, const std::string& input,
                      const std::vector<std::string>& env, std::chrono::seconds limit,
                      const std::function<bool()>& kill_when) {
  signal(SIGPIPE, SIG_IGN);
  Pipe in, out, err;
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork");
  if (pid == 0) {
    signal(SIGPIPE, SIG_DFL);
    dup2(in.read_end, STDIN_FILENO);
    dup2(out.write_end, STDOUT_FILENO);
    dup2(err.write_end, STDERR_FILENO);
    become(args, env);
  }
  in.close_read();
  out.close_write();
  err.close_write();
  std::thread writer([&] {
    std::size_t done = 0;
    while (done < input.size()) {
      const ssize_t n = write(in.write_end, input.data() + done, input.size() - done);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    in.close_write();
  });
  RunResult result;
  const auto end = Clock::now() + limit;
  bool more_out = true, more_err = true, killed = false;
  while (more_out || more_err) {
    pollfd fds[] = {{more_out ? out.read_end : -1, POLLIN, 0}, {more_err ? err.read_end : -1, POLLIN, 0}};
    poll(fds, 2, kill_when ? 1 : 100);
    if (fds[0].revents != 0) more_out = drain(out.read_end, result.out);
    if (fds[1].revents != 0) more_err = drain(err.read_end, result.err);
    if (!killed && (Clock::now() > end || (kill_when && kill_when()))) {
      kill(pid, SIGKILL);
      killed = true;
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  writer.join();
  result.exit_code = code_of(status);
  return result;
}

TerminalProgram::TerminalProgram(const std::vector<std::string>& args, const std::vector<std::string>& env) {
  winsize size{.ws_row = 40, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
  pid_ = forkpty(&fd_, nullptr, nullptr, &size);
  if (pid_ < 0) throw std::runtime_error("forkpty");
  if (pid_ == 0) become(args, env);
}

TerminalProgram::~TerminalProgram() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(fd_);
}

void TerminalProgram::type(const std::string& keys) {
  if (write(fd_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size()))
    throw std::runtime_error("write");
}

bool TerminalProgram::read_some(int timeout_ms) {
  pollfd fd{fd_, POLLIN, 0};
  return poll(&fd, 1, timeout_ms) > 0 && drain(fd_, output_);
}

bool TerminalProgram::wait_for(const std::string& text, std::chrono::seconds limit) {
  const auto end = Clock::now() + limit;
  for (;;) {
    const std::size_t at = output_.find(text, seen_);
    if (at != std::string::npos) {
      seen_ = at + text.size();
      return true;
    }
    if (Clock::now() > end) return false;
    read_some(100);
  }
}

bool TerminalProgram::wait_for_prompt(std::chrono::seconds limit) {
  if (!wait_for("> ", limit)) return false;
  const auto end = Clock::now() + limit;
  for (;;) {
    termios state{};
    if (tcgetattr(fd_, &state) == 0 && (state.c_lflag & static_cast<tcflag_t>(ICANON)) == 0) return true;
    if (Clock::now() > end) return false;
    read_some(5);
  }
}

int TerminalProgram::exit_code(std::chrono::seconds limit) {
  const auto end = Clock::now() + limit;
  while (Clock::now() < end) {
    read_some(50);
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      while (read_some(50)) {
      }
      return code_of(status);
    }
  }
  return -1;
}

}  // namespace triptych::test

#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace triptych {
namespace {

std::string duration(double seconds) {
  const auto s = static_cast<std::int64_t>(std::clamp(seconds, 0.0, 359999.0));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

int terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

ProgressBar::ProgressBar(std::string title, std::int64_t total)
    : title_(std::move(title)),
      total_(std::max<std::int64_t>(total, 0)),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() {
  if (is_drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::update(std::int64_t done, const std::string& what) {
  if (!is_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (is_drawn_ && now - last_draw_ < std::chrono::milliseconds(100) && done != total_) return;
  last_draw_ = now;
  is_drawn_ = true;
  const double elapsed_s = std::chrono::duration<double>(now - start_).count();
  // One column is left free: a full line would wrap on some terminals.
  std::fputs(("\r" + render(title_, done, total_, elapsed_s, what, terminal_width() - 1) + "\x1b[K").c_str(),
             stderr);
  std::fflush(stderr);
}

std::string ProgressBar::render(const std::string& title, std::int64_t done, std::int64_t total,
                                double elapsed_s, const std::string& what, int width) {
  const auto columns = static_cast<std::size_t>(std::max(width, 0));
  std::string out;
  if (total <= 0) {
    out = fmt::format("{} {} {}", title, done, duration(elapsed_s));
  } else {
    done = std::clamp<std::int64_t>(done, 0, total);
    const double share = static_cast<double>(done) / static_cast<double>(total);
    constexpr std::int64_t kBar = 24;
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(kBar));
    out = fmt::format("{} [{}{}] {:>3.0f}% {}/{} {}", title, std::string(filled, '#'),
                      std::string(kBar - filled, ' '), 100 * share, done, total, duration(elapsed_s));
    if (done > 0 && done < total) out += " left " + duration(elapsed_s / share - elapsed_s);
  }
  if (!what.empty()) out += "  " + what;
  return out.size() <= columns ? out : out.substr(0, columns);
}

}  // namespace triptych

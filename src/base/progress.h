// A progress bar on stderr for long work at a terminal. Writes nothing when stderr is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace triptych {

class ProgressBar {
 public:
  /// `total` steps of work (0 when unknown).
  ProgressBar(std::string title, std::int64_t total);
  /// Erases the bar.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `done` steps are finished; `what` is shown behind the bar (the layer's name). Redraws at most ten times
  /// a second.
  void update(std::int64_t done, const std::string& what = {});

  /// The line for a state, `width` columns or less; `elapsed_s` gives the time left. For tests and other
  /// front ends.
  static std::string render(const std::string& title, std::int64_t done, std::int64_t total, double elapsed_s,
                            const std::string& what, int width);

 private:
  std::string title_;
  std::int64_t total_;
  bool is_terminal_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_draw_{};
};

}  // namespace triptych

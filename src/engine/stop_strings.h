// Stop strings in a stream: text that might be the beginning of one is held back until it is certain.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace triptych {

class StopStrings {
 public:
  StopStrings() = default;
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Takes more text; returns what may be shown. Once a stop string is complete nothing more is returned: the
  /// answer ends before it. With several, the one that begins first wins, the longest on a tie.
  std::string push(std::string_view text);
  /// End of the answer: what was held back.
  std::string finish();
  bool found() const noexcept { return found_; }
  const std::string& which() const noexcept { return which_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string which_;
  bool found_ = false;
};

}  // namespace triptych

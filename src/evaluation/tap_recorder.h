// Keeps every tap of a run, in the order in which they happened.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/exec_context.h"

namespace triptych {

class TapRecorder : public ExecObserver {
 public:
  struct Tap {
    std::string name;
    std::int64_t n_rows = 0;
    std::int64_t width = 0;
    std::vector<float> values;  // [n_rows, width]
    TensorView view();
  };

  /// Values under a name that came before are further rows of it: a long prompt runs in pieces, pictures may
  /// be encoded one by one.
  void on_tap(std::string_view name, const TensorView& value) override;

  std::vector<Tap>& taps() noexcept { return taps_; }
  /// nullptr when nothing had this name.
  Tap* find(std::string_view name);

 private:
  std::vector<Tap> taps_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace triptych

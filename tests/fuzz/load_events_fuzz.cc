// What a server may send to the load generator: events in any pieces, and bodies that refuse.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark/load_events.h"
#include "only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  return fuzz::only_errors([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    std::vector<std::string> whole, pieces;
    EventLines lines, again;
    lines.feed(text, [&](std::string_view event) { whole.emplace_back(event); });
    const std::size_t step = size == 0 ? 1 : 1 + data[0] % 5U;
    for (std::size_t at = 0; at < size; at += step)
      again.feed(text.substr(at, step), [&](std::string_view event) { pieces.emplace_back(event); });
    fuzz::require(whole == pieces, "cuts change nothing");
    static_cast<void>(refusal_message(text));
    for (const std::string& event : whole) {
      const ChatEvent read = read_chat_event(event);
      fuzz::require(!read.n_answer_tokens || *read.n_answer_tokens >= 0, "counts are not negative");
    }
  });
}

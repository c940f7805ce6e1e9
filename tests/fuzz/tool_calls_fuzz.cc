// Calls in an answer's text: however it is cut, the same text and calls come out.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "only_errors.h"
#include "server/tool_calls.h"

namespace {

std::string run(std::string_view text, std::size_t step) {
  triptych::server::ToolCallParser parser;
  std::string out, calls;
  const auto take = [&](const triptych::server::ToolCallParser::Piece& piece) {
    out += piece.text;
    for (const auto& call : piece.calls) calls += call.name + '\0' + call.arguments + '\0';
  };
  for (std::size_t at = 0; at < text.size(); at += step) take(parser.push(text.substr(at, step)));
  take(parser.finish());
  return out + '\0' + calls;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  if (size > 1 << 12) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  return fuzz::only_errors([&] {
    fuzz::require(run(text, 1) == run(text, size + 1), "cuts change nothing");
    static_cast<void>(server::parse_required_calls(text));
  });
}

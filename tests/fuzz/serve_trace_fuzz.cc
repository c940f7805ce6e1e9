// The reader of traces of requests on arbitrary bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "benchmark/serve_trace.h"
#include "only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  return fuzz::only_errors([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto requests = parse_trace(text, "fuzz");
    for (const TraceRequest& request : requests) {
      fuzz::require(request.answer_tokens >= 1, "an answer has tokens");
      fuzz::require((request.prompt_tokens >= 1) != !request.prompt.empty(), "one of two kinds of prompts");
      fuzz::require(request.prefix_tokens <= request.prompt_tokens, "a prefix is a part of the prompt");
    }
    fuzz::require(parse_trace(trace_text(requests), "again") == requests, "what is written is read");
  });
}

// Bodies of /v1/completions.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "only_errors.h"
#include "server/chat_request.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  return fuzz::only_errors([&] {
    try {
      const server::CompletionWire wire =
          server::parse_completion_request({reinterpret_cast<const char*>(data), size}, SamplingParams());
      fuzz::require(!wire.prompts.empty(), "a completion has prompts");
    } catch (const server::ApiError& error) {
      fuzz::require(error.status() >= 400 && error.status() < 500, "the request is at fault");
      fuzz::require(Json::accept(error.body()), "an error object");
      throw;
    }
  });
}

// Bodies of /v1/responses.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "only_errors.h"
#include "server/responses_api.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  return fuzz::only_errors([&] {
    try {
      const server::ChatWire wire =
          server::parse_responses_request({reinterpret_cast<const char*>(data), size}, SamplingParams());
      fuzz::require(!wire.messages.empty(), "a chat has messages");
      fuzz::require(wire.common.n == 1, "one answer");
    } catch (const server::ApiError& error) {
      fuzz::require(error.status() >= 400 && error.status() < 500, "the request is at fault");
      fuzz::require(Json::accept(error.body("/v1/responses")), "an error object");
      throw;
    }
  });
}

// Bodies of /api/chat.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "only_errors.h"
#include "server/ollama_api.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  return fuzz::only_errors([&] {
    try {
      const server::ChatWire wire =
          server::parse_ollama_chat({reinterpret_cast<const char*>(data), size}, SamplingParams());
      fuzz::require(!wire.messages.empty(), "a chat has messages");
    } catch (const server::ApiError& error) {
      fuzz::require(error.status() >= 400 && error.status() < 500, "the request is at fault");
      fuzz::require(Json::accept(error.body("/api/chat")), "an error object");
      throw;
    }
  });
}

// Bodies of /v1/chat/completions. What is refused is refused with an error object and a status.
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
      const server::ChatWire wire =
          server::parse_chat_request({reinterpret_cast<const char*>(data), size}, SamplingParams());
      fuzz::require(!wire.messages.empty(), "a chat has messages");
      fuzz::require(wire.common.n >= 1, "at least one answer");
      for (const server::WireMessage& message : wire.messages)
        for (const server::WirePart& part : message.parts)
          fuzz::require(part.kind == ContentPart::Kind::kText || !part.param.empty(), "a picture has a path");
      fuzz::require(wire.tool_choice == server::ToolChoice::kNone || wire.tools != nullptr,
                    "a choice has tools");
    } catch (const server::ApiError& error) {
      fuzz::require(error.status() >= 400 && error.status() < 500, "the request is at fault");
      fuzz::require(Json::accept(error.body()), "an error object");
      throw;
    }
  });
}

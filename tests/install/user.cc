// What users write must resolve without naming inner namespaces; compiled, not run (headers_test.sh).
#include <triptych/triptych.h>

#include <string>
#include <type_traits>
#include <vector>

static_assert(std::is_copy_constructible_v<triptych::Model> && std::is_copy_constructible_v<triptych::Image>);
static_assert(std::is_nothrow_move_constructible_v<triptych::Engine> &&
              !std::is_copy_constructible_v<triptych::Engine>);

std::string describe(triptych::Engine& engine, const triptych::Video& video);

std::string describe(triptych::Engine& engine, const triptych::Video& video) {
  const triptych::Request request{
      .messages = {triptych::ChatMessage("user").add_video(video).add_text("What?")},
      .sampling = triptych::SamplingParams{.temperature = 0.7F, .max_tokens = 64},
      .media_options = {.max_pixels = 1 << 20}};
  try {
    const triptych::RequestId id = engine.submit(request);
    while (engine.has_work())
      for (const triptych::StepOutput& output : engine.step())
        if (output.finish_reason && output.request_id == id) break;
    const triptych::Result result = engine.take_result(id).value();
    return result.text + std::string(triptych::to_string(result.finish_reason)) +
           std::string(triptych::to_string(triptych::RegionKind::kBox));
  } catch (const triptych::Error& error) {
    return std::string(triptych::to_string(error.code())) + ": " + error.what();
  }
}

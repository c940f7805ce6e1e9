// Asks a model about a picture: ask MODEL_DIRECTORY PICTURE QUESTION
#include <cstdio>

#include "base/error.h"
#include "engine/engine.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"

int main(int argc, char** argv) try {
  if (argc != 4) return std::fputs("usage: ask MODEL_DIRECTORY PICTURE QUESTION\n", stderr), 2;
  const auto model = triptych::LoadedModel::open(argv[1]);
  const auto file = triptych::MappedFile::open(argv[2]);

  triptych::ChatMessage message = triptych::ChatMessage::text("user", argv[3]);
  message.content_is_string = false;  // a list of parts: the picture, then the question
  message.parts.insert(message.parts.begin(), {triptych::ContentPart::Kind::kImage, {}});
  triptych::ChatRequest request;
  request.messages.push_back(message);
  request.media.push_back({{triptych::decode_image(file->bytes(), {}, argv[2])}});

  triptych::Engine engine(*model);
  engine.generate(model->prepare(request), model->generation_defaults(),
                  [](const triptych::TokenEvent& event) {
                    std::fputs(event.text.c_str(), stdout);
                    return true;  // go on
                  });
  std::puts("");
} catch (const triptych::Error& error) {
  std::fprintf(stderr, "ask: %s\n", error.what());
  return 2;
}

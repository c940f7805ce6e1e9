// Asks a model about a picture: ask MODEL_DIRECTORY PICTURE QUESTION
#include <triptych/triptych.h>

#include <cstdio>

int main(int argc, char** argv) try {
  if (argc != 4) return std::fputs("usage: ask MODEL_DIRECTORY PICTURE QUESTION\n", stderr), 2;
  triptych::Engine engine(triptych::Model::open(argv[1]));
  const auto picture = triptych::Image::from_file(argv[2]);
  engine.generate({.messages = {triptych::ChatMessage::user(argv[3], {picture})}},
                  [](const triptych::TokenEvent& event) {
                    std::fputs(event.text.c_str(), stdout);
                    return true;  // go on
                  });
  std::puts("");
} catch (const triptych::Error& error) {
  std::fprintf(stderr, "ask: %s\n", error.what());
  return 2;
}

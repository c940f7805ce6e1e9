// A SentencePiece tokenizer.model, or a *.tiktoken file (first byte 't'), from arbitrary bytes. Only Error
// may be thrown.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "only_errors.h"
#include "text/tiktoken_file.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz::only_errors([&] {
    std::unique_ptr<Tokenizer> tokenizer;
    if (bytes.starts_with('t'))
      tokenizer = std::make_unique<Tokenizer>(parse_tiktoken(bytes.substr(1), "qwen.tiktoken", {}));
    else
      tokenizer = Tokenizer::from_sentencepiece(bytes, "tokenizer.model");
    const std::string text =
        std::string(bytes.substr(0, 256)) + " Hello w\xC3\xB6rld \xE4\xBD\xA0 12 <s>\n\t";
    const std::vector<ByteRange> typed = {{text.size() / 2, text.size()}};
    tokenizer->decode(tokenizer->encode(text, {.plain_text = typed}));
  });
  return 0;
}

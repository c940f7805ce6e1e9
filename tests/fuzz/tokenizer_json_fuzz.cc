// tokenizer.json from arbitrary bytes; when it loads, a text goes in and comes out. Only Error may be thrown.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "only_errors.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz::only_errors([&] {
    const auto tokenizer = Tokenizer::from_json(bytes, "tokenizer.json");
    // The file's own text holds its tokens; a fixed one adds scripts and marks.
    const std::string text =
        std::string(bytes.substr(0, 512)) + " Hello wörld \xE4\xBD\xA0 e\xCC\x81 12 <s>\n\t";
    fuzz::only_errors([&] {
      const std::vector<ByteRange> typed = {{0, text.size() / 2}};
      auto ids = tokenizer->encode(text);
      const auto plain = tokenizer->encode(text, {.add_special_tokens = false, .plain_text = typed});
      ids.insert(ids.end(), plain.begin(), plain.end());
      const std::string whole = tokenizer->decode(ids);
      StreamDecoder stream(*tokenizer);
      std::string joined;
      for (const std::int32_t id : ids) joined += stream.push(id);
      joined += stream.finish();
      fuzz::require(joined == whole, "streamed chunks join to the whole text");
    });
  });
  return 0;
}

// What constrained answers cost: the tree of a vocabulary (once a model), compiling a schema (once a schema),
// and the masks of an answer's steps, of the first answer and of later ones. TRIPTYCH_BENCH_TOKENIZER names a
// tokenizer.json to use instead of the small one of the repository.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "grammar/constraint.h"
#include "text/token_bytes.h"
#include "text/tokenizer.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kSchema = R"({"type":"object","properties":{
  "title":{"type":"string","maxLength":200},"invoice":{"type":"string","pattern":"^[A-Z]{2}-[0-9]{4,8}$"},
  "date":{"type":"string","format":"date"},"total":{"type":"number","minimum":0},"currency":{"enum":["EUR","USD","GBP","CZK"]},
  "customer":{"$ref":"#/$defs/person"},"seller":{"$ref":"#/$defs/person"},
  "items":{"type":"array","maxItems":100,"items":{"type":"object","properties":{
    "name":{"type":"string"},"quantity":{"type":"integer","minimum":1,"maximum":9999},"price":{"type":"number"},
    "tax":{"anyOf":[{"type":"number","minimum":0,"maximum":100},{"type":"null"}]}},
    "required":["name","quantity","price","tax"],"additionalProperties":false}},
  "paid":{"type":"boolean"},"notes":{"type":["string","null"]}},
  "required":["title","invoice","date","total","currency","customer","items","paid","notes"],"additionalProperties":false,
  "$defs":{"person":{"type":"object","properties":{"name":{"type":"string"},"email":{"type":"string","format":"email"},
    "address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"},"zip":{"type":"string",
      "pattern":"^[0-9]{5}$"}},"required":["street","city","zip"],"additionalProperties":false}},
    "required":["name","email","address"],"additionalProperties":false}}})";

constexpr const char* kDocument =
    R"({"title": "Repair of the roof, second part", "invoice": "CZ-20240071", "date": "2024-06-30", "total": 1840.5, )"
    R"("currency": "EUR", "customer": {"name": "Jana Nováková", "email": "jana@example.org", "address": {"street": )"
    R"("Dlouhá 12", "city": "Brno", "zip": "60200"}}, "items": [{"name": "Tiles, red", "quantity": 240, "price": 4.25, )"
    R"("tax": 21}, {"name": "Work", "quantity": 16, "price": 51.25, "tax": null}], "paid": false, "notes": "Thank you."})";

const Tokenizer& tokenizer() {
  static const auto value = [] {
    const char* set = std::getenv("TRIPTYCH_BENCH_TOKENIZER");
    const std::string path = set != nullptr ? set : "tests/data/tokenizers/qwen2_vl/tokenizer.json";
    std::ifstream file(path, std::ios::binary);
    return Tokenizer::from_json(std::string(std::istreambuf_iterator<char>(file), {}), path);
  }();
  return *value;
}

TokenMasker& masker() {
  static const TokenBytes bytes = token_bytes(tokenizer());
  static TokenMasker value(bytes.tokens, bytes.drops_first_blank);
  return value;
}

void vocabulary(benchmark::State& state) {
  std::size_t n_bytes = 0;
  for (auto _ : state) {
    const TokenBytes bytes = token_bytes(tokenizer());
    const TokenMasker made(bytes.tokens, bytes.drops_first_blank);
    n_bytes = made.bytes();
  }
  state.counters["tokens"] = static_cast<double>(tokenizer().vocab_size());
  state.counters["MiB"] = static_cast<double>(n_bytes) / (1 << 20);
}
BENCHMARK(vocabulary)->Unit(benchmark::kMillisecond);

void compile_schema(benchmark::State& state) {
  std::size_t n_states = 0;
  for (auto _ : state) n_states = compile_constraint({.json_schema = kSchema}).n_states();
  state.counters["states"] = static_cast<double>(n_states);
}
BENCHMARK(compile_schema)->Unit(benchmark::kMillisecond);

// Masks along the document; a schema that was not seen before (blanks behind it make it another) or one that
// was.
void masks(benchmark::State& state, bool seen_before) {
  const auto ids = tokenizer().encode(kDocument, {.add_special_tokens = false});
  std::vector<std::uint32_t> bits(masker().n_mask_words());
  std::string schema = kSchema;
  double slowest_ms = 0;
  double sum_ms = 0;
  std::size_t n_steps = 0;
  masker().constrain({.json_schema = schema});
  for (auto _ : state) {
    if (!seen_before) schema += ' ';
    const auto constraint = masker().constrain({.json_schema = schema});
    for (const std::int32_t id : ids) {
      const auto start = Clock::now();
      constraint->mask(bits);
      if (!constraint->accept(id)) return state.SkipWithError("the document does not match its schema");
      const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      slowest_ms = std::max(slowest_ms, ms);
      sum_ms += ms;
      ++n_steps;
    }
  }
  state.counters["steps"] = static_cast<double>(ids.size());
  state.counters["ms_a_step"] = sum_ms / static_cast<double>(n_steps);
  state.counters["ms_slowest"] = slowest_ms;
}
void masks_first_answer(benchmark::State& state) { masks(state, false); }
void masks_later_answer(benchmark::State& state) { masks(state, true); }
BENCHMARK(masks_first_answer)->Unit(benchmark::kMillisecond);
BENCHMARK(masks_later_answer)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace triptych

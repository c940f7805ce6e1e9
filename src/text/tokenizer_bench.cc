// Throughput of the tokenizers and the time to load them. TRIPTYCH_BENCH_TEXT and TRIPTYCH_BENCH_TOKENIZER
// name a text and a tokenizer.json to use instead of the small ones of the repository;
// tools/compare_tokenizers.py times the Rust library on the same files.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace triptych {
namespace {

constexpr std::size_t kTextBytes = 1 << 20;

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string environment(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

// Prose and code: this repository's own sources and documents are not at hand everywhere, words are.
std::string default_text() {
  static constexpr const char* kWords[] = {
      "the",  "model",     "answers", "about", "a",      "picture", "isn't", "tokens", "12", "café",
      "世界", "foo(bar);", "=",       "\n",    "Straße", "2024-11", "😀",     "right",  "of", "circle"};
  std::string text;
  std::uint32_t state = 1;
  while (text.size() < kTextBytes) {
    state = state * 1664525U + 1013904223U;
    text.append(kWords[(state >> 16) % std::size(kWords)]).push_back(' ');
  }
  return text;
}

const std::string& text() {
  static const std::string value = [] {
    const std::string path = environment("TRIPTYCH_BENCH_TEXT", "");
    return path.empty() ? default_text() : read_file(path);
  }();
  return value;
}

std::string tokenizer_path(const char* name) {
  return environment("TRIPTYCH_BENCH_TOKENIZER",
                     std::string("tests/data/tokenizers/") + name + "/tokenizer.json");
}

std::unique_ptr<Tokenizer> load(const char* name) {
  const std::string path = tokenizer_path(name);
  return Tokenizer::from_json(read_file(path), path);
}

void encode_text(benchmark::State& state, const char* name) {
  const auto tokenizer = load(name);
  std::size_t n_ids = 0;
  for (auto _ : state) {
    const auto ids = tokenizer->encode(text(), {.add_special_tokens = false});
    n_ids = ids.size();
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text().size()));
  state.counters["ids"] = static_cast<double>(n_ids);
}

void encode_prompt(benchmark::State& state, const char* name) {
  const auto tokenizer = load(name);
  const std::string prompt =
      "USER: What color is the small circle at the right of the green square? ASSISTANT:";
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->encode(prompt).data());
}

void stream_decode(benchmark::State& state, const char* name) {
  const auto tokenizer = load(name);
  const auto ids = tokenizer->encode(text().substr(0, kTextBytes / 8));
  for (auto _ : state) {
    StreamDecoder decoder(*tokenizer);
    for (const std::int32_t id : ids) benchmark::DoNotOptimize(decoder.push(id));
    benchmark::DoNotOptimize(decoder.finish());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(ids.size()));
}

void load_json(benchmark::State& state, const char* name) {
  const std::string path = tokenizer_path(name);
  const std::string json = read_file(path);
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::from_json(json, path));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(json.size()));
}

BENCHMARK_CAPTURE(encode_text, sentencepiece_bpe, "llava")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_text, byte_level_bpe, "qwen2_vl")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_text, unigram, "fuyu")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_text, word_piece, "qformer")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode_prompt, sentencepiece_bpe, "llava")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(encode_prompt, byte_level_bpe, "qwen2_vl")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(stream_decode, sentencepiece_bpe, "llava")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(stream_decode, byte_level_bpe, "qwen2_vl")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_json, byte_level_bpe, "qwen2_vl")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace triptych

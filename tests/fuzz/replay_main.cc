// Drives a fuzz target without libFuzzer: every file of the corpus folders given, then changes of each (cut,
// flipped bits, odd bytes, doubled and removed pieces). The changes are the same at every run; a run stops
// after kSeconds. A target fails by crashing, by an exception it should not let out, or by ctest's time
// limit, or by a seed whose name says otherwise.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr int kSeconds = 3;
constexpr int kChangesPerFile = 400;

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// One to four random edits.
Bytes changed(Bytes bytes, std::mt19937& random) {
  static constexpr std::uint8_t kOdd[] = {0x00, 0xFF, 0x7F, 0x80, '"', '{', '[', '%', '\\', 0x0A};
  const auto below = [&](std::size_t n) {
    return static_cast<std::size_t>(random()) % std::max<std::size_t>(n, 1);
  };
  for (std::size_t edits = 1 + below(4); edits > 0 && !bytes.empty(); --edits) {
    const std::size_t at = below(bytes.size());
    const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t length = 1 + below(std::min<std::size_t>(bytes.size() - at, 64));
    const auto to = from + static_cast<std::ptrdiff_t>(length);
    switch (below(6)) {
      case 0:
        *from = static_cast<std::uint8_t>(*from ^ (1U << below(8)));
        break;
      case 1:
        *from = kOdd[below(std::size(kOdd))];
        break;
      case 2:
        std::fill(from, to, kOdd[below(std::size(kOdd))]);
        break;
      case 3:
        bytes.erase(from, to);
        break;
      case 4:
        bytes.resize(at);
        break;
      default: {
        const Bytes piece(from, to);
        bytes.insert(from, piece.begin(), piece.end());
      }
    }
  }
  return bytes;
}

// The exact size on the heap, so that tools that check memory see every read past the end.
void run(const Bytes& bytes) {
  const Bytes exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

// A seed is what its name says: valid_* is accepted, bad_* refused; other names promise nothing.
bool is_as_named(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const bool refused = triptych::fuzz::last_was_refused;
  if ((!name.starts_with("valid_") || !refused) && (!name.starts_with("bad_") || refused)) return true;
  std::fprintf(stderr, "%s was %s\n", path.c_str(), refused ? "refused" : "accepted");
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> seeds;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i]))
      if (entry.is_regular_file()) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    seeds.insert(seeds.end(), paths.begin(), paths.end());
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "no corpus files in the folders given\n");
    return 1;
  }
  run({});
  std::vector<Bytes> files;
  int n_misnamed = 0;
  for (const auto& path : seeds) {
    files.push_back(read_file(path));
    run(files.back());
    n_misnamed += is_as_named(path) ? 0 : 1;
  }
  if (n_misnamed > 0) return 1;

  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds);
  std::mt19937 random(20240501);
  std::size_t n_changes = 0;
  for (int round = 0; round < kChangesPerFile; ++round)
    for (const Bytes& file : files) {
      if (std::chrono::steady_clock::now() >= end) break;
      run(changed(file, random));
      ++n_changes;
    }
  std::printf("%zu files, %zu changed\n", files.size(), n_changes);
  return 0;
}

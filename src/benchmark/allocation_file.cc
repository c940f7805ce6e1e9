#include "benchmark/allocation_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>

#include "base/error.h"
#include "io/mapped_file.h"

namespace triptych {
namespace {

constexpr std::string_view kTitle = "triptych-allocations 1";
constexpr std::array<std::string_view, kAllocationKinds> kKinds = {"buffer", "chunk", "tensor", "kv"};
constexpr std::uint64_t kMaxBlock_bytes = std::uint64_t{1} << 40;

// The next word of a line; empty at its end.
std::string_view take_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

bool take_number(std::string_view& line, std::uint64_t& out) {
  const std::string_view word = take_word(line);
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), out);
  return problem == std::errc() && !word.empty() && end == word.data() + word.size();
}

}  // namespace

std::string allocation_text(std::span<const AllocationEvent> events) {
  std::string out = std::string(kTitle) + '\n';
  for (const AllocationEvent& e : events)
    out += e.size_bytes > 0
               ? fmt::format("a {} {} {}\n", e.block, kKinds[static_cast<std::size_t>(e.kind)], e.size_bytes)
               : fmt::format("f {}\n", e.block);
  return out;
}

std::vector<AllocationEvent> parse_allocations(std::string_view text, const std::string& name) {
  std::vector<AllocationEvent> out;
  struct Block {
    AllocationKind kind;
    bool live;
  };
  std::vector<Block> blocks;
  std::size_t n_line = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto refuse = [&](std::string_view why) {
      fail(ErrorCode::kInvalidFile, "{}, line {}: {}", name, n_line, why);
    };
    if (++n_line == 1) {
      if (line != kTitle) refuse(fmt::format("expected \"{}\"", kTitle));
      continue;
    }
    const std::string_view verb = take_word(line);
    std::uint64_t block = 0;
    if ((verb != "a" && verb != "f") || !take_number(line, block))
      refuse("expected \"a BLOCK KIND BYTES\" or \"f BLOCK\"");
    if (verb == "a") {
      const auto kind = std::find(kKinds.begin(), kKinds.end(), take_word(line));
      std::uint64_t size_bytes = 0;
      if (kind == kKinds.end()) refuse("expected the kind buffer, chunk, tensor or kv");
      if (!take_number(line, size_bytes) || size_bytes < 1 || size_bytes > kMaxBlock_bytes)
        refuse("expected a size from 1 to 2^40 bytes");
      if (block != blocks.size() || block > UINT32_MAX)
        refuse(fmt::format("expected block {}, the next", blocks.size()));
      blocks.push_back({static_cast<AllocationKind>(kind - kKinds.begin()), true});
      out.push_back({static_cast<std::uint32_t>(block), blocks.back().kind, size_bytes});
    } else {
      if (block >= blocks.size() || !blocks[block].live) refuse("the block is not allocated");
      blocks[block].live = false;
      out.push_back({static_cast<std::uint32_t>(block), blocks[block].kind, 0});
    }
    if (!line.empty()) refuse("more than one event");
  }
  if (n_line == 0) fail(ErrorCode::kInvalidFile, "{}: empty, expected \"{}\"", name, kTitle);
  return out;
}

void write_allocations(const std::filesystem::path& file, std::span<const AllocationEvent> events) {
  std::ofstream out(file, std::ios::binary);
  out << allocation_text(events);
  out.close();
  if (!out) fail(ErrorCode::kIo, "{}: cannot be written", file.string());
}

std::vector<AllocationEvent> read_allocations(const std::filesystem::path& file) {
  constexpr std::uint64_t kMax_bytes = std::uint64_t{4} << 30;
  return parse_allocations(read_text_file(file, kMax_bytes), file.string());
}

}  // namespace triptych

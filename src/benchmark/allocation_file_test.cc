#include "benchmark/allocation_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory_pool.h"
#include "benchmark/memory_replay.h"
#include "benchmark/memory_workload.h"
#include "tensor/arena.h"

namespace triptych {
namespace {

std::string problem_with(std::string_view text) {
  try {
    parse_allocations(text, "trace");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    return error.what();
  }
  return "";
}

TEST(AllocationFile, WhatIsWrittenIsRead) {
  const std::vector<AllocationEvent> events = {
      {0, AllocationKind::kBuffer, 5}, {1, AllocationKind::kTensor, 4096},
      {0, AllocationKind::kBuffer, 0}, {2, AllocationKind::kKvPage, std::uint64_t{1} << 40},
      {3, AllocationKind::kChunk, 1},  {2, AllocationKind::kKvPage, 0}};
  EXPECT_EQ(parse_allocations(allocation_text(events), "trace"), events);
}

TEST(AllocationFile, AFolderIsNoRecord) {
  try {
    read_allocations(std::filesystem::temp_directory_path());
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("it is a folder"));
  }
}

TEST(AllocationFile, WhatIsWrongIsNamed) {
  const std::string title = "triptych-allocations 1\n";
  EXPECT_EQ(problem_with(title), "");
  EXPECT_THAT(problem_with(""), testing::HasSubstr("empty"));
  EXPECT_THAT(problem_with("other\n"), testing::HasSubstr("line 1"));
  EXPECT_THAT(problem_with(title + "a 0 buffer 5\na 0 buffer 5\n"),
              testing::HasSubstr("line 3: expected block 1"));
  EXPECT_THAT(problem_with(title + "a 0 pixels 5\n"), testing::HasSubstr("expected the kind"));
  EXPECT_THAT(problem_with(title + "a 0 buffer 0\n"), testing::HasSubstr("expected a size"));
  EXPECT_THAT(problem_with(title + "a 0 buffer -1\n"), testing::HasSubstr("expected a size"));
  EXPECT_THAT(problem_with(title + "a 0 buffer 99999999999999\n"), testing::HasSubstr("expected a size"));
  EXPECT_THAT(problem_with(title + "a 0 buffer 5 f 0\n"), testing::HasSubstr("more than one"));
  EXPECT_THAT(problem_with(title + "f 0\n"), testing::HasSubstr("not allocated"));
  EXPECT_THAT(problem_with(title + "a 0 kv 5\nf 0\nf 0\n"), testing::HasSubstr("line 4: the block is not"));
  EXPECT_THAT(problem_with(title + "x\n"), testing::HasSubstr("expected \"a BLOCK"));
}

// What the recorder sees of buffers, arenas and their tensors.
TEST(AllocationRecorder, NotesBuffersChunksAndTensors) {
  const Buffer before = Buffer::allocate(100);
  std::vector<AllocationEvent> events;
  {
    const AllocationRecorder recorder;
    Buffer buffer = Buffer::allocate(5000);
    Arena arena(4096);
    const Arena::Mark mark = arena.mark();
    arena.make_bytes(64);
    arena.make_bytes(100);
    arena.rewind(mark);
    arena.make_bytes(10);
    arena.release();
    buffer = Buffer();
    events = recorder.events();
  }
  using K = AllocationKind;
  const std::vector<AllocationEvent> expected = {
      {0, K::kBuffer, 5000}, {1, K::kChunk, 4096}, {2, K::kTensor, 64}, {3, K::kTensor, 100},
      {2, K::kTensor, 0},    {3, K::kTensor, 0},   {4, K::kTensor, 10}, {4, K::kTensor, 0},
      {1, K::kChunk, 0},     {0, K::kBuffer, 0}};
  EXPECT_EQ(events, expected);
  const std::vector<AllocationEvent> alone = {
      {0, K::kBuffer, 5000}, {1, K::kTensor, 64}, {2, K::kTensor, 100}, {1, K::kTensor, 0},
      {2, K::kTensor, 0},    {3, K::kTensor, 10}, {3, K::kTensor, 0},   {0, K::kBuffer, 0}};
  EXPECT_EQ(without_arenas(events), alone);
  const std::vector<AllocationEvent> whole = {
      {0, K::kBuffer, 5000}, {1, K::kChunk, 4096}, {1, K::kChunk, 0}, {0, K::kBuffer, 0}};
  EXPECT_EQ(with_arenas(events), whole);
}

TEST(MemoryReplay, MeasuresWhatATraceHolds) {
  constexpr std::uint64_t kSize = std::uint64_t{24} << 20;
  std::vector<AllocationEvent> events;
  for (std::uint32_t i = 0; i < 4; ++i) events.push_back({i, AllocationKind::kBuffer, kSize});
  for (std::uint32_t i = 0; i < 4; ++i) events.push_back({i, AllocationKind::kBuffer, 0});
  for (const char* allocator : {"malloc", "malloc+huge", "pool"}) {
    const ReplayResult r = replay_here(events, allocator);
    EXPECT_EQ(r.problem, "");
    EXPECT_EQ(r.used_bytes, 4 * kSize);
    EXPECT_EQ(r.n_calls, 8U);
    EXPECT_GT(r.ns_per_call, 0);
    EXPECT_GE(r.at_peak_bytes, 3 * kSize) << allocator;
    EXPECT_GE(r.peak_bytes, r.at_peak_bytes);
    const ReplayResult again = replay_result_of(nlohmann::json::parse(to_json_text(to_json(r))));
    EXPECT_EQ(again.peak_bytes, r.peak_bytes);
    EXPECT_EQ(again.allocator, allocator);
  }
  // In this process nobody took malloc's place.
  EXPECT_THAT(replay_here(events, "jemalloc").problem, testing::HasSubstr("libjemalloc2"));
}

}  // namespace
}  // namespace triptych

#include "benchmark/memory_replay.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/memory_pool.h"
#include "benchmark/allocation_file.h"
#include "report/machine.h"

extern char** environ;

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPage_bytes = 4096;
constexpr std::size_t kHugePage_bytes = std::size_t{2} << 20;
constexpr int kRounds = 5;

struct Preload {
  std::string_view allocator;
  const char* library;  // as its Debian package installs it
  const char* symbol;   // that the library alone has
  const char* package;
};
// The loader passes over what is not there: releases differ in the last digit.
constexpr Preload kPreloads[] = {
    {"jemalloc", "libjemalloc.so.2", "mallctl", "libjemalloc2"},
    {"mimalloc", "libmimalloc.so.2 libmimalloc.so.3", "mi_version", "libmimalloc-dev"}};

// glibc's own way to 2 MiB pages: madvise for what it maps.
constexpr std::string_view kTunedMalloc = "malloc+tunable";
constexpr std::string_view kTunable = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";

const Preload* preload_of(std::string_view allocator) {
  for (const Preload& p : kPreloads)
    if (p.allocator == allocator) return &p;
  return nullptr;
}

std::string version_of(const std::string& allocator) {
  if (allocator == "jemalloc") {
    using Mallctl = int (*)(const char*, void*, std::size_t*, void*, std::size_t);
    const auto mallctl = reinterpret_cast<Mallctl>(dlsym(RTLD_DEFAULT, "mallctl"));
    const char* text = nullptr;
    std::size_t size = sizeof text;
    if (mallctl != nullptr && mallctl("version", &text, &size, nullptr, 0) == 0)
      return std::string(text).substr(0, std::string(text).find('-'));
  }
  if (allocator == "mimalloc") {
    const auto version = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "mi_version"));
    if (version != nullptr)
      return fmt::format("{}.{}.{}", version() / 100, version() / 10 % 10, version() % 10);
  }
  return "";
}

std::size_t resident_bytes() {
  // Not a stream: this is read in the middle of a replay and should allocate nothing.
  char text[128];
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t n = read(file, text, sizeof text - 1);
  close(file);
  if (n <= 0) return 0;
  text[n] = '\0';
  unsigned long total = 0;
  unsigned long resident = 0;
  if (std::sscanf(text, "%lu %lu", &total, &resident) != 2) return 0;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

struct Allocator {
  std::byte* (*take)(std::size_t size_bytes);
  void (*give)(std::byte* data);
};

std::byte* take_malloc(std::size_t size_bytes) {
  void* data = std::aligned_alloc(64, (size_bytes + 63) / 64 * 64);
  if (data == nullptr) fail(ErrorCode::kOutOfMemory, "no memory for {} bytes", size_bytes);
  return static_cast<std::byte*>(data);
}
std::byte* take_huge(std::size_t size_bytes) {
  if (size_bytes < kHugePage_bytes) return take_malloc(size_bytes);
  void* data = nullptr;
  if (posix_memalign(&data, kHugePage_bytes, size_bytes) != 0)
    fail(ErrorCode::kOutOfMemory, "no memory for {} bytes", size_bytes);
#if defined(MADV_HUGEPAGE)
  madvise(data, size_bytes / kHugePage_bytes * kHugePage_bytes, MADV_HUGEPAGE);
#endif
  return static_cast<std::byte*>(data);
}
void give_malloc(std::byte* data) { std::free(data); }
std::byte* take_pool(std::size_t size_bytes) { return MemoryPool::process().allocate(size_bytes); }
void give_pool(std::byte* data) { MemoryPool::process().release(data); }

Allocator allocator_of(const std::string& name) {
  if (name == "pool") return {take_pool, give_pool};
  if (name == "malloc+huge") return {take_huge, give_malloc};
  return {take_malloc, give_malloc};
}

struct Block {
  std::byte* data = nullptr;
  std::size_t size_bytes = 0;
};

// One pass over the trace; on_event(index) after each event.
template <typename OnEvent>
void replay(std::span<const AllocationEvent> events, const Allocator& allocator, std::vector<Block>& blocks,
            bool touch, OnEvent on_event) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    const AllocationEvent& e = events[i];
    Block& block = blocks[e.block];
    if (e.size_bytes > 0) {
      block = {allocator.take(e.size_bytes), e.size_bytes};
      if (touch)
        for (std::size_t at = 0; at < e.size_bytes; at += kPage_bytes) block.data[at] = std::byte{1};
    } else {
      allocator.give(block.data);
      block = {};
    }
    on_event(i);
  }
  for (Block& block : blocks) {
    if (block.data != nullptr) allocator.give(block.data);
    block = {};
  }
}

// The event after which most is in use, and how much.
std::pair<std::size_t, std::size_t> peak_of(std::span<const AllocationEvent> events) {
  std::vector<std::size_t> sizes;
  std::size_t used = 0;
  std::pair<std::size_t, std::size_t> peak{0, 0};
  for (std::size_t i = 0; i < events.size(); ++i) {
    const AllocationEvent& e = events[i];
    if (e.block >= sizes.size()) sizes.resize(e.block + std::size_t{1});
    if (e.size_bytes > 0) {
      sizes[e.block] = e.size_bytes;
      used += e.size_bytes;
      if (used > peak.second) peak = {i, used};
    } else {
      used -= sizes[e.block];
    }
  }
  return peak;
}

std::string read_all(int file) {
  std::string out;
  char part[4096];
  for (ssize_t n; (n = read(file, part, sizeof part)) > 0;) out.append(part, static_cast<std::size_t>(n));
  return out;
}

}  // namespace

const std::vector<std::string>& replay_allocators() {
  static const std::vector<std::string> names = {"malloc",   "malloc+huge", std::string(kTunedMalloc),
                                                 "jemalloc", "mimalloc",    "pool"};
  return names;
}

double ReplayResult::fragmentation() const noexcept {
  if (at_peak_bytes <= used_bytes) return 0;
  return static_cast<double>(at_peak_bytes - used_bytes) / static_cast<double>(at_peak_bytes);
}

ReplayResult replay_here(std::span<const AllocationEvent> events, const std::string& name) {
  ReplayResult out;
  out.allocator = name;
  if (const Preload* preload = preload_of(name);
      preload != nullptr && dlsym(RTLD_DEFAULT, preload->symbol) == nullptr) {
    out.problem = fmt::format("not installed (Debian: {})", preload->package);
    return out;
  }
  out.version = version_of(name);
  const Allocator allocator = allocator_of(name);
  if (name == "pool")  // as a cache announces them
    for (const AllocationEvent& e : events)
      if (e.kind == AllocationKind::kKvPage && e.size_bytes > 0 &&
          e.size_bytes <= MemoryPool::kMaxObject_bytes)
        MemoryPool::process().add_size(e.size_bytes);
  std::uint32_t n_blocks = 0;
  for (const AllocationEvent& e : events) n_blocks = std::max(n_blocks, e.block + 1);
  std::vector<Block> blocks(n_blocks);
  const auto [peak_event, used] = peak_of(events);
  out.used_bytes = used;
  out.n_calls = events.size();

  reset_peak_memory();
  const std::size_t before = resident_bytes();
  std::size_t at_peak = 0;
  const Clock::time_point start = Clock::now();
  replay(events, allocator, blocks, true, [&, peak = peak_event](std::size_t i) {
    if (i == peak) at_peak = resident_bytes();
  });
  out.total_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  const auto grown = [&](std::size_t now) { return now > before ? now - before : 0; };
  out.at_peak_bytes = grown(at_peak);
  out.peak_bytes = grown(std::max(peak_memory_bytes(), at_peak));
  out.end_bytes = grown(resident_bytes());

  std::vector<double> rounds;
  for (int i = 0; i < kRounds; ++i) {
    const Clock::time_point begin = Clock::now();
    replay(events, allocator, blocks, false, [](std::size_t) {});
    rounds.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count());
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  out.ns_per_call = rounds[kRounds / 2] / static_cast<double>(std::max<std::size_t>(events.size(), 1));
  return out;
}

ReplayResult replay_apart(std::span<const AllocationEvent> events, const std::string& allocator,
                          const ReplayCommand& command) {
  // A file without a name; the child inherits it.
  const int trace = memfd_create("triptych-allocations", 0);
  if (trace < 0) fail(ErrorCode::kIo, "cannot make a temporary file");
  const std::string file = fmt::format("/proc/self/fd/{}", trace);
  write_allocations(file, events);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    close(trace);
    fail(ErrorCode::kIo, "cannot make a pipe");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  // The loader's complaint about a library that is not there would stand among the results.
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<std::string> arguments = command(file, allocator);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const Preload* preload = preload_of(allocator);
  std::string setting;
  if (preload != nullptr) setting = fmt::format("LD_PRELOAD={}", preload->library);
  if (allocator == kTunedMalloc) setting = kTunable;
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with("LD_PRELOAD=") && !text.starts_with("GLIBC_TUNABLES="))
      environment.push_back(*variable);
  }
  if (!setting.empty()) environment.push_back(setting.data());
  environment.push_back(nullptr);
  pid_t child = 0;
  const int problem =
      posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  const std::string text = problem == 0 ? read_all(ends[0]) : "";
  close(ends[0]);
  close(trace);
  int status = 0;
  if (problem == 0) waitpid(child, &status, 0);
  if (problem != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    ReplayResult out;
    out.allocator = allocator;
    out.problem = problem != 0 ? "the process for it could not be started"
                               : fmt::format("the process for it ended with status {}", status);
    return out;
  }
  return replay_result_of(parse_json(text, "result of a replay"));
}

JsonOut to_json(const ReplayResult& r) {
  JsonOut out = {{"allocator", r.allocator}};
  if (!r.version.empty()) out["version"] = r.version;
  if (!r.problem.empty()) {
    out["problem"] = r.problem;
    return out;
  }
  out["used_bytes"] = r.used_bytes;
  out["at_peak_bytes"] = r.at_peak_bytes;
  out["fragmentation"] = r.fragmentation();
  out["peak_bytes"] = r.peak_bytes;
  out["end_bytes"] = r.end_bytes;
  out["ns_per_call"] = r.ns_per_call;
  out["total_ms"] = r.total_ms;
  out["n_calls"] = r.n_calls;
  return out;
}

ReplayResult replay_result_of(const nlohmann::json& json) {
  ReplayResult out;
  out.allocator = json.value("allocator", "");
  out.version = json.value("version", "");
  out.problem = json.value("problem", "");
  out.used_bytes = json.value("used_bytes", std::size_t{0});
  out.at_peak_bytes = json.value("at_peak_bytes", std::size_t{0});
  out.peak_bytes = json.value("peak_bytes", std::size_t{0});
  out.end_bytes = json.value("end_bytes", std::size_t{0});
  out.ns_per_call = json.value("ns_per_call", 0.0);
  out.total_ms = json.value("total_ms", 0.0);
  out.n_calls = json.value("n_calls", std::size_t{0});
  return out;
}

}  // namespace triptych

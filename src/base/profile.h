// Where the time goes. Code opens zones; when profiling is off a zone costs one relaxed load. When it is on,
// each thread keeps a tree of zones (path, count, time), and with tracing also each single run for a Chrome
// trace. Zones used at the top: "vision", "projector", "prefill", "decode", "tokenizer", "image decode".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace triptych {

enum class ProfileMode : int {
  kOff,
  kSummary,  // counts and times
  kTrace,    // and every run of every zone, up to a million per thread
  kBusy,     // kSummary, and how busy each thread was over time, by top zone
};

/// Switches profiling for all threads; from kOff to another mode it clears what was recorded and starts the
/// clock.
void set_profile_mode(ProfileMode mode);
ProfileMode profile_mode() noexcept;

struct ProfileEntry {
  std::string path;  // "prefill/linear"
  std::string name;  // "linear"
  int depth = 0;     // 0 for top zones
  std::int64_t count = 0;
  std::int64_t total_ns = 0;  // wall time inside, summed over runs and threads
  std::int64_t self_ns = 0;   // without the zones inside it
  double share = 0;           // total_ns / wall time since profiling began; threads in parallel can exceed 1
};

/// Zones in depth-first order, slowest first among siblings; threads are added together. Zones still open are
/// left out.
std::vector<ProfileEntry> profile_entries();
/// Wall time since profiling began (until it was switched off).
std::int64_t profile_wall_ns();
/// The entries as a table for people.
std::string profile_report();

/// One run of a zone. `start_ns` counts from the start of profiling; `thread` numbers threads from 1 in the
/// order in which they first recorded something. Pools add what their workers did, under the name of the
/// caller's zone, and how long a caller waited for them, as kWaitZone; both are no zones of the report.
struct ProfileEvent {
  std::string name;
  int thread = 0;
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;
};
inline constexpr const char* kWaitZone = "wait";
/// Events of all threads, thread by thread. Needs kTrace.
std::vector<ProfileEvent> profile_events();
/// JSON array of complete events ("ph":"X") as chrome://tracing and Perfetto read it. Needs kTrace.
void write_chrome_trace(std::ostream& out);

/// How long one thread worked within a top zone, in stretches of kBusyStretch_ns since the start of
/// profiling. A thread that has the zone open works but when it waits for a pool; a pool's worker works on
/// its pieces.
struct ProfileBusy {
  int thread = 0;           // as in ProfileEvent
  std::string thread_name;  // as the system has it
  std::string zone;
  std::vector<float> busy_ns;
};
inline constexpr std::int64_t kBusyStretch_ns = 5'000'000;
/// Of all threads, thread by thread, also those that ended. Needs kBusy.
std::vector<ProfileBusy> profile_busy();

namespace detail {
extern std::atomic<int> g_profile_mode;
bool profile_begin(const char* name) noexcept;
void profile_end() noexcept;
}  // namespace detail

/// For pools: whether profile_span() keeps what it is told (kTrace, kBusy).
bool profile_keeps_spans() noexcept;
/// For pools: the innermost zone that this thread has open (kTrace), the outermost (kBusy), else null.
const char* profile_traced_zone() noexcept;
/// For pools: the clock of events, and work of this thread in the zone `name` of a pool's caller, or its
/// waiting (kWaitZone), from `start_ns` to now. `name` must live for ever.
std::int64_t profile_clock_ns() noexcept;
void profile_span(const char* name, std::int64_t start_ns) noexcept;

/// Measures its scope. `name` must live for ever (a literal).
class ProfileZone {
 public:
  explicit ProfileZone(const char* name) noexcept {
    if (detail::g_profile_mode.load(std::memory_order_relaxed) != 0) [[unlikely]]
      open_ = detail::profile_begin(name);
  }
  ~ProfileZone() {
    if (open_) [[unlikely]]
      detail::profile_end();
  }
  ProfileZone(const ProfileZone&) = delete;
  ProfileZone& operator=(const ProfileZone&) = delete;

 private:
  bool open_ = false;
};

/// For fibers: zones that were set aside, the outermost first, and how long each has run.
struct SuspendedZones {
  struct Zone {
    const char* name;
    std::int64_t run_ns;
  };
  std::vector<Zone> zones;
};
/// Zones that this thread has open.
std::size_t open_zones() noexcept;
/// Sets aside those behind the first `n_open`. Their time stands still until resume_zones, which may come on
/// another thread; what is lost for want of memory is the measurement only.
SuspendedZones suspend_zones(std::size_t n_open) noexcept;
void resume_zones(const SuspendedZones& zones) noexcept;

}  // namespace triptych

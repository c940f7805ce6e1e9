#include "base/profile.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace triptych {

namespace detail {
std::atomic<int> g_profile_mode{0};
}

namespace {

constexpr std::size_t kMaxEvents = 1'000'000;      // per thread; 24 MB
constexpr std::int64_t kMaxStretches = 1'000'000;  // of busy time, per thread and zone; 4 MB, 83 minutes

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Node {
  const char* name = nullptr;
  std::size_t first_child = 0;  // 0: none (node 0 is the root, nobody's child)
  std::size_t next_sibling = 0;
  std::int64_t count = 0;
  std::int64_t total_ns = 0;
  std::int64_t inner_ns = 0;  // in the zones inside
};

struct Event {
  const char* name;
  std::int64_t start_ns;
  std::int64_t duration_ns;
};

struct OpenZone {
  std::size_t node;
  std::int64_t start_ns;
  std::int64_t before_ns;  // that it ran before it was set aside
};

struct Busy {
  const char* zone;
  std::vector<float> busy_ns;

  // Adds `sign` times [begin, end) of the clock that starts with the first stretch.
  void add(std::int64_t begin_ns, std::int64_t end_ns, float sign) {
    begin_ns = std::max<std::int64_t>(begin_ns, 0);
    end_ns = std::min(end_ns, kMaxStretches * kBusyStretch_ns);
    if (begin_ns >= end_ns) return;
    const auto last = static_cast<std::size_t>((end_ns - 1) / kBusyStretch_ns);
    if (busy_ns.size() <= last) busy_ns.resize(last + 1);
    for (std::int64_t at = begin_ns; at < end_ns;) {
      const std::int64_t stretch = at / kBusyStretch_ns;
      const std::int64_t next = std::min(end_ns, (stretch + 1) * kBusyStretch_ns);
      busy_ns[static_cast<std::size_t>(stretch)] += sign * static_cast<float>(next - at);
      at = next;
    }
  }
};

// When profiling began: what busy time counts from.
std::atomic<std::int64_t> g_start_ns{0};

// What one thread records. Its mutex is contended only while a report is made.
struct ThreadState {
  std::mutex mutex;
  int id = 0;
  std::vector<Node> nodes = std::vector<Node>(1);
  std::vector<OpenZone> open;
  std::vector<Event> events;
  std::vector<Busy> busy;  // by zone
  std::string thread_name;

  void clear() {
    busy.clear();
    nodes.assign(1, Node{});
    open.clear();
    events.clear();
  }

  void add_busy(const char* zone, std::int64_t begin_ns, std::int64_t end_ns, float sign) {
    const std::int64_t start_ns = g_start_ns.load(std::memory_order_relaxed);
    for (Busy& one : busy)
      if (one.zone == zone || std::strcmp(one.zone, zone) == 0)
        return one.add(begin_ns - start_ns, end_ns - start_ns, sign);
    busy.push_back({zone, {}});
    busy.back().add(begin_ns - start_ns, end_ns - start_ns, sign);
  }

  std::size_t child_of(std::size_t parent, const char* name) {
    for (std::size_t c = nodes[parent].first_child; c != 0; c = nodes[c].next_sibling)
      if (nodes[c].name == name || std::strcmp(nodes[c].name, name) == 0) return c;
    Node node;
    node.name = name;
    node.next_sibling = nodes[parent].first_child;
    nodes.push_back(node);
    nodes[parent].first_child = nodes.size() - 1;
    return nodes.size() - 1;
  }

  void begin(const char* name) {
    const std::lock_guard lock(mutex);
    begin(name, 0);
  }

  // Under the lock.
  void begin(const char* name, std::int64_t before_ns) {
    const std::size_t node = child_of(open.empty() ? 0 : open.back().node, name);
    open.push_back({node, now_ns(), before_ns});
  }

  void end(ProfileMode mode) {
    const std::int64_t end_ns = now_ns();
    const std::lock_guard lock(mutex);
    if (open.empty()) return;  // cleared while the zone was open
    const OpenZone zone = open.back();
    open.pop_back();
    const std::int64_t duration_ns = zone.before_ns + end_ns - zone.start_ns;
    nodes[zone.node].count += 1;
    nodes[zone.node].total_ns += duration_ns;
    if (!open.empty()) nodes[open.back().node].inner_ns += duration_ns;
    if (mode == ProfileMode::kBusy && open.empty()) add_busy(nodes[zone.node].name, zone.start_ns, end_ns, 1);
    if (mode == ProfileMode::kTrace) add_event(zone, end_ns);
  }

  void add_event(const OpenZone& zone, std::int64_t end_ns) {
    if (events.size() < kMaxEvents)
      events.push_back({nodes[zone.node].name, zone.start_ns, end_ns - zone.start_ns});
  }

  // What lies within the first n_open zones stops and may go on on another thread.
  SuspendedZones suspend(std::size_t n_open, ProfileMode mode) {
    const std::int64_t end_ns = now_ns();
    const std::lock_guard lock(mutex);
    SuspendedZones out;
    for (std::size_t i = n_open; i < open.size(); ++i) {
      out.zones.push_back({nodes[open[i].node].name, open[i].before_ns + end_ns - open[i].start_ns});
      if (mode == ProfileMode::kBusy && i == 0)
        add_busy(nodes[open[i].node].name, open[i].start_ns, end_ns, 1);
      if (mode == ProfileMode::kTrace) add_event(open[i], end_ns);
    }
    open.resize(std::min(open.size(), n_open));
    return out;
  }

  void span(const char* zone, std::int64_t start_ns, ProfileMode mode) {
    const std::int64_t end_ns = now_ns();
    const std::lock_guard lock(mutex);
    if (mode == ProfileMode::kBusy) {
      if (std::strcmp(zone, kWaitZone) != 0) return add_busy(zone, start_ns, end_ns, 1);
      if (!open.empty()) add_busy(nodes[open.front().node].name, start_ns, end_ns, -1);
      return;
    }
    if (events.size() < kMaxEvents) events.push_back({zone, start_ns, end_ns - start_ns});
  }

  const char* open_zone(bool outermost) {
    const std::lock_guard lock(mutex);
    if (open.empty()) return nullptr;
    return nodes[(outermost ? open.front() : open.back()).node].name;
  }
};

// Sums by path, for the report.
struct Sum {
  std::int64_t count = 0;
  std::int64_t total_ns = 0;
  std::int64_t inner_ns = 0;
  std::map<std::string, Sum> inside;
};

struct TraceEvent {
  Event event;
  int thread;
};

struct Registry {
  std::mutex mutex;
  std::vector<ThreadState*> threads;
  int n_threads_ever = 0;
  Sum retired;                     // of threads that ended
  std::vector<TraceEvent> events;  // likewise
  std::vector<ProfileBusy> busy;   // likewise
  std::int64_t start_ns = 0;
  std::int64_t stop_ns = 0;
};

// Never destroyed: threads may end after static destruction began.
Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

void add_to(Sum& sum, const std::vector<Node>& nodes, std::size_t index) {
  for (std::size_t c = nodes[index].first_child; c != 0; c = nodes[c].next_sibling) {
    Sum& child = sum.inside[nodes[c].name];
    child.count += nodes[c].count;
    child.total_ns += nodes[c].total_ns;
    child.inner_ns += nodes[c].inner_ns;
    add_to(child, nodes, c);
  }
}

void append_busy(const ThreadState& thread, std::vector<ProfileBusy>& out) {
  for (const Busy& one : thread.busy) out.push_back({thread.id, thread.thread_name, one.zone, one.busy_ns});
}

std::string this_thread_name() {
  char text[16] = "";
  pthread_getname_np(pthread_self(), text, sizeof(text));
  return text;
}

// Registers the thread on first use; hands its sums to the registry when the thread ends.
class ThreadHolder {
 public:
  ThreadHolder() : state_(std::make_unique<ThreadState>()) {
    state_->thread_name = this_thread_name();
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    r.threads.push_back(state_.get());
    state_->id = ++r.n_threads_ever;
  }
  ~ThreadHolder() {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    std::erase(r.threads, state_.get());
    try {
      add_to(r.retired, state_->nodes, 0);
      for (const Event& event : state_->events)
        if (r.events.size() < kMaxEvents) r.events.push_back({event, state_->id});
      append_busy(*state_, r.busy);
    } catch (const std::bad_alloc&) {
      // Measurements are lost; nothing depends on them.
    }
  }
  ThreadHolder(const ThreadHolder&) = delete;
  ThreadHolder& operator=(const ThreadHolder&) = delete;
  ThreadState& state() noexcept { return *state_; }

 private:
  std::unique_ptr<ThreadState> state_;
};

void list_entries(const Sum& sum, const std::string& path, int depth, double wall_ns,
                  std::vector<ProfileEntry>& out) {
  std::vector<std::pair<std::string, const Sum*>> children;
  for (const auto& [name, child] : sum.inside) children.emplace_back(name, &child);
  std::stable_sort(children.begin(), children.end(),
                   [](const auto& a, const auto& b) { return a.second->total_ns > b.second->total_ns; });
  for (const auto& [name, child] : children) {
    const std::string child_path = path.empty() ? name : fmt::format("{}/{}", path, name);
    if (child->count > 0) {
      ProfileEntry entry;
      entry.path = child_path;
      entry.name = name;
      entry.depth = depth;
      entry.count = child->count;
      entry.total_ns = child->total_ns;
      entry.self_ns = std::max<std::int64_t>(child->total_ns - child->inner_ns, 0);
      entry.share = wall_ns > 0 ? static_cast<double>(child->total_ns) / wall_ns : 0;
      out.push_back(std::move(entry));
    }
    list_entries(*child, child_path, depth + 1, wall_ns, out);
  }
}

ThreadState& this_thread_state() {
  thread_local ThreadHolder holder;
  return holder.state();
}

}  // namespace

namespace detail {

bool profile_begin(const char* name) noexcept {
  try {
    this_thread_state().begin(name);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Of this thread: a zone within a fiber may have begun on another.
void profile_end() noexcept {
  try {
    this_thread_state().end(static_cast<ProfileMode>(g_profile_mode.load(std::memory_order_relaxed)));
  } catch (const std::bad_alloc&) {
    // The event is lost.
  }
}

}  // namespace detail

bool profile_keeps_spans() noexcept {
  const ProfileMode mode = profile_mode();
  return mode == ProfileMode::kTrace || mode == ProfileMode::kBusy;
}

const char* profile_traced_zone() noexcept {
  const ProfileMode mode = profile_mode();
  if (mode != ProfileMode::kTrace && mode != ProfileMode::kBusy) return nullptr;
  try {
    return this_thread_state().open_zone(mode == ProfileMode::kBusy);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

std::size_t open_zones() noexcept {
  try {
    ThreadState& state = this_thread_state();
    const std::lock_guard lock(state.mutex);
    return state.open.size();
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

SuspendedZones suspend_zones(std::size_t n_open) noexcept {
  try {
    return this_thread_state().suspend(n_open, profile_mode());
  } catch (const std::bad_alloc&) {
    return {};
  }
}

void resume_zones(const SuspendedZones& zones) noexcept {
  if (zones.zones.empty()) return;
  try {
    ThreadState& state = this_thread_state();
    const std::lock_guard lock(state.mutex);
    for (const SuspendedZones::Zone& zone : zones.zones) state.begin(zone.name, zone.run_ns);
  } catch (const std::bad_alloc&) {
    // The measurement is lost.
  }
}

std::int64_t profile_clock_ns() noexcept { return now_ns(); }

void profile_span(const char* name, std::int64_t start_ns) noexcept {
  try {
    this_thread_state().span(name, start_ns, profile_mode());
  } catch (const std::bad_alloc&) {
    // The event is lost.
  }
}

void set_profile_mode(ProfileMode mode) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto before = static_cast<ProfileMode>(detail::g_profile_mode.load(std::memory_order_relaxed));
  if (before == ProfileMode::kOff && mode != ProfileMode::kOff) {
    r.retired = Sum{};
    r.events.clear();
    r.busy.clear();
    for (ThreadState* thread : r.threads) {
      const std::lock_guard thread_lock(thread->mutex);
      thread->clear();
    }
    r.start_ns = now_ns();
    g_start_ns.store(r.start_ns, std::memory_order_relaxed);
  }
  if (before != ProfileMode::kOff && mode == ProfileMode::kOff) r.stop_ns = now_ns();
  detail::g_profile_mode.store(static_cast<int>(mode), std::memory_order_relaxed);
}

ProfileMode profile_mode() noexcept {
  return static_cast<ProfileMode>(detail::g_profile_mode.load(std::memory_order_relaxed));
}

std::int64_t profile_wall_ns() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (r.start_ns == 0) return 0;
  return (profile_mode() == ProfileMode::kOff ? r.stop_ns : now_ns()) - r.start_ns;
}

std::vector<ProfileEntry> profile_entries() {
  const auto wall_ns = static_cast<double>(profile_wall_ns());
  Sum sum;
  {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    sum = r.retired;
    for (ThreadState* thread : r.threads) {
      const std::lock_guard thread_lock(thread->mutex);
      add_to(sum, thread->nodes, 0);
    }
  }
  std::vector<ProfileEntry> out;
  list_entries(sum, "", 0, wall_ns, out);
  return out;
}

std::string profile_report() {
  const std::vector<ProfileEntry> entries = profile_entries();
  std::size_t width = 4;
  for (const ProfileEntry& e : entries)
    width = std::max(width, e.name.size() + 2 * static_cast<std::size_t>(e.depth));
  std::string out = fmt::format("{:<{}}  {:>12}  {:>7}  {:>9}  {:>12}  {:>10}\n", "zone", width, "time ms",
                                "share", "count", "self ms", "mean us");
  for (const ProfileEntry& e : entries) {
    const std::string name = std::string(2 * static_cast<std::size_t>(e.depth), ' ') + e.name;
    const auto total = static_cast<double>(e.total_ns);
    out += fmt::format("{:<{}}  {:>12.3f}  {:>6.1f}%  {:>9}  {:>12.3f}  {:>10.2f}\n", name, width,
                       total / 1e6, 100 * e.share, e.count, static_cast<double>(e.self_ns) / 1e6,
                       total / 1e3 / static_cast<double>(e.count));
  }
  out += fmt::format("{:<{}}  {:>12.3f}\n", "wall", width, static_cast<double>(profile_wall_ns()) / 1e6);
  return out;
}

std::vector<ProfileEvent> profile_events() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::vector<ProfileEvent> out;
  const auto add = [&](const Event& event, int thread) {
    out.push_back({event.name, thread, event.start_ns - r.start_ns, event.duration_ns});
  };
  for (const TraceEvent& e : r.events) add(e.event, e.thread);
  for (ThreadState* thread : r.threads) {
    const std::lock_guard thread_lock(thread->mutex);
    for (const Event& event : thread->events) add(event, thread->id);
  }
  return out;
}

std::vector<ProfileBusy> profile_busy() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::vector<ProfileBusy> out = r.busy;
  for (ThreadState* thread : r.threads) {
    const std::lock_guard thread_lock(thread->mutex);
    append_busy(*thread, out);
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.thread < b.thread; });
  return out;
}

void write_chrome_trace(std::ostream& out) {
  out << "[";
  const char* separator = "\n";
  for (const ProfileEvent& e : profile_events()) {
    out << separator
        << fmt::format(R"({{"name":{},"ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
                       Json(e.name).dump(), e.thread, static_cast<double>(e.start_ns) / 1e3,
                       static_cast<double>(e.duration_ns) / 1e3);
    separator = ",\n";
  }
  out << "\n]\n";
}

}  // namespace triptych

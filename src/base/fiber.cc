// Contexts of POSIX (makecontext, swapcontext), which carry the floating point modes with them. The
// sanitizers are told of each switch: they keep a stack's bounds and a thread's history themselves.
#include "base/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <utility>

#include "base/asan.h"
#include "base/error.h"
#include "base/profile.h"

#ifdef TRIPTYCH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#define TRIPTYCH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TRIPTYCH_TSAN 1
#endif
#endif
#ifdef TRIPTYCH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace triptych {
namespace {

struct Unwound {};  // what ends a body that is not wanted any more

// Memory of a stack, with a page below it that may not be touched.
class Stack {
 public:
  Stack() : guard_bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    base_ = mmap(nullptr, size(), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED)
      fail(ErrorCode::kOutOfMemory, "no memory for a stack of {} bytes", Fiber::kStack_bytes);
    if (mprotect(base_, guard_bytes_, PROT_NONE) != 0) {
      munmap(base_, size());
      fail(ErrorCode::kOutOfMemory, "no guard page for a stack");
    }
  }
  ~Stack() { munmap(base_, size()); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  void* data() const noexcept { return static_cast<std::byte*>(base_) + guard_bytes_; }

 private:
  std::size_t size() const noexcept { return Fiber::kStack_bytes + guard_bytes_; }

  std::size_t guard_bytes_;
  void* base_ = nullptr;
};

}  // namespace

struct Fiber::State {
  Stack stack;
  std::function<void(Fiber&)> body;
  Fiber* fiber = nullptr;
  ucontext_t inside{}, outside{};
  std::exception_ptr error;
  SuspendedZones zones;
  bool started = false, inside_now = false, unwinds = false, done = false;
#ifdef TRIPTYCH_ASAN
  void* fake_stack = nullptr;  // of the one that waits
  const void* outside_stack = nullptr;
  std::size_t outside_size = 0;
#endif
#ifdef TRIPTYCH_TSAN
  void* tsan_inside = __tsan_create_fiber(0);
  void* tsan_outside = nullptr;
  ~State() { __tsan_destroy_fiber(tsan_inside); }
#endif

  void enter();
  void leave(bool for_good);
  void run();
  static void trampoline(unsigned high, unsigned low);
};

// Arguments of a context are ints: a pointer takes two.
void Fiber::State::trampoline(unsigned high, unsigned low) {
  const auto address = (static_cast<std::uint64_t>(high) << 32) | low;
  reinterpret_cast<State*>(static_cast<std::uintptr_t>(address))->run();
}

void Fiber::State::run() {
#ifdef TRIPTYCH_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &outside_stack, &outside_size);
#endif
  try {
    body(*fiber);
  } catch (const Unwound&) {
    // As asked.
  } catch (...) {
    error = std::current_exception();
  }
  done = true;
  leave(true);
}

// From outside, until the body suspends or ends.
void Fiber::State::enter() {
  inside_now = true;
#ifdef TRIPTYCH_TSAN
  tsan_outside = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_inside, 0);
#endif
#ifdef TRIPTYCH_ASAN
  void* own_fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&own_fake_stack, stack.data(), kStack_bytes);
#endif
  swapcontext(&outside, &inside);
#ifdef TRIPTYCH_ASAN
  __sanitizer_finish_switch_fiber(own_fake_stack, nullptr, nullptr);
#endif
  inside_now = false;
}

// From inside, until it is resumed.
void Fiber::State::leave([[maybe_unused]] bool for_good) {
#ifdef TRIPTYCH_TSAN
  __tsan_switch_to_fiber(tsan_outside, 0);
#endif
#ifdef TRIPTYCH_ASAN
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack, outside_stack, outside_size);
#endif
  swapcontext(&inside, &outside);
#ifdef TRIPTYCH_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, &outside_stack, &outside_size);
#endif
}

Fiber::Fiber(std::function<void(Fiber&)> body) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.body = std::move(body);
  s.fiber = this;
}

Fiber::~Fiber() {
  if (!state_->started || state_->done) return;
  state_->unwinds = true;
  resume_zones(state_->zones);
  state_->enter();
}

void Fiber::resume() {
  State& s = *state_;
  TRIPTYCH_CHECK(!s.done && !s.inside_now, "a fiber that {} was resumed", s.done ? "ended" : "runs");
  if (!s.started) {
    // Here, so that the floating point modes are those of the first resume.
    TRIPTYCH_CHECK(getcontext(&s.inside) == 0, "getcontext");
    s.inside.uc_stack.ss_sp = s.stack.data();
    s.inside.uc_stack.ss_size = kStack_bytes;
    s.inside.uc_link = nullptr;
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&s));
    makecontext(&s.inside, reinterpret_cast<void (*)()>(&State::trampoline), 2,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
    s.started = true;
  }
  const std::size_t n_open = open_zones();
  resume_zones(s.zones);
  s.enter();
  s.zones = suspend_zones(n_open);
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

bool Fiber::done() const noexcept { return state_->done; }

void Fiber::suspend() {
  state_->leave(false);
  if (state_->unwinds) throw Unwound();
}

}  // namespace triptych

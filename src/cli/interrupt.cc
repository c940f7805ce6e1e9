#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <csignal>

namespace triptych::cli {
namespace {

volatile std::sig_atomic_t g_pending = 0;
volatile std::sig_atomic_t g_reading = 0;
struct sigaction g_before = {};
struct sigaction g_alarm_before = {};

extern "C" void on_interrupt(int) {
  if (g_pending != 0) {  // nobody listens: end as if nothing had been set up
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
  }
  g_pending = 1;
  if (g_reading != 0) alarm(1);
}

extern "C" void on_alarm(int) {
  if (g_pending != 0 && g_reading != 0) alarm(1);
}

// With `restart` a write of the answer that the signal meets goes on; without, a blocking read returns.
void handle_interrupts(bool restart, struct sigaction* before) {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = restart ? SA_RESTART : 0;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, before);
}

}  // namespace

Interrupt::Interrupt() {
  g_pending = 0;
  handle_interrupts(true, &g_before);
}

Interrupt::~Interrupt() { sigaction(SIGINT, &g_before, nullptr); }

bool Interrupt::pending() noexcept { return g_pending != 0; }

bool Interrupt::take() noexcept {
  const bool was = g_pending != 0;
  g_pending = 0;
  return was;
}

InterruptsRead::InterruptsRead() {
  struct sigaction now = {};
  sigaction(SIGINT, nullptr, &now);
  handles_ = now.sa_handler == on_interrupt;
  if (handles_) handle_interrupts(false, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_alarm;  // no SA_RESTART
  sigemptyset(&action.sa_mask);
  sigaction(SIGALRM, &action, &g_alarm_before);
  g_reading = 1;
  if (g_pending != 0) alarm(1);
}

InterruptsRead::~InterruptsRead() {
  g_reading = 0;
  alarm(0);
  sigaction(SIGALRM, &g_alarm_before, nullptr);
  if (handles_) handle_interrupts(true, nullptr);
}

}  // namespace triptych::cli

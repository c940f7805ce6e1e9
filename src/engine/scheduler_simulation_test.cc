// The engine's loop with the real scheduler over counts and a clock that only the cost of work moves: a
// hundred thousand requests in seconds. What must hold always is checked in each step, what must hold in the
// end at the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/block_pool.h"
#include "engine/scheduler.h"

namespace triptych {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Machine {
  double step_ms = 10, decode_row_ms = 0.2, prefill_row_ms = 0.5, patch_ms = 0.1;
  double piece_ms = 4;  // of the tower: it is left only behind one
};

struct Spec {
  double arrives_ms = 0;
  int priority = 0;
  std::string tenant = {};
  std::int64_t n_prompt = 0, n_answer = 0;
  std::int64_t n_patches = 0;  // 0: no picture
  std::int64_t media_row = 0;  // of the prompt, where the picture begins
  double cancel_ms = kNever, deadline_ms = kNever;
};

enum class End { kNone, kDone, kCancelled, kTimeout };

struct Request {
  const Spec* spec = nullptr;
  Ticket ticket;
  std::int64_t n_tokens = 0, n_computed = 0, n_blocks = 0;
  bool encoded = false, in_pass = false;
  End end = End::kNone;
  int n_ends = 0;
  double first_start_ms = kNever, end_ms = kNever, last_token_ms = -1;

  SequenceState state() const {
    return {.n_tokens = n_tokens,
            .n_computed = n_computed,
            .n_blocks = n_blocks,
            .n_owned_blocks = n_blocks,
            .n_ready = encoded ? n_tokens : std::max(spec->media_row, n_computed)};
  }
};

class Simulation {
 public:
  Simulation(SchedulerLimits limits, std::int64_t n_blocks, std::int64_t max_batch_patches,
             Machine machine = {})
      : limits_(limits),
        machine_(machine),
        n_blocks_(n_blocks),
        n_free_(n_blocks),
        max_batch_patches_(max_batch_patches),
        scheduler(limits, [this] { return now_ms; }) {}

  // All of these, in the order of arrival.
  void run(const std::vector<Spec>& specs) {
    requests.resize(specs.size());
    std::size_t next = 0;
    while (next < specs.size() || !waiting_.empty() || !running_.empty()) {
      if (waiting_.empty() && running_.empty()) now_ms = std::max(now_ms, specs[next].arrives_ms);
      for (; next < specs.size() && specs[next].arrives_ms <= now_ms; ++next)
        submit(specs[next], requests[next]);
      step();
      ++n_steps;
      ASSERT_FALSE(testing::Test::HasFailure()) << "at " << now_ms << " ms";
      if (each_step) each_step();
    }
    EXPECT_EQ(n_free_, n_blocks_) << "pages leaked";
    for (const Request& r : requests) ASSERT_EQ(r.n_ends, 1);
  }

  double now_ms = 0;
  std::int64_t n_steps = 0, n_preempted = 0, n_shared_passes = 0;
  std::vector<Request> requests;
  std::vector<double> gaps_ms;  // between tokens
  std::function<void()> each_step;

  std::size_t n_waiting(const std::string& tenant) const {
    return static_cast<std::size_t>(std::count_if(
        waiting_.begin(), waiting_.end(), [&](const Request* r) { return r->spec->tenant == tenant; }));
  }

 private:
  void submit(const Spec& spec, Request& r) {
    r.spec = &spec;
    r.n_tokens = spec.n_prompt;
    r.encoded = spec.n_patches == 0;
    r.ticket = scheduler.enter(next_id_++, spec.priority, spec.tenant);
    waiting_.push_back(&r);
  }

  void end(Request& r, End how) {
    r.end = how;
    ++r.n_ends;
    r.end_ms = now_ms;
    n_free_ += r.n_blocks;
    r.n_blocks = 0;
    std::erase(pass_, &r);
    scheduler.leave(r.ticket, r.n_tokens);
  }

  void end_some() {
    for (auto* list : {&running_, &waiting_}) {
      for (Request* r : *list) {
        if (r->spec->cancel_ms <= now_ms)
          end(*r, End::kCancelled);
        else if (r->spec->deadline_ms <= now_ms)
          end(*r, End::kTimeout);
      }
      std::erase_if(*list, [](const Request* r) { return r->n_ends > 0; });
    }
  }

  std::vector<SequenceState> states() const {
    std::vector<SequenceState> out;
    for (const Request* r : running_) out.push_back(r->state());
    return out;
  }

  void admit() {
    while (!waiting_.empty()) {
      std::vector<const Ticket*> tickets;
      for (const Request* r : waiting_) tickets.push_back(&r->ticket);
      const auto i = static_cast<std::ptrdiff_t>(scheduler.next(tickets));
      Request& r = *waiting_[static_cast<std::size_t>(i)];
      if (!scheduler.admits(states(), r.state(), n_free_)) return;
      waiting_.erase(waiting_.begin() + i);
      r.first_start_ms = std::min(r.first_start_ms, now_ms);
      scheduler.start(r.ticket, r.spec->n_prompt, r.spec->n_answer);
      running_.insert(std::upper_bound(running_.begin(), running_.end(), &r,
                                       [&](const Request* a, const Request* b) {
                                         return scheduler.precedes(a->ticket, b->ticket);
                                       }),
                      &r);
      EXPECT_LE(running_.size(), static_cast<std::size_t>(limits_.max_sequences));
    }
  }

  void encode() {
    if (pass_.empty()) {
      std::int64_t n_patches = 0;
      for (Request* r : running_) {
        if (r->encoded || r->n_computed >= r->spec->n_prompt) continue;
        if (!pass_.empty() && n_patches + r->spec->n_patches > max_batch_patches_) break;
        n_patches += r->spec->n_patches;
        pass_.push_back(r);
      }
      EXPECT_TRUE(n_patches <= max_batch_patches_ || pass_.size() == 1);
      n_shared_passes += pass_.size() > 1 ? 1 : 0;
      pass_left_ms_ = static_cast<double>(n_patches) * machine_.patch_ms;
    }
    if (pass_.empty()) return;
    double budget_ms = scheduler.budget(states(), true).encode_ms;
    const double start_ms = now_ms;
    do {
      const double ms = std::min(machine_.piece_ms, pass_left_ms_);
      now_ms += ms;
      budget_ms -= ms;
      pass_left_ms_ -= ms;
    } while (pass_left_ms_ > 0 && budget_ms >= machine_.piece_ms / 2);
    encode_ms_ = now_ms - start_ms;
    if (pass_left_ms_ > 0) return;
    for (Request* r : pass_) r->encoded = true;
    pass_.clear();
  }

  void step() {
    const double start_ms = now_ms;
    encode_ms_ = 0;
    end_some();
    admit();
    encode();
    const std::vector<SequenceState> all = states();
    const bool cut = limits_.max_step_ms > 0 && scheduler.budget(all, !pass_.empty()).is_cut();
    Schedule plan;
    scheduler.schedule(all, n_free_, scheduler.budget(all, !pass_.empty(), encode_ms_).prefill_rows, plan);
    EXPECT_EQ(plan.n_missing_blocks, 0) << "one context always fits";
    for (std::size_t i = 0; i < plan.preempted.size(); ++i) {
      Request& r = *running_.back();
      running_.pop_back();
      n_free_ += r.n_blocks;
      r.n_blocks = r.n_computed = 0;
      waiting_.push_back(&r);
      ++n_preempted;
    }
    StepMeasurement cost;
    for (const ScheduledRows& one : plan.rows) {
      Request& r = *running_[one.sequence];
      const std::int64_t more = std::max<std::int64_t>(0, blocks_for(r.n_computed + one.n_rows) - r.n_blocks);
      n_free_ -= more;
      r.n_blocks += more;
      EXPECT_LE(r.n_computed + one.n_rows, r.state().n_ready) << "rows without their picture";
      (r.n_tokens - r.n_computed == 1 ? cost.n_decode_rows : cost.n_prefill_rows) += one.n_rows;
    }
    EXPECT_GE(n_free_, 0) << "more pages than there are";
    EXPECT_LE(cost.n_prefill_rows, std::max<std::int64_t>(0, limits_.max_batch_tokens - cost.n_decode_rows));
    if (!plan.rows.empty())
      cost.ms = machine_.step_ms + machine_.decode_row_ms * static_cast<double>(cost.n_decode_rows) +
                machine_.prefill_row_ms * static_cast<double>(cost.n_prefill_rows);
    now_ms += cost.ms;
    scheduler.note_step(cost);
    for (const ScheduledRows& one : plan.rows) advance(*running_[one.sequence], one.n_rows);
    std::erase_if(running_, [](const Request* r) { return r->n_ends > 0; });
    if (cut) longest_step_ms = std::max(longest_step_ms, now_ms - start_ms);
  }

  void advance(Request& r, std::int64_t n_rows) {
    r.n_computed += n_rows;
    scheduler.progress(r.ticket, r.n_computed);
    if (r.n_computed < r.n_tokens) return;
    if (r.last_token_ms >= 0) gaps_ms.push_back(now_ms - r.last_token_ms);
    r.last_token_ms = now_ms;
    ++r.n_tokens;
    if (r.n_tokens == r.spec->n_prompt + r.spec->n_answer) end(r, End::kDone);
  }

  SchedulerLimits limits_;
  Machine machine_;
  std::int64_t n_blocks_, n_free_, max_batch_patches_;
  std::uint64_t next_id_ = 0;
  std::vector<Request*> waiting_, running_, pass_;
  double pass_left_ms_ = 0;
  double encode_ms_ = 0;  // of this step

 public:
  Scheduler scheduler;
  double longest_step_ms = 0;  // of those that a limit holds for
};

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  double gap(double mean_ms) {
    return -mean_ms * std::log1p(-static_cast<double>(random_() % 1'000'000) / 1e6);
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }

 private:
  std::mt19937_64 random_;
};

std::vector<Spec> traffic(int n, double mean_gap_ms, unsigned seed) {
  Draw draw(seed);
  std::vector<Spec> out;
  double at_ms = 0;
  for (int i = 0; i < n; ++i) {
    at_ms += draw.gap(mean_gap_ms);
    Spec s{.arrives_ms = at_ms,
           .priority = static_cast<int>(draw.between(0, 3)),
           .tenant = "key " + std::to_string(draw.between(0, 9)),
           .n_prompt = draw.between(10, 400),
           .n_answer = draw.between(2, 60)};
    if (draw.one_in(3)) {
      s.n_patches = draw.between(256, 2304);
      s.media_row = draw.between(0, 9);
    }
    if (draw.one_in(20)) s.cancel_ms = at_ms + static_cast<double>(draw.between(0, 4000));
    if (draw.one_in(20)) s.deadline_ms = at_ms + static_cast<double>(draw.between(100, 4000));
    out.push_back(std::move(s));
  }
  return out;
}

TEST(SchedulerSimulation, AHundredThousandRequestsEndOnceAndNobodyStarves) {
  constexpr double kAgingMs = 5000;
  Simulation run({.max_batch_tokens = 512, .max_sequences = 16, .max_step_ms = 60, .aging_ms = kAgingMs}, 40,
                 4096);
  const std::vector<Spec> specs = traffic(100'000, 275, 7);
  run.run(specs);
  double longest_wait_ms = 0;
  int n_done = 0;
  for (const Request& r : run.requests) {
    n_done += r.end == End::kDone ? 1 : 0;
    if (r.end == End::kDone) {
      EXPECT_EQ(r.n_tokens, r.spec->n_prompt + r.spec->n_answer);
      longest_wait_ms = std::max(longest_wait_ms, r.first_start_ms - r.spec->arrives_ms);
    } else if (r.end == End::kCancelled) {
      EXPECT_GE(r.end_ms, r.spec->cancel_ms);
      EXPECT_LE(r.end_ms, std::max(r.spec->cancel_ms, r.spec->arrives_ms) + 600) << "within a step";
    }
  }
  EXPECT_GT(n_done, 90'000);
  EXPECT_GT(run.n_preempted, 100) << "the pages were short";
  EXPECT_GT(run.n_shared_passes, 100);
  // A quarter of the time goes to prompts though the tower took all of it, and a piece is not left in its
  // middle.
  EXPECT_LE(run.longest_step_ms, 60 + 15 + 4);
  RecordProperty("steps", static_cast<int>(run.n_steps));
  RecordProperty("longest_wait_ms", static_cast<int>(longest_wait_ms));
}

// More urgent requests come than can be served; one of the lowest priority is served all the same.
TEST(SchedulerSimulation, AnUrgentFloodDoesNotStarveTheOthers) {
  constexpr double kAgingMs = 1000;
  std::vector<Spec> specs;
  for (int i = 0; i < 2500; ++i)
    specs.push_back(
        {.arrives_ms = 20.0 * i, .priority = 0, .tenant = "flood", .n_prompt = 50, .n_answer = 20});
  specs.push_back({.arrives_ms = 500, .priority = 5, .tenant = "patient", .n_prompt = 50, .n_answer = 20});
  std::stable_sort(specs.begin(), specs.end(),
                   [](const Spec& a, const Spec& b) { return a.arrives_ms < b.arrives_ms; });
  Simulation run({.max_sequences = 4, .aging_ms = kAgingMs}, 64, 4096);
  run.run(specs);
  for (const Request& r : run.requests) {
    if (r.spec->tenant != "patient") continue;
    EXPECT_GT(r.first_start_ms - r.spec->arrives_ms, 4 * kAgingMs) << "priority counts";
    // What came up to five levels later is behind it.
    int n_before = 0;
    for (const Request& other : run.requests)
      if (other.first_start_ms < r.first_start_ms) {
        ++n_before;
        EXPECT_LE(other.spec->arrives_ms, r.spec->arrives_ms + 6 * kAgingMs);
      }
    EXPECT_LE(n_before, static_cast<int>((500 + 6 * kAgingMs) / 20) + 1);
  }
}

// Three tenants want more than there is: one sends ten times as much, one has twice the share.
TEST(SchedulerSimulation, TenantsGetTheirShares) {
  constexpr int kSequences = 8;
  constexpr std::int64_t kMaxTokens = 360;
  std::vector<Spec> specs;
  Draw draw(3);
  const auto add = [&](const std::string& tenant, int n) {
    for (int i = 0; i < n; ++i)
      specs.push_back({.tenant = tenant, .n_prompt = draw.between(20, 300), .n_answer = draw.between(5, 60)});
  };
  add("loud", 4000);
  add("quiet", 700);
  add("paying", 1400);
  Simulation run({.max_batch_tokens = 256, .max_sequences = kSequences, .aging_ms = 1e12}, 128, 4096);
  run.scheduler.shares().set_weight("paying", 2);
  double worst = 0;
  std::map<std::string, std::int64_t> tokens;
  bool contended = true;
  run.each_step = [&] {
    for (const char* name : {"loud", "quiet", "paying"}) contended = contended && run.n_waiting(name) > 0;
    if (!contended) return;
    tokens.clear();
    for (const Request& r : run.requests)
      if (r.spec != nullptr) tokens[r.spec->tenant] += r.n_computed;
    const auto by_weight = {static_cast<double>(tokens["loud"]), static_cast<double>(tokens["quiet"]),
                            static_cast<double>(tokens["paying"]) / 2};
    worst = std::max(worst, std::max(by_weight) - std::min(by_weight));
  };
  // Counting all requests in each step takes long: every hundredth is enough.
  const auto count = run.each_step;
  std::int64_t n = 0;
  run.each_step = [&] {
    if (++n % 100 == 0) count();
  };
  run.run(specs);
  // Each is at most a set of places' worth of requests ahead of another.
  EXPECT_LE(worst, kSequences * kMaxTokens);
  EXPECT_GT(tokens["quiet"], 80'000) << "long enough to tell";
  const double share = static_cast<double>(tokens["paying"]) / static_cast<double>(tokens["loud"]);
  EXPECT_NEAR(share, 2, 0.05);
}

// A large picture and a long prompt arrive while others decode: with a limit their tokens go on coming.
TEST(SchedulerSimulation, ALimitKeepsTokensComingWhileAPictureIsEncoded) {
  const auto p99 = [](double max_step_ms, bool picture) {
    std::vector<Spec> specs(4, {.n_prompt = 20, .n_answer = 400});
    if (picture) specs.push_back({.arrives_ms = 200, .n_prompt = 2400, .n_answer = 5, .n_patches = 9216});
    Simulation run({.max_step_ms = max_step_ms}, 256, 16384);
    run.run(specs);
    std::sort(run.gaps_ms.begin(), run.gaps_ms.end());
    return run.gaps_ms[run.gaps_ms.size() * 99 / 100];
  };
  const double alone = p99(0, false);
  EXPECT_LE(p99(2.5 * alone, true), 3 * alone);
  Simulation whole({}, 256, 16384);
  whole.run({{.n_prompt = 20, .n_answer = 40},
             {.arrives_ms = 100, .n_prompt = 2400, .n_answer = 5, .n_patches = 9216}});
  EXPECT_GT(*std::max_element(whole.gaps_ms.begin(), whole.gaps_ms.end()), 900)
      << "without one they wait for the tower";
}

}  // namespace
}  // namespace triptych

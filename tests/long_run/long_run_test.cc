// Engines that serve random requests for long while all kinds of things go wrong: requests are cancelled and
// time out, callbacks, towers and steps throw, memory runs out, the disk is full. Behind it nothing may be
// missing: each request ended exactly once, each page is free, all memory is given back, and whoever was not
// harmed has the answer that it gets alone, to the last bit.
//
// TRIPTYCH_LONG_RUN=20000 long_run_tests      so many requests, in place of a few hundred
// TRIPTYCH_LONG_RUN_SEED=7                    others
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/memory_pool.h"
#include "engine/engine.h"
#include "engine/testing/faulty_model.h"
#include "io/test_files.h"
#include "long_run/failing_new.h"
#include "long_run/random_requests.h"

namespace triptych::test {
namespace {

constexpr std::int64_t kContext = 640;
constexpr char kForwardFault[] = "a step that throws";
constexpr char kTowerFault[] = "a tower that throws";
constexpr char kCallbackFault[] = "a callback that throws";

std::int64_t number_from(const char* variable, std::int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

TinyFiles two_layers() {
  TinyFiles out = tiny_files("qwen2_vl", Geometry::kSmall);
  out.config["num_hidden_layers"] = 2;
  return out;
}

// What an engine goes through.
struct Shift {
  EngineOptions options;
  bool lacks_memory = false;   // blocks of the pool, and small allocations, are refused now and then
  bool disk_is_full = false;   // now and then
  bool has_canceller = false;  // another thread cancels
  std::vector<RandomRequest> requests = {};  // all at once; empty: random ones, in time
};

// A request on its way.
struct Sent {
  RandomRequest request;
  std::map<int, std::vector<std::int32_t>> tokens;  // by choice, as steps gave them
  std::map<int, int> n_ended;
  int n_callbacks = 0;
  bool threw = false;
  int steps_left = 0;
};

// For a failure.
std::string described(const RandomRequest& r) {
  return fmt::format(
      "{} ids, {} pictures of which {} stay by {}, n {}, best of {}, {} tokens at temperature {}, harm {}",
      r.ids.size(), r.pictures.size(), r.image_tokens.keep, to_string(r.image_tokens.selection), r.params.n,
      r.params.best_of, r.params.max_tokens, r.params.temperature, static_cast<int>(r.harm));
}
std::string described(const Shift& s) {
  const EngineOptions& o = s.options;
  return fmt::format(
      "keys and values {}, {} tokens, {} rows, {} sequences, {} patches, step {} ms, replay {}, rows of "
      "pictures {} bytes{}, "
      "prefixes {} bytes, drafts {} of {}, limit {} bytes; no memory {}, full disk {}, canceller {}",
      to_string(*o.kv_cache_dtype), o.kv_cache_tokens, o.max_batch_tokens, o.max_sequences,
      o.max_batch_patches, o.max_step_ms, o.replay_steps, o.vision_embedding_cache_bytes,
      o.vision_cache.directory.empty() ? "" : " and a disk", o.prefix_cache_bytes,
      to_string(o.speculation.method), o.speculation.num_speculative_tokens, o.memory_limit_bytes,
      s.lacks_memory, s.disk_is_full, s.has_canceller);
}

class LongRun : public testing::Test {
 protected:
  LongRun() {
    std::signal(SIGXFSZ, SIG_IGN);
    model_.faults->before_encode = [](std::span<const MediaItem> items) {
      for (const MediaItem& item : items)
        if (item.fingerprint.high > static_cast<std::uint64_t>(kBadPicture))
          throw std::runtime_error(kTowerFault);
    };
    model_.faults->before_forward = [](const Batch& batch) {
      for (std::size_t row = 0; row < batch.token_ids.size(); ++row)
        if (is_of_prompt(batch, row, kForwardThrowsId)) throw std::runtime_error(kForwardFault);
    };
    model_.faults->after_forward = [](const Batch& batch, TensorView logits) {
      for (std::size_t i = 0; i < batch.logit_rows.size(); ++i)
        if (is_of_prompt(batch, static_cast<std::size_t>(batch.logit_rows[i]), kBadLogitsId))
          logits.row(static_cast<std::int64_t>(i)).f32()[3] = std::numeric_limits<float>::quiet_NaN();
    };
  }

  // Drafts may be anything.
  static bool is_of_prompt(const Batch& batch, std::size_t row, std::int32_t id) {
    return batch.token_ids[row] == id && batch.lengths[row].n_tokens <= batch.lengths[row].n_prompt;
  }

  LoadedModel& model() { return *model_; }

  Shift random_shift() {
    Shift out;
    out.lacks_memory = one_in(random_, 3);
    out.disk_is_full = one_in(random_, 2);
    out.has_canceller = one_in(random_, 4);
    EngineOptions& o = out.options;
    constexpr std::array kTypes = {KvDType::kF32, KvDType::kF16, KvDType::kInt8};
    constexpr std::array<std::int64_t, 4> kRows = {7, 40, 200, 1024};
    o.max_context_tokens = kContext;
    o.kv_cache_tokens = kContext * (1 + below(random_, 3));
    o.max_batch_tokens = kRows[static_cast<std::size_t>(below(random_, 4))];
    o.max_sequences = 1 + below(random_, 8);
    o.kv_cache_dtype = kTypes[static_cast<std::size_t>(below(random_, 3))];
    o.replay_steps = one_in(random_, 2);
    o.vision_embedding_cache_bytes = std::size_t{1} << (10 + 2 * below(random_, 4));
    if (one_in(random_, 3)) o.vision_embedding_cache_bytes = 0;
    if (one_in(random_, 2)) {
      o.vision_cache.directory = folder_.path() / "rows";
      o.vision_cache.directory_max_bytes = 20'000;
    }
    if (!one_in(random_, 3)) o.prefix_cache_bytes = std::size_t{1} << (13 + 3 * below(random_, 4));
    o.max_batch_patches = one_in(random_, 2) ? 50 : 16384;
    if (one_in(random_, 2)) o.max_step_ms = 0.5 + below(random_, 4);
    o.clock_ms = [this] { return clock_ms_ += 0.02; };
    if (one_in(random_, 2)) {
      o.speculation.method = one_in(random_, 2) ? SpeculationMethod::kNgram : SpeculationMethod::kSelfDraft;
      o.speculation.num_speculative_tokens = 1 + below(random_, 6);
      o.speculation.prompt_lookup_min = 1;
      o.speculation.gate = one_in(random_, 2);
      if (o.speculation.method == SpeculationMethod::kSelfDraft) o.speculation.skip_layers = {1};
    }
    if (one_in(random_, 3)) {
      const MemoryBudget all(std::size_t{1} << 30, model().model(), model().backend(),
                             {.n_step_rows = o.max_batch_tokens,
                              .n_sequences = o.max_sequences,
                              .n_pass_patches = o.max_batch_patches,
                              .kv_dtype = *o.kv_cache_dtype});
      o.memory_limit_bytes =
          all.weights_bytes() + all.step_bytes() + all.pass_bytes() +
          static_cast<std::size_t>(blocks_for(kContext) + 60 + below(random_, 100)) * all.block_bytes();
    }
    return out;
  }

  // The answer in an engine of its own kind of cache, where nothing goes wrong.
  GenerationResult alone(const RandomRequest& request, const EngineOptions& options) {
    std::unique_ptr<Engine>& engine = alone_[*options.kv_cache_dtype];
    if (!engine)
      engine = std::make_unique<Engine>(
          model(), EngineOptions{.max_context_tokens = kContext, .kv_cache_dtype = options.kv_cache_dtype});
    RandomRequest unharmed = request;
    unharmed.queue = {};
    return engine->generate(prepare(model(), unharmed), request.params);
  }

  void serve(const Shift& shift, std::int64_t n_requests);
  void submit(Engine& engine, const Shift& shift);
  void step(Engine& engine, const Shift& shift);
  void take_up(std::span<const StepOutput> outputs);
  void check_end(Engine& engine, const Shift& shift, RequestId id, const Sent& sent);
  static void census(Engine& engine);

  std::mt19937_64 random_{static_cast<std::uint64_t>(number_from("TRIPTYCH_LONG_RUN_SEED", 1))};
  FaultyTinyModel model_{two_layers(), {.batch_invariant = true}};
  TempDir folder_;
  double clock_ms_ = 0;
  std::map<KvDType, std::unique_ptr<Engine>> alone_;
  std::map<RequestId, Sent> sent_;
  std::atomic<RequestId> last_id_ = 0;
  // What came of them all.
  std::int64_t n_submitted_ = 0, n_refused_ = 0, n_thrown_steps_ = 0, n_equal_ = 0, n_failed_ = 0,
               n_out_of_memory_ = 0, n_cut_short_ = 0, n_preemptions_ = 0;
};

void LongRun::submit(Engine& engine, const Shift& shift) {
  Sent sent;
  sent.request = shift.requests.empty() ? random_request(random_) : shift.requests[last_id_];
  // A step that is replayed does not come by the faults.
  Harm& harm = sent.request.harm;
  if (shift.options.replay_steps && (harm == Harm::kForwardThrows || harm == Harm::kBadLogits)) {
    harm = Harm::kNone;
    sent.request.ids.pop_back();
  }
  sent.steps_left = sent.request.harm_at;
  const bool fails = shift.lacks_memory && one_in(random_, 10);
  PreparedRequest prepared =
      prepare(model(), sent.request, [&](const MediaItem& item) { return engine.has_media_rows(item); });
  const RequestId next = last_id_ + 1;
  // Its place among those sent is there before the engine may call back.
  Sent& placed = sent_.insert_or_assign(next, std::move(sent)).first->second;
  const auto on_token = [this, next](const TokenEvent&) {
    Sent& own = sent_.at(next);
    ++own.n_callbacks;
    if (own.n_callbacks <= own.request.harm_at) return true;
    if (own.request.harm == Harm::kCallbackThrows) throw std::runtime_error(kCallbackFault);
    return own.request.harm != Harm::kCancelledByCallback;
  };
  try {
    if (fails) fail_allocation_after(below(random_, 80));
    const RequestId id = engine.submit(std::move(prepared), placed.request.params, on_token);
    take_back_failure();
    ASSERT_EQ(id, next);
    last_id_ = id;
    ++n_submitted_;
  } catch (const std::bad_alloc&) {
    EXPECT_FALSE(take_back_failure());
    EXPECT_TRUE(fails);
    sent_.erase(next);
    ++n_refused_;
  } catch (const Error& error) {
    take_back_failure();
    EXPECT_TRUE(error.code() == ErrorCode::kContextLength || error.code() == ErrorCode::kOutOfMemory)
        << error.what();
    sent_.erase(next);
    ++n_refused_;
  }
}

void LongRun::take_up(std::span<const StepOutput> outputs) {
  for (const StepOutput& out : outputs) {
    ASSERT_TRUE(sent_.contains(out.id))
        << "an output for request " << out.id << ", which has ended or never was";
    Sent& own = sent_.at(out.id);
    EXPECT_EQ(own.n_ended[out.choice], 0) << "request " << out.id << " goes on behind its end";
    for (const TokenEvent& event : out.events) own.tokens[out.choice].push_back(event.token.id);
    if (out.finish_reason) ++own.n_ended[out.choice];
  }
}

void LongRun::step(Engine& engine, const Shift& shift) {
  for (auto& [id, own] : sent_)
    if (own.request.harm == Harm::kCancelled && own.steps_left-- == 0) engine.cancel(id);
  const bool lacks = shift.lacks_memory && one_in(random_, 12);
  if (lacks && one_in(random_, 2)) {
    MemoryPool::process().set_limit(MemoryPool::process().stats().granted_bytes +
                                    static_cast<std::size_t>(below(random_, 30'000)));
  } else if (lacks) {
    fail_allocation_after(below(random_, one_in(random_, 2) ? 40 : 400));
  }
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit whole = limit;
  if (shift.disk_is_full && one_in(random_, 3)) {
    limit.rlim_cur = 100;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  try {
    const std::span<const StepOutput> outputs = engine.step();
    take_back_failure();
    MemoryPool::process().set_limit(0);
    take_up(outputs);
  } catch (const std::bad_alloc&) {  // what no request is to blame for; the next step goes on
    EXPECT_FALSE(take_back_failure());
    EXPECT_TRUE(lacks);
    ++n_thrown_steps_;
  } catch (const Error& error) {
    take_back_failure();
    EXPECT_TRUE(lacks && error.code() == ErrorCode::kOutOfMemory) << error.what();
    ++n_thrown_steps_;
  }
  MemoryPool::process().set_limit(0);
  ::setrlimit(RLIMIT_FSIZE, &whole);
}

void LongRun::check_end(Engine& engine, const Shift& shift, RequestId id, const Sent& sent) {
  const RandomRequest& request = sent.request;
  const std::optional<GenerationResult> result = engine.take_result(id);
  ASSERT_TRUE(result.has_value()) << "request " << id << " is lost";
  EXPECT_FALSE(engine.take_result(id).has_value()) << "request " << id << " twice";
  for (const auto& [choice, n] : sent.n_ended) EXPECT_EQ(n, 1) << "request " << id << ", choice " << choice;
  const bool one = request.params.n_sequences() == 1;
  if (one) {
    EXPECT_EQ(sent.n_ended.size(), 1U) << "request " << id;
    const auto seen = sent.tokens.find(0);
    std::vector<std::int32_t> given = seen == sent.tokens.end() ? std::vector<std::int32_t>() : seen->second;
    // One that fails at a token for want of memory has it, and may not have shown it.
    if (result->error && result->error->code == ErrorCode::kOutOfMemory &&
        given.size() + 1 == result->token_ids.size())
      given.push_back(result->token_ids.back());
    EXPECT_EQ(given, result->token_ids) << "request " << id << ": what steps gave";
  }
  if (result->error) {
    const std::string& message = result->error->message;
    const bool by_memory = shift.lacks_memory && result->error->code == ErrorCode::kOutOfMemory;
    ++(by_memory ? n_out_of_memory_ : n_failed_);
    EXPECT_TRUE(by_memory || (request.harm == Harm::kCallbackThrows && message == kCallbackFault) ||
                (request.harm == Harm::kTowerThrows && message == kTowerFault) ||
                (request.harm == Harm::kForwardThrows && message == kForwardFault) ||
                (request.harm == Harm::kBadLogits && message.find("not finite") != std::string::npos))
        << "request " << id << ": " << message;
  }
  if (request.harm == Harm::kTowerThrows || request.harm == Harm::kForwardThrows ||
      request.harm == Harm::kBadLogits) {
    EXPECT_TRUE(result->token_ids.empty()) << "request " << id;
    return;
  }
  const GenerationResult expected = alone(request, shift.options);
  const bool whole =
      result->finish_reason == FinishReason::kStop || result->finish_reason == FinishReason::kLength;
  if (!whole) {
    ++n_cut_short_;
    EXPECT_TRUE(request.harm != Harm::kNone || shift.has_canceller || shift.lacks_memory)
        << "request " << id << " ended by " << to_string(result->finish_reason);
    if (one) {
      ASSERT_LE(result->token_ids.size(), expected.token_ids.size()) << "request " << id;
      EXPECT_TRUE(std::equal(result->token_ids.begin(), result->token_ids.end(), expected.token_ids.begin()))
          << "request " << id << ": what came until it ended";
    }
    return;
  }
  const auto compare = [&](const GenerationResult& a, const GenerationResult& b) {
    EXPECT_EQ(a.token_ids, b.token_ids) << "request " << id;
    EXPECT_EQ(a.finish_reason, b.finish_reason) << "request " << id;
    EXPECT_EQ(a.cumulative_logprob, b.cumulative_logprob) << "request " << id;
    EXPECT_EQ(a.n_dropped_image_tokens, b.n_dropped_image_tokens) << "request " << id;
  };
  ASSERT_EQ(result->choices.size(), expected.choices.size()) << "request " << id;
  const auto is_whole = [](const GenerationResult& r) {
    return r.finish_reason == FinishReason::kStop || r.finish_reason == FinishReason::kLength;
  };
  if (!std::all_of(result->choices.begin(), result->choices.end(), is_whole)) return;
  // Of more answers than are wanted one may have failed, and another stands in its place.
  if (request.params.best_of > request.params.n && shift.lacks_memory) return;
  // A limit on memory may leave less room for an answer.
  if (shift.options.memory_limit_bytes > 0 && one && result->finish_reason == FinishReason::kLength &&
      result->token_ids.size() < expected.token_ids.size()) {
    EXPECT_TRUE(std::equal(result->token_ids.begin(), result->token_ids.end(), expected.token_ids.begin()))
        << "request " << id << ": as far as there was room";
    return;
  }
  if (shift.options.memory_limit_bytes > 0 && !one) return;
  SCOPED_TRACE(::testing::Message() << described(request) << "; " << described(shift));
  ++n_equal_;
  compare(*result, expected);
  for (std::size_t i = 0; i < result->choices.size(); ++i) compare(result->choices[i], expected.choices[i]);
}

void LongRun::census(Engine& engine) {
  EXPECT_FALSE(engine.has_work());
  const KvCacheStats stats = engine.kv_cache_stats();
  EXPECT_EQ(stats.n_used_blocks, 0);
  EXPECT_EQ(stats.n_shared_blocks, 0);
  EXPECT_EQ(stats.n_free_blocks + stats.n_idle_blocks, stats.n_blocks) << "a page is lost";
  EXPECT_EQ(stats.n_idle_blocks, stats.n_cached_blocks);
}

void LongRun::serve(const Shift& shift, std::int64_t n_requests) {
  Engine engine(model(), shift.options);
  sent_.clear();
  last_id_ = 0;
  std::atomic<bool> ends = false;
  std::thread canceller;
  if (shift.has_canceller)
    canceller = std::thread([&, seed = random_()] {
      std::mt19937_64 random(seed);
      while (!ends) {
        const RequestId last = last_id_;
        if (last > 0) engine.cancel(1 + random() % last);
        engine.vision_cache_stats();
        MediaItem item;
        item.fingerprint.high = 1 + random() % kPictures;
        engine.has_media_rows(item);
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      }
    });
  std::int64_t n_sent = 0;
  while (n_sent < n_requests || engine.has_work()) {
    while (n_sent < n_requests && (!shift.requests.empty() || one_in(random_, 3) || !engine.has_work())) {
      submit(engine, shift);
      ++n_sent;
      if (HasFatalFailure()) break;
    }
    step(engine, shift);
    // Those that have ended.
    for (auto it = sent_.begin(); it != sent_.end();) {
      const Sent& own = it->second;
      const auto n_ended = static_cast<int>(own.n_ended.size());
      // Choices that never began end with the first.
      const bool all = n_ended == own.request.params.n_sequences();
      if (!all ||
          std::any_of(own.n_ended.begin(), own.n_ended.end(), [](const auto& n) { return n.second == 0; })) {
        ++it;
        continue;
      }
      check_end(engine, shift, it->first, own);
      it = sent_.erase(it);
    }
    if (HasFailure()) break;
  }
  // Those whose further choices never began.
  for (const auto& [id, own] : sent_)
    if (!HasFailure()) {
      EXPECT_GT(own.request.params.n_sequences(), 1) << "request " << id << " never ended";
      check_end(engine, shift, id, own);
    }
  ends = true;
  if (canceller.joinable()) canceller.join();
  if (!HasFailure()) census(engine);
  n_preemptions_ += engine.n_preemptions();
}

// All wait from the beginning, and the cache holds a quarter of what they need together.
TEST_F(LongRun, FourTimesTheMemoryThatThereIs) {
  const std::int64_t n_wanted = std::min<std::int64_t>(number_from("TRIPTYCH_LONG_RUN", 40), 1000);
  Shift shift;
  std::int64_t n_needed = 0;
  while (static_cast<std::int64_t>(shift.requests.size()) < n_wanted) {
    RandomRequest request = random_request(random_);
    if (request.harm != Harm::kNone) continue;
    request.params.max_tokens += 70;  // it grows over the ends of pages
    const auto n_prompt = static_cast<std::int64_t>(prepare(model(), request).layout.input_ids.size());
    n_needed +=
        blocks_for(n_prompt + request.params.max_tokens) * kBlockTokens * request.params.n_sequences();
    shift.requests.push_back(std::move(request));
  }
  shift.options = {.max_context_tokens = kContext,
                   .kv_cache_tokens = std::max(kContext, n_needed / 4),
                   .max_sequences = 4 * static_cast<int>(n_wanted),  // memory is what is short
                   .kv_cache_dtype = KvDType::kF16,
                   .vision_embedding_cache_bytes = 4096,
                   .prefix_cache_bytes = std::size_t{1} << 16};
  serve(shift, n_wanted);
  EXPECT_EQ(n_submitted_, n_wanted);
  EXPECT_EQ(n_equal_, n_wanted) << "all answered, as alone";
  EXPECT_GT(n_preemptions_, 0);
  if (std::getenv("TRIPTYCH_LONG_RUN") != nullptr)
    std::printf(
        "%lld requests that need %lld tokens of a cache of %lld: %lld equal to alone, %lld preemptions\n",
        static_cast<long long>(n_submitted_), static_cast<long long>(n_needed),
        static_cast<long long>(shift.options.kv_cache_tokens), static_cast<long long>(n_equal_),
        static_cast<long long>(n_preemptions_));
}

TEST_F(LongRun, EveryRequestEndsOnceAndNothingIsLost) {
  const std::int64_t n_wanted = number_from("TRIPTYCH_LONG_RUN", 300);
  serve(random_shift(), 40);  // what the backend makes once
  alone_.clear();
  const std::size_t n_blocks_before = MemoryPool::process().stats().n_blocks;
  for (std::int64_t n = 0, n_shifts = 0; n < n_wanted && !HasFailure(); ++n_shifts) {
    const std::int64_t n_requests = std::min<std::int64_t>(n_wanted - n, 20 + below(random_, 100));
    SCOPED_TRACE("shift " + std::to_string(n_shifts) + ", behind " + std::to_string(n) + " requests");
    serve(random_shift(), n_requests);
    n += n_requests;
  }
  alone_.clear();
  if (!HasFailure()) {
    EXPECT_EQ(MemoryPool::process().stats().n_blocks, n_blocks_before) << "memory is lost";
  }
  RecordProperty("requests", static_cast<int>(n_submitted_));
  RecordProperty("refused", static_cast<int>(n_refused_));
  RecordProperty("equal to alone", static_cast<int>(n_equal_));
  RecordProperty("failed", static_cast<int>(n_failed_));
  RecordProperty("out of memory", static_cast<int>(n_out_of_memory_));
  RecordProperty("cut short", static_cast<int>(n_cut_short_));
  RecordProperty("steps that threw", static_cast<int>(n_thrown_steps_));
  if (std::getenv("TRIPTYCH_LONG_RUN") != nullptr)
    std::printf(
        "%lld requests, %lld refused; %lld equal to alone, %lld failed, %lld without memory, %lld cut short; "
        "%lld steps threw\n",
        static_cast<long long>(n_submitted_), static_cast<long long>(n_refused_),
        static_cast<long long>(n_equal_), static_cast<long long>(n_failed_),
        static_cast<long long>(n_out_of_memory_), static_cast<long long>(n_cut_short_),
        static_cast<long long>(n_thrown_steps_));
  EXPECT_GT(n_equal_, n_wanted / 4);
  EXPECT_GT(n_failed_, n_wanted / 40);
}

}  // namespace
}  // namespace triptych::test

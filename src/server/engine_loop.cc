#include "server/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"

namespace triptych::server {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

struct EngineLoop::Impl {
  struct Waiting {
    Ticket ticket = 0;
    PreparedRequest request;
    SamplingParams params;
    std::shared_ptr<AnswerSink> sink;
    Clock::time_point since;
  };
  struct Running {
    Ticket ticket = 0;
    std::shared_ptr<AnswerSink> sink;
  };

  Impl(LoadedModel& model, const EngineOptions& options)
      : engine(model, options), max_running(static_cast<std::size_t>(options.max_sequences)) {
    counts.kv_cache_bytes = engine.kv_cache_bytes();
    thread = std::thread([this] { run(); });
  }
  ~Impl() { stop(); }
  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    work.notify_one();
    if (thread.joinable()) thread.join();
  }

  void run() {
    for (;;) {
      std::vector<Waiting> next;
      std::vector<Ticket> cancelled;
      std::vector<Waiting> dropped;
      {
        std::unique_lock lock(mutex);
        work.wait(lock, [&] { return stopping || !waiting.empty() || !cancels.empty() || !running.empty(); });
        if (stopping) {
          for (auto& [key, one] : waiting) dropped.push_back(std::move(one));
          waiting.clear();
        }
        std::swap(cancelled, cancels);
        for (const Ticket ticket : cancelled)
          for (auto it = waiting.begin(); it != waiting.end(); ++it)
            if (it->second.ticket == ticket) {
              dropped.push_back(std::move(it->second));
              waiting.erase(it);
              break;
            }
        while (!waiting.empty() && running.size() + next.size() < max_running) {
          next.push_back(std::move(waiting.begin()->second));
          waiting.erase(waiting.begin());
        }
        counts.n_waiting = waiting.size();
      }
      for (Waiting& one : dropped) end(*one.sink, cancelled_result());
      for (Waiting& one : next) start(std::move(one));
      for (const Ticket ticket : cancelled) cancel_running(ticket);
      if (stopping) {
        for (auto& [id, one] : running) engine.cancel(id);
        while (engine.has_work()) step();
        return;
      }
      if (engine.has_work()) step();
      note_counts();
    }
  }

  static GenerationResult cancelled_result() {
    GenerationResult out;
    out.finish_reason = FinishReason::kCancelled;
    return out;
  }

  void cancel_running(Ticket ticket) {
    for (const auto& [id, one] : running)
      if (one.ticket == ticket) engine.cancel(id);
  }

  // A sink that throws is a fault of this program, and no reason to let others wait.
  template <typename Call>
  void tell(Call call) {
    try {
      call();
    } catch (const std::exception& failure) {
      log_warning("an answer could not be passed on: {}", failure.what());
    }
  }
  void end(AnswerSink& sink, GenerationResult result) {
    tell([&] { sink.done(std::move(result)); });
  }

  void start(Waiting one) {
    try {
      const RequestId id = engine.submit(std::move(one.request), one.params);
      running[id] = {one.ticket, one.sink};
    } catch (const Error& error) {
      tell([&] { one.sink->refused(error); });
      return;
    } catch (const std::exception& failure) {
      const Error error(ErrorCode::kOutOfMemory, failure.what());
      tell([&] { one.sink->refused(error); });
      return;
    }
    tell([&] { one.sink->started(seconds_since(one.since)); });
  }

  void step() {
    const auto begin = Clock::now();
    try {
      for (const StepOutput& out : engine.step()) pass_on(out);
    } catch (const std::exception& failure) {
      log_warning("a step failed: {}", failure.what());
      fail_all(failure.what());
    }
    step_s += seconds_since(begin);
    ++n_steps;
  }

  void pass_on(const StepOutput& out) {
    const auto found = running.find(out.id);
    if (found == running.end()) {
      if (out.finish_reason) engine.take_result(out.id);
      return;
    }
    const std::shared_ptr<AnswerSink> sink = found->second.sink;
    for (const TokenEvent& event : out.events) tell([&] { sink->token(event); });
    if (!out.finish_reason) return;
    running.erase(found);
    if (auto result = engine.take_result(out.id)) end(*sink, std::move(*result));
  }

  // After a fault that is nobody's in particular every answer ends, and the engine goes on with later ones.
  void fail_all(const std::string& message) {
    const auto all = std::exchange(running, {});
    for (const auto& [id, one] : all) {
      engine.cancel(id);
      GenerationResult result;
      result.finish_reason = FinishReason::kError;
      result.error = RequestError{ErrorCode::kInternal, message};
      end(*one.sink, std::move(result));
    }
  }

  void note_counts() {
    const std::lock_guard lock(mutex);
    counts.n_running = running.size();
    counts.n_steps = n_steps;
    counts.step_s = step_s;
    counts.n_preemptions = engine.n_preemptions();
    counts.n_media_encoded = engine.n_media_encoded();
  }

  Engine engine;
  const std::size_t max_running;
  std::unordered_map<RequestId, Running> running;  // engine's thread only, as the counts of steps
  std::int64_t n_steps = 0;
  double step_s = 0;

  std::mutex mutex;
  std::condition_variable work;
  std::map<std::pair<int, Ticket>, Waiting> waiting;
  std::vector<Ticket> cancels;
  Ticket next_ticket = 1;
  EngineCounts counts;
  bool stopping = false;
  std::thread thread;
};

EngineLoop::EngineLoop(LoadedModel& model, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {}
EngineLoop::~EngineLoop() = default;

EngineLoop::Ticket EngineLoop::submit(PreparedRequest request, SamplingParams params, int priority,
                                      std::shared_ptr<AnswerSink> sink) {
  Ticket ticket = 0;
  {
    std::unique_lock lock(impl_->mutex);
    if (impl_->stopping) {
      lock.unlock();
      sink->refused(Error(ErrorCode::kOutOfMemory, "the server is shutting down"));
      return 0;
    }
    ticket = impl_->next_ticket++;
    impl_->waiting.emplace(
        std::pair(priority, ticket),
        Impl::Waiting{ticket, std::move(request), std::move(params), std::move(sink), Clock::now()});
    impl_->counts.n_waiting = impl_->waiting.size();
  }
  impl_->work.notify_one();
  return ticket;
}

void EngineLoop::stop() { impl_->stop(); }

void EngineLoop::cancel(Ticket ticket) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->cancels.push_back(ticket);
  }
  impl_->work.notify_one();
}

std::int64_t EngineLoop::max_context_tokens() const noexcept { return impl_->engine.max_context_tokens(); }

EngineCounts EngineLoop::counts() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->counts;
}

}  // namespace triptych::server

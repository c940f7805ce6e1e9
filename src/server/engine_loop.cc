#include "server/engine_loop.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
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
  struct Submitted {
    Ticket ticket = 0;
    PreparedRequest request;
    SamplingParams params;
    std::shared_ptr<AnswerSink> sink;
  };
  struct Open {
    Ticket ticket = 0;
    std::shared_ptr<AnswerSink> sink;
  };

  Impl(LoadedModel& model, const EngineOptions& options) : engine(model, options) {
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
      std::vector<Submitted> next;
      std::vector<Ticket> cancelled;
      {
        std::unique_lock lock(mutex);
        work.wait(lock, [&] { return stopping || !submitted.empty() || !cancels.empty() || !open.empty(); });
        std::swap(next, submitted);
        std::swap(cancelled, cancels);
      }
      for (Submitted& one : next)
        if (stopping) {
          end(*one.sink, cancelled_result());
        } else {
          start(std::move(one));
        }
      for (const Ticket ticket : cancelled) cancel_open(ticket);
      if (stopping) {
        for (auto& [id, one] : open) engine.cancel(id);
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

  void cancel_open(Ticket ticket) {
    for (const auto& [id, one] : open)
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

  void start(Submitted one) {
    try {
      const RequestId id = engine.submit(std::move(one.request), one.params);
      open[id] = {one.ticket, one.sink};
    } catch (const Error& error) {
      tell([&] { one.sink->refused(error); });
      return;
    } catch (const std::exception& failure) {
      const Error error(ErrorCode::kOutOfMemory, failure.what());
      tell([&] { one.sink->refused(error); });
      return;
    }
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
    const auto found = open.find(out.id);
    if (found == open.end()) {
      if (out.finish_reason) engine.take_result(out.id);
      return;
    }
    const std::shared_ptr<AnswerSink> sink = found->second.sink;
    for (const TokenEvent& event : out.events) tell([&] { sink->token(event); });
    if (!out.finish_reason) return;
    open.erase(found);
    if (auto result = engine.take_result(out.id)) end(*sink, std::move(*result));
  }

  // After a fault that is nobody's in particular every answer ends, and the engine goes on with later ones.
  void fail_all(const std::string& message) {
    const auto all = std::exchange(open, {});
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
    counts.n_steps = n_steps;
    counts.step_s = step_s;
    counts.n_media_encoded = engine.n_media_encoded();
  }

  Engine engine;
  std::unordered_map<RequestId, Open> open;  // engine's thread only, as the counts of steps
  std::int64_t n_steps = 0;
  double step_s = 0;

  std::mutex mutex;
  std::condition_variable work;
  std::vector<Submitted> submitted;
  std::vector<Ticket> cancels;
  Ticket next_ticket = 1;
  EngineCounts counts;
  std::atomic<bool> stopping = false;
  std::thread thread;
};

EngineLoop::EngineLoop(LoadedModel& model, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {}
EngineLoop::~EngineLoop() = default;

EngineLoop::Ticket EngineLoop::submit(PreparedRequest request, SamplingParams params,
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
    impl_->submitted.push_back({ticket, std::move(request), std::move(params), std::move(sink)});
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

bool EngineLoop::has_media_rows(const MediaItem& item) const { return impl_->engine.has_media_rows(item); }

EngineCounts EngineLoop::counts() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->counts;
}

}  // namespace triptych::server

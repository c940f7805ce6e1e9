#include "benchmark/serve_driver.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "benchmark/serve_preparer.h"
#include "benchmark/serve_requests.h"
#include "report/machine.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

Clock::duration from_ms(double ms) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
}

double process_cpu_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

class Driver {
 public:
  Driver(LoadedModel& model, const std::vector<TraceRequest>& trace, const ServeOptions& options)
      : trace_(trace),
        options_(options),
        requests_(model, trace, options.media, options.folder),
        engine_(model, engine_options()),
        order_(trace.size()),
        progress_(trace.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (options.n_clients == 0)
      std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
        return trace[a].arrival_ms < trace[b].arrival_ms;
      });
    out_.requests.resize(trace.size());
    out_.n_threads = model.backend().n_threads();
    out_.max_context_tokens = engine_.max_context_tokens();
    out_.kv_cache_bytes = engine_.kv_cache_bytes();
  }

  ServeRun run() {
    ServePreparer preparer(requests_, options_.n_prepare_threads);
    reset_peak_memory();
    const double cpu_ms = process_cpu_ms();
    if (options_.timeline) set_profile_mode(ProfileMode::kBusy);
    start_ = Clock::now();
    while (n_done_ < trace_.size()) {
      take_arrivals();
      for (; n_begun_ < n_arrived_ && has_room(); ++n_begun_) preparer.push(order_[n_begun_]);
      for (; auto prepared = preparer.take(); ++n_taken_) submit(std::move(*prepared));
      const auto next = next_arrival();
      if (engine_.has_work()) {
        step();
      } else if (n_taken_ < n_begun_ || next) {
        preparer.wait(next);
      }
    }
    out_.wall_ms = ms_between(start_, Clock::now());
    out_.cpu_ms = process_cpu_ms() - cpu_ms;
    if (options_.timeline) {
      out_.busy = profile_busy();
      set_profile_mode(ProfileMode::kOff);
    }
    out_.totals = engine_.totals();
    out_.peak_memory_bytes = peak_memory_bytes();
    return std::move(out_);
  }

 private:
  struct Progress {
    Clock::time_point arrival{};
    Clock::time_point last_token{};
    double waited_ms = 0;  // before it was submitted
    bool has_token = false;
  };

  EngineOptions engine_options() const {
    EngineOptions out = options_.engine;
    if (out.max_context_tokens == 0) out.max_context_tokens = requests_.max_context_tokens();
    if (out.kv_cache_tokens == 0)  // whole blocks, and the one more that is asked for to admit a sequence
      out.kv_cache_tokens =
          blocks_for(out.max_context_tokens + 1) * kBlockTokens * std::max(out.max_sequences, 1);
    return out;
  }

  // Requests whose time has come: by the clock, or because a client is free.
  void take_arrivals() {
    const Clock::time_point now = Clock::now();
    for (; n_arrived_ < order_.size(); ++n_arrived_) {
      Progress& progress = progress_[order_[n_arrived_]];
      if (options_.n_clients > 0) {
        if (n_arrived_ - n_done_ >= static_cast<std::size_t>(options_.n_clients)) return;
        progress.arrival = now;
      } else {
        progress.arrival = start_ + from_ms(trace_[order_[n_arrived_]].arrival_ms);
        if (progress.arrival > now) return;
      }
      out_.requests[order_[n_arrived_]].arrival_ms = ms_between(start_, progress.arrival);
    }
  }

  std::optional<Clock::time_point> next_arrival() const {
    if (n_arrived_ == order_.size() || options_.n_clients > 0) return std::nullopt;
    return progress_[order_[n_arrived_]].arrival;
  }

  bool has_room() const {
    return n_begun_ - n_done_ < static_cast<std::size_t>(options_.engine.max_sequences) +
                                    static_cast<std::size_t>(options_.max_prepared);
  }

  void submit(PreparedTraceRequest prepared) {
    const std::size_t index = prepared.index;
    Progress& progress = progress_[index];
    progress.waited_ms =
        ms_between(progress.arrival, prepared.begin) + ms_between(prepared.end, Clock::now());
    if (prepared.error) return fail_request(index, *prepared.error);
    SamplingParams params;
    params.max_tokens = trace_[index].answer_tokens;
    params.ignore_eos = true;
    prepared.request.arrival = progress.arrival;
    try {
      const RequestId id =
          engine_.submit(std::move(prepared.request), params, [this, index](const TokenEvent&) {
            note_token(index);
            return true;
          });
      running_.emplace(id, index);
    } catch (const Error& error) {
      fail_request(index, {error.code(), error.what()});
    }
  }

  void note_token(std::size_t index) {
    Progress& progress = progress_[index];
    const Clock::time_point now = Clock::now();
    if (progress.has_token)
      out_.requests[index].gaps_ms.push_back(static_cast<float>(ms_between(progress.last_token, now)));
    progress.has_token = true;
    progress.last_token = now;
  }

  void step() {
    const Clock::time_point begin = Clock::now();
    const std::span<const StepOutput> outputs = engine_.step();
    out_.steps.push_back({ms_between(start_, begin), ms_between(begin, Clock::now()), engine_.last_step()});
    for (const StepOutput& output : outputs) {
      if (!output.finish_reason) continue;
      const auto found = running_.find(output.id);
      TRIPTYCH_CHECK(found != running_.end(), "[serve] request {} ended twice", output.id);
      const std::size_t index = found->second;
      running_.erase(found);
      std::optional<GenerationResult> result = engine_.take_result(output.id);
      TRIPTYCH_CHECK(result.has_value(), "[serve] request {} ended without a result", output.id);
      ServedRequest& served = out_.requests[index];
      served.timings = result->timings;
      served.timings.queue_ms += progress_[index].waited_ms;
      served.n_prompt_tokens = result->n_prompt_tokens;
      served.n_image_tokens = result->n_image_tokens;
      served.n_reused_tokens = result->n_reused_tokens;
      served.n_answer_tokens = static_cast<std::int64_t>(result->token_ids.size());
      served.error = result->error;
      note_done();
    }
  }

  void fail_request(std::size_t index, RequestError error) {
    out_.requests[index].error = std::move(error);
    note_done();
  }

  void note_done() {
    ++n_done_;
    if (options_.on_progress) options_.on_progress(n_done_);
  }

  const std::vector<TraceRequest>& trace_;
  const ServeOptions& options_;
  ServeRequests requests_;
  Engine engine_;
  std::vector<std::size_t> order_;                         // in which requests come
  std::vector<Progress> progress_;                         // by request
  std::size_t n_arrived_ = 0, n_begun_ = 0, n_taken_ = 0;  // of order_
  std::size_t n_done_ = 0;
  std::unordered_map<RequestId, std::size_t> running_;
  Clock::time_point start_{};
  ServeRun out_;
};

}  // namespace

ServeRun run_serve(LoadedModel& model, const std::vector<TraceRequest>& trace, const ServeOptions& options) {
  if (options.n_clients < 0 || options.n_prepare_threads < 0 || options.n_prepare_threads > 256 ||
      options.max_prepared < 1)
    fail(ErrorCode::kInvalidArgument, "clients, threads and prepared requests: sizes out of range");
  if (trace.empty()) fail(ErrorCode::kInvalidArgument, "the trace holds no request");
  return Driver(model, trace, options).run();
}

}  // namespace triptych

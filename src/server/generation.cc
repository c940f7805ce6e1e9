#include "server/generation.h"

#include <utility>

#include "base/log.h"

namespace triptych::server {

using Clock = std::chrono::steady_clock;

class Generation::Sink : public AnswerSink {
 public:
  Sink(std::shared_ptr<Generation> generation, std::size_t answer)
      : generation_(std::move(generation)), answer_(answer) {}
  void started(double queue_s) override { generation_->started(queue_s); }
  void token(const TokenEvent& event) override { generation_->token(answer_, event); }
  void done(GenerationResult result) override { generation_->done(answer_, std::move(result)); }
  void refused(const Error& error) override {
    generation_->fail_with(ApiError::of(error));
    GenerationResult none;
    none.finish_reason = FinishReason::kError;
    generation_->done(answer_, std::move(none));
  }

 private:
  std::shared_ptr<Generation> generation_;
  std::size_t answer_;
};

Generation::Generation(std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerWriter> writer,
                       std::shared_ptr<ModelHost> host, ServerMetrics& metrics, Clock::time_point received,
                       std::function<void()> on_end)
    : exchange_(std::move(exchange)),
      writer_(std::move(writer)),
      host_(std::move(host)),
      metrics_(metrics),
      received_(received),
      on_end_(std::move(on_end)) {}

Generation::~Generation() = default;

void Generation::start(std::vector<Answer> answers, int priority) {
  const std::size_t n = answers.size();
  results_.resize(n);
  last_token_.assign(n, received_);
  n_open_ = n;
  const auto self = shared_from_this();
  {
    // Locked while they are submitted: one that fails at once cancels the others.
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < n; ++i)
      tickets_.push_back(host_->engine().submit(std::move(answers[i].request), std::move(answers[i].params),
                                                priority, std::make_shared<Sink>(self, i)));
  }
  exchange_->on_disconnect([weak = weak_from_this()] {
    if (const auto generation = weak.lock()) generation->cancel_all();
  });
}

void Generation::cancel_all() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(cancelled_, true)) return;
  for (const EngineLoop::Ticket ticket : tickets_) host_->engine().cancel(ticket);
}

void Generation::started(double queue_s) { metrics_.queue_time.observe(queue_s); }

void Generation::token(std::size_t answer, const TokenEvent& event) {
  if (failed_) return;
  const auto now = Clock::now();
  const double s = std::chrono::duration<double>(now - last_token_[answer]).count();
  (last_token_[answer] == received_ ? metrics_.time_to_first_token : metrics_.inter_token_latency).observe(s);
  last_token_[answer] = now;
  metrics_.generation_tokens.fetch_add(1, std::memory_order_relaxed);
  writer_->token(answer, event);
  if (!exchange_->is_open()) cancel_all();
}

void Generation::done(std::size_t answer, GenerationResult result) {
  results_[answer] = std::move(result);
  const GenerationResult& kept = results_[answer];
  if (kept.finish_reason == FinishReason::kError) {
    metrics_.count_finished("error");
    if (kept.error) fail_with(ApiError::of(Error(kept.error->code, kept.error->message)));
  } else if (kept.finish_reason == FinishReason::kCancelled) {
    metrics_.count_finished("cancelled");
    // Not by this client: the server ends.
    if (exchange_->is_open()) fail_with(ApiError(503, "shutting_down", "the server is shutting down"));
  } else if (!failed_) {
    metrics_.count_finished(writer_->finished(answer, kept));
    metrics_.prompt_tokens += static_cast<std::uint64_t>(kept.n_prompt_tokens);
    metrics_.image_tokens += static_cast<std::uint64_t>(kept.n_image_tokens);
    metrics_.cached_tokens += static_cast<std::uint64_t>(kept.n_reused_tokens);
    if (kept.n_image_tokens > 0) metrics_.image_encode.observe(kept.timings.encode_ms / 1e3);
    metrics_.prefill.observe(kept.timings.prefill_ms / 1e3);
    metrics_.decode.observe(kept.timings.decode_ms / 1e3);
  }
  if (--n_open_ > 0) return;
  if (!failed_ && exchange_->is_open()) {
    writer_->all_finished(results_);
    metrics_.e2e_latency.observe(std::chrono::duration<double>(Clock::now() - received_).count());
  }
  if (on_end_) std::exchange(on_end_, nullptr)();
}

void Generation::fail_with(const ApiError& error) {
  if (std::exchange(failed_, true)) return;
  writer_->failed(error);
  cancel_all();
}

}  // namespace triptych::server

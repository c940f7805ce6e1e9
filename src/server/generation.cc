#include "server/generation.h"

#include <utility>

namespace triptych::server {

using Clock = std::chrono::steady_clock;

class Generation::Sink : public AnswerSink {
 public:
  Sink(std::shared_ptr<Generation> generation, std::size_t answer)
      : generation_(std::move(generation)), answer_(answer) {}
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
                       OnResults on_results)
    : exchange_(std::move(exchange)),
      writer_(std::move(writer)),
      host_(std::move(host)),
      metrics_(metrics),
      received_(received),
      on_results_(std::move(on_results)) {}

Generation::~Generation() = default;

void Generation::start(std::vector<Answer> answers, int priority) {
  const std::size_t n = answers.size();
  metrics_.asked(n, answers.front().params.max_tokens);
  results_.resize(n);
  n_open_ = n;
  const auto self = shared_from_this();
  {
    // Locked while they are submitted: one that fails at once cancels the others.
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < n; ++i) {
      Answer& answer = answers[i];
      answer.request.queue.priority = priority;
      answer.request.arrival = received_;
      tickets_.push_back(host_->engine().submit(std::move(answer.request), std::move(answer.params),
                                                std::make_shared<Sink>(self, i)));
    }
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

void Generation::token(std::size_t answer, const TokenEvent& event) {
  if (failed_) return;
  writer_->token(answer, event);
  if (!exchange_->is_open()) cancel_all();
}

void Generation::done(std::size_t answer, GenerationResult result) {
  results_[answer] = std::move(result);
  const GenerationResult& kept = results_[answer];
  if (kept.finish_reason == FinishReason::kError) {
    if (kept.error) fail_with(ApiError::of(Error(kept.error->code, kept.error->message)));
  } else if (kept.finish_reason == FinishReason::kCancelled) {
    // Not by this client: the server ends.
    if (exchange_->is_open()) fail_with(ApiError(503, "shutting_down", "the server is shutting down"));
  } else if (!failed_) {
    writer_->finished(answer, kept);
    metrics_.count_image_tokens(kept.n_image_tokens);
  }
  if (--n_open_ > 0) return;
  AnswerCounts counts{.n_prompt_tokens = kept.n_prompt_tokens,
                      .n_image_tokens = kept.n_image_tokens,
                      .n_cached_tokens = kept.n_reused_tokens};
  for (const GenerationResult& one : results_)
    counts.n_answer_tokens += static_cast<std::int64_t>(one.token_ids.size());
  exchange_->note(counts);
  if (on_results_) on_results_(results_);
  if (!failed_ && exchange_->is_open()) writer_->all_finished(results_);
  on_results_ = nullptr;
}

void Generation::fail_with(const ApiError& error) {
  if (std::exchange(failed_, true)) return;
  writer_->failed(error);
  cancel_all();
}

}  // namespace triptych::server

// One request on its way through the engine: as many answers as it asks for, and who writes them down.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "server/api_error.h"
#include "server/engine_loop.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/model_host.h"

namespace triptych::server {

/// Writes the answers of one request in the form of an API, whole or as they come. Calls come one at a time,
/// on the engine's thread.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual void token(std::size_t answer, const TokenEvent& event) = 0;
  /// An answer has ended; returns the reason as it was written, for the metrics.
  virtual std::string finished(std::size_t answer, const GenerationResult& result) = 0;
  virtual void all_finished(const std::vector<GenerationResult>& results) = 0;
  /// Nothing follows.
  virtual void failed(const ApiError& error) = 0;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  using OnResults = std::function<void(const std::vector<GenerationResult>&)>;
  /// `received`: when the request was whole. `on_results` is called once, when all answers have ended and
  /// before the client hears it.
  Generation(std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerWriter> writer,
             std::shared_ptr<ModelHost> host, ServerMetrics& metrics,
             std::chrono::steady_clock::time_point received, OnResults on_results);
  ~Generation();

  struct Answer {
    PreparedRequest request;
    SamplingParams params;
  };
  /// Submits all of them; the client's leaving cancels them.
  void start(std::vector<Answer> answers, int priority);

 private:
  class Sink;
  void token(std::size_t answer, const TokenEvent& event);
  void done(std::size_t answer, GenerationResult result);
  void fail_with(const ApiError& error);
  void cancel_all();

  std::shared_ptr<Exchange> exchange_;
  std::unique_ptr<AnswerWriter> writer_;
  std::shared_ptr<ModelHost> host_;
  ServerMetrics& metrics_;
  const std::chrono::steady_clock::time_point received_;
  OnResults on_results_;

  std::mutex mutex_;  // of the tickets
  std::vector<EngineLoop::Ticket> tickets_;
  bool cancelled_ = false;

  // Engine's thread only.
  std::vector<GenerationResult> results_;
  std::size_t n_open_ = 0;
  bool failed_ = false;
};

}  // namespace triptych::server

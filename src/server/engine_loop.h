// The one thread that owns an engine and steps it. Everybody else hands requests in and hears what came of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/engine.h"
#include "server/engine_counts.h"

namespace triptych::server {

/// Hears what becomes of one request; called on the engine's thread, which must not be kept. Exactly one of
/// refused() and done() is the last call.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void token(const TokenEvent& event) = 0;
  virtual void done(GenerationResult result) = 0;
  /// The engine does not take it.
  virtual void refused(const Error& error) = 0;
};

class EngineLoop {
 public:
  using Ticket = std::uint64_t;

  /// Borrows the model. Throws as Engine's constructor.
  EngineLoop(LoadedModel& model, const EngineOptions& options);
  /// Requests that have not ended are cancelled.
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  /// Hands a request to the engine, where it waits as its QueueOptions say. Any thread.
  Ticket submit(PreparedRequest request, SamplingParams params, std::shared_ptr<AnswerSink> sink);
  /// Cancels what has not ended and ends the thread; what is submitted later is refused.
  void stop();
  /// Ends it within a step; one that has ended is left alone. Any thread.
  void cancel(Ticket ticket);
  std::int64_t max_context_tokens() const noexcept;
  /// See Engine::has_media_rows. Any thread.
  bool has_media_rows(const MediaItem& item) const;
  EngineCounts counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace triptych::server

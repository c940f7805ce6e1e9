// What the writers of APIs with one answer a request share: its text whole, or as it comes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/event_stream.h"
#include "server/generation.h"

namespace triptych::server {

/// "2026-01-31T12:00:00Z", as times stand in Ollama's answers.
std::string utc_time(std::int64_t unix_s);

class SingleWriter : public AnswerWriter {
 public:
  SingleWriter(std::shared_ptr<Exchange> exchange, bool stream)
      : exchange_(std::move(exchange)), stream_(stream) {}
  void token(std::size_t answer, const TokenEvent& event) final;
  std::string finished(std::size_t answer, const GenerationResult& result) final;
  void all_finished(const std::vector<GenerationResult>& results) final;
  void failed(const ApiError& error) final;

 protected:
  /// Of a stream: before the first text, a text, the end, an error after the first text.
  virtual void begin() {}
  virtual void delta(std::string_view text) = 0;
  virtual void end(const GenerationResult& result) = 0;
  virtual void broken(const ApiError& error) = 0;
  /// The body of an answer that is not streamed.
  virtual std::string whole(const GenerationResult& result) = 0;

  Exchange& exchange() noexcept { return *exchange_; }
  /// What came so far.
  const std::string& text() const noexcept { return text_; }

 private:
  void begin_once();
  std::shared_ptr<Exchange> exchange_;
  const bool stream_;
  bool begun_ = false;
  std::string text_;
};

}  // namespace triptych::server
